/** Remembers how sound the log of this gateway was when it was last looked at, and its last checkpoint. Verifies when asked, one at a time and for a bounded time. */
import { parseLine } from './match.ts'
import { verifyApart, type Verified } from './retention/verify-apart.ts'

/** A signed line that is in the file. */
export interface Checkpoint {
  readonly seq: number
  /** UTC, RFC 3339. */
  readonly time: string
  /** Number of the file. */
  readonly segment: number | undefined
  /** RFC 7638 thumbprint of the key. */
  readonly signer: string | undefined
}

/** How a verification ended. */
export interface VerificationEnd extends Partial<Verified> {
  readonly startedMs: number
  readonly endedMs: number
  /** `unreadable`: it could not be done, or not in time; nothing is known. */
  readonly outcome: 'verified' | 'failed' | 'unreadable'
}

/** What is known of the log. */
export interface AuditIntegrity {
  /** Name of this gateway in the log. */
  readonly instance: string
  /** The last one of this run; `undefined` before the first. */
  readonly lastCheckpoint: Checkpoint | undefined
  readonly isVerifying: boolean
  /** The last verification of this run. */
  readonly last: VerificationEnd | undefined
}

/** Of one verification. */
const LONGEST_MS = 600_000
/** Settings of {@link IntegrityWatch}. */
export interface IntegrityOptions {
  readonly folder: string
  readonly instance: string
  /** Public keys of the checkpoints. */
  readonly keyFile: string
  /** Ends what is underway. */
  readonly signal: AbortSignal
}

/** The memory of one log. */
export class IntegrityWatch {
  readonly #options: IntegrityOptions
  #checkpoint: Checkpoint | undefined
  #last: VerificationEnd | undefined
  #running: Promise<VerificationEnd> | undefined

  constructor(options: IntegrityOptions) {
    this.#options = options
  }

  /** A checkpoint line is in the file. */
  note(text: string): void {
    const line = parseLine(text)
    if (line?.kind !== 'admin') return
    const { seq, time, segment, signer } = line
    this.#checkpoint = { seq, time, segment, signer }
  }

  /** What is known now; costs nothing. */
  read(): AuditIntegrity {
    const { instance } = this.#options
    return {
      instance,
      lastCheckpoint: this.#checkpoint,
      isVerifying: this.#running !== undefined,
      last: this.#last,
    }
  }

  /** The end of a verification: of the one underway, of the last one if it ended less than `freshMs` ago, or of a new one. Never rejects. */
  verify(freshMs = 0): Promise<VerificationEnd> {
    if (this.#running !== undefined) return this.#running
    if (this.#last !== undefined && Date.now() - this.#last.endedMs < freshMs) return Promise.resolve(this.#last)
    this.#running = this.#run().finally(() => (this.#running = undefined))
    return this.#running
  }

  async #run(): Promise<VerificationEnd> {
    const startedMs = Date.now()
    const { signal, ...job } = this.#options
    const found = await verifyApart(job, AbortSignal.any([signal, AbortSignal.timeout(LONGEST_MS)])).catch(
      () => undefined,
    )
    const outcome = found === undefined ? 'unreadable' : found.fault === undefined ? 'verified' : 'failed'
    return (this.#last = { startedMs, endedMs: Date.now(), outcome, ...found })
  }
}
