/** What a sink is: somewhere that audit lines are sent. It keeps no queue; what it did not take is still in the audit files. */
import type { AuditRecord } from './reader.ts'

/** Takes lines. */
export interface Sink {
  /**
   * Sends lines, in order. Resolves once the other side has taken all of them.
   * @throws DeliveryFault when it has not, or it can't be known
   */
  readonly send: (records: readonly AuditRecord[], signal: AbortSignal) => Promise<void>
  /** For a protocol in which nothing is acknowledged: when lines that were handed over count as taken. */
  readonly settling?: {
    /** Milliseconds that the connection must hold after them. */
    readonly afterMs: number
    /** Whether it broke since the last call. */
    readonly hasBroken: () => boolean
  }
  /** Ends what is open; idempotent. */
  readonly close: () => void
}

/** Why lines were not taken. The message is fit for a log: it names no URL, no header and nothing that was answered but its status. */
export class DeliveryFault extends Error {
  /** `later`: the same lines again. `refused`: the other side can't take one of these lines, and others it might. */
  readonly outlook: 'later' | 'refused'
  /** How long the other side asked to be left alone. */
  readonly retryAfterMs: number | undefined

  constructor(message: string, outlook: 'later' | 'refused' = 'later', retryAfterMs?: number) {
    super(message)
    this.outlook = outlook
    this.retryAfterMs = retryAfterMs
  }
}
