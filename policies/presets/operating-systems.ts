/** To come. */
import type { Preset } from './preset.ts'

/** One set for each. */
export const OPERATING_SYSTEMS: readonly Preset[] = []
