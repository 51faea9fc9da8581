/** What the host tells the program that runs a sandbox of `@anthropic-ai/sandbox-runtime`, in its first line of input. */
import type { WorkerSettings } from '../worker/settings.ts'

/** An order for `srt-launcher.ts`. */
export interface SrtOrder {
  /** The worker's socket: made outside, since the runtime lets nobody make one inside, and handed in as a descriptor. */
  readonly socketPath: string
  /** Where a bound listener of the gateway is. */
  readonly gatewaySocket: string
  readonly node: string
  readonly worker: string
  readonly filesystem: {
    readonly denyRead: readonly string[]
    readonly allowRead: readonly string[]
    readonly allowWrite: readonly string[]
    readonly denyWrite: readonly string[]
  }
  readonly settings: WorkerSettings
}

/** Descriptor on which the worker finds its socket. */
export const WORKER_DESCRIPTOR = 3
