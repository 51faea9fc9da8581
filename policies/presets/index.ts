/** The named sets that ship with the product. `@npm` and `@apt` are not here: they are read from the machine. */
import { CODE_HOSTS } from './code-hosts.ts'
import { MODEL_APIS } from './model-apis.ts'
import { OPERATING_SYSTEMS } from './operating-systems.ts'
import { PACKAGE_REGISTRIES } from './package-registries.ts'
import type { Preset } from './preset.ts'

export type { Preset } from './preset.ts'

/** Every shipped set, by name. */
export const PRESETS: readonly Preset[] = [
  ...CODE_HOSTS,
  ...PACKAGE_REGISTRIES,
  ...MODEL_APIS,
  ...OPERATING_SYSTEMS,
].sort((one, other) => (one.name < other.name ? -1 : 1))

/** The set with this name (without `@`). */
export function findPreset(name: string): Preset | undefined {
  return PRESETS.find((preset) => preset.name === name)
}

/** All names, without `@`, in order. */
export function presetNames(): readonly string[] {
  return PRESETS.map((preset) => preset.name)
}
