/** Time, through a door: tests bring their own. */

/** Where the gateway reads the time. */
export interface Clock {
  /** Milliseconds since the epoch; may jump. For tokens and audit lines. */
  readonly wallMs: () => number
  /** Milliseconds since an arbitrary start; never goes back. For timeouts and durations. */
  readonly monotonicMs: () => number
}

/** The machine's clocks. */
export const systemClock: Clock = { wallMs: () => Date.now(), monotonicMs: () => performance.now() }
