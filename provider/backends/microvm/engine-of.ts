/** The engine that the options name. */
import { createFirecrackerEngine } from './firecracker.ts'
import type { Engine } from './machine.ts'
import { createQemuEngine } from './qemu.ts'
import type { ResolvedSelfHostedOptions } from './self-hosted-options.ts'

/** Starts nothing yet. */
export function engineOf(options: ResolvedSelfHostedOptions): Engine {
  return options.engine === 'qemu' ? createQemuEngine(options) : createFirecrackerEngine(options)
}
