/** One deadline for many waits of the same length: a queue in order of expiry and one coarse timer, instead of a timer each. */
import type { Clock } from './clock.ts'

/** How often expired waits are looked for; a deadline is met with this much delay at most. */
const SWEEP_MS = 250

/** Ends what takes longer than `afterMs`. `close()` stops the timer and ends nothing. */
export class Deadlines {
  readonly #pending = new Map<object, { readonly atMs: number; readonly expire: () => void }>()
  readonly #clock: Clock
  #timer: NodeJS.Timeout | undefined
  #afterMs: number

  /** `afterMs` holds for every wait that begins from now on. */
  constructor(afterMs: number, clock: Clock) {
    this.#afterMs = afterMs
    this.#clock = clock
  }

  /** How many are waiting. */
  get size(): number {
    return this.#pending.size
  }

  /** A longer or shorter time, for waits that begin from now on. */
  setAfter(afterMs: number): void {
    this.#afterMs = afterMs
  }

  /** Calls `expire` unless {@link stop} is called for the same key in time. A second start for a key begins its time anew. */
  start(key: object, expire: () => void): void {
    this.#pending.delete(key)
    this.#pending.set(key, { atMs: this.#clock.monotonicMs() + this.#afterMs, expire })
    this.#timer ??= setInterval(() => this.sweep(), SWEEP_MS).unref()
  }

  /** The wait is over. */
  stop(key: object): void {
    this.#pending.delete(key)
  }

  /** Ends what is late. Runs by itself; tests call it with their own clock. */
  sweep(): void {
    const nowMs = this.#clock.monotonicMs()
    for (const [key, { atMs, expire }] of this.#pending) {
      if (atMs > nowMs) break
      this.#pending.delete(key)
      expire()
    }
  }

  /** Idempotent. */
  close(): void {
    clearInterval(this.#timer)
    this.#pending.clear()
  }
}
