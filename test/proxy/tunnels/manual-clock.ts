/** A clock that moves only when told. */
import type { Clock } from '../../../proxy/clock.ts'

export class ManualClock implements Clock {
  #wall: number
  #monotonic = 1000

  constructor(wall = Date.UTC(2026, 0, 1, 12)) {
    this.#wall = wall
  }

  readonly wallMs = (): number => this.#wall
  readonly monotonicMs = (): number => this.#monotonic

  advance(ms: number): void {
    this.#wall += ms
    this.#monotonic += ms
  }

  /** The wall clock alone is set, as an operator or NTP would. */
  jump(ms: number): void {
    this.#wall += ms
  }
}
