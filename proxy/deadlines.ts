/** One deadline for many waits of the same length, looked at by one coarse timer, instead of a timer each. */
import type { Clock } from './clock.ts'
import { type Member, Roster } from './roster.ts'

/** How often expired waits are looked for; a deadline is met with this much delay at most. */
const SWEEP_MS = 250
/** A look that is so late says that the process had no turn: what came meanwhile is read before anybody is late. */
const NO_TURN_MS = 1000

/** What can be waited for, by one {@link Deadlines} at a time; ended when it takes too long. */
export interface Awaited {
  /** For {@link Deadlines} alone. */
  wait: Wait | undefined
  destroy(): void
}

/** One wait. */
export interface Wait extends Member {
  readonly of: Deadlines
  readonly what: Awaited
  readonly untilMs: number
}

/** Ends what takes longer than `afterMs`. `close()` stops the timer and ends nothing. */
export class Deadlines {
  readonly #pending = new Roster<Wait>()
  readonly #clock: Clock
  #timer: NodeJS.Timeout | undefined
  #afterMs: number
  #lookedMs = 0

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

  /** Destroys `what` unless {@link stop} is called for it in time. A wait that it was in already is over. */
  start(what: Awaited): void {
    what.wait?.of.stop(what)
    const wait = { of: this, what, untilMs: this.#clock.monotonicMs() + this.#afterMs, rosterPlace: -1 }
    what.wait = wait
    this.#pending.add(wait)
    if (this.#timer !== undefined) return
    this.#lookedMs = this.#clock.monotonicMs()
    this.#timer = setInterval(() => this.#look(), SWEEP_MS).unref()
  }

  /** The wait is over. Idempotent. */
  stop(what: Awaited): void {
    if (what.wait !== undefined && this.#pending.remove(what.wait)) what.wait = undefined
  }

  /** Ends what is late. Runs by itself; tests call it with their own clock. */
  sweep(): void {
    const nowMs = this.#clock.monotonicMs()
    this.#pending.forEach(({ what, untilMs }) => {
      if (untilMs > nowMs) return
      this.stop(what)
      what.destroy()
    })
  }

  /** Timers come before what has arrived: after a standstill the first look only waits for that. */
  #look(): void {
    const nowMs = this.#clock.monotonicMs()
    const hadTurns = nowMs - this.#lookedMs < SWEEP_MS + NO_TURN_MS
    this.#lookedMs = nowMs
    if (hadTurns) this.sweep()
  }

  /** Idempotent. */
  close(): void {
    clearInterval(this.#timer)
    this.#pending.clear()
  }
}
