/** Bytes per second of one sandbox or tenant, over all its connections: a token bucket that may go into debt, so that no read is cut in two. */
import type { Clock } from '../clock.ts'

/** What may pass at once after a pause, as a part of a second's worth. */
const BURST_SECONDS = 0.05
/** The longest that a timer takes; what is longer would not wait at all. */
const MAX_WAIT_MS = 2 ** 31 - 1

/** The rate is given at every use, so that it may change at any time. */
export class ByteRate {
  readonly #clock: Clock
  /** Bytes that may pass now; negative: what passed ahead of its time. */
  #allowance = Infinity
  #countedAtMs: number

  constructor(clock: Clock) {
    this.#clock = clock
    this.#countedAtMs = clock.monotonicMs()
  }

  /** Counts bytes that have passed, or none; in milliseconds, how long whoever sent them is to be left unread. */
  take(bytes: number, perSecond: number): number {
    const nowMs = this.#clock.monotonicMs()
    const earned = ((nowMs - this.#countedAtMs) / 1000) * perSecond
    this.#countedAtMs = nowMs
    this.#allowance = Math.min(this.#allowance + earned, perSecond * BURST_SECONDS) - bytes
    return this.#allowance >= 0 ? 0 : Math.min(MAX_WAIT_MS, Math.ceil((-this.#allowance / perSecond) * 1000))
  }
}
