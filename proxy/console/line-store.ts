/** The lines that the live view shows: the newest of them, bounded, taken in once a frame however many came. */
import { signal } from '@preact/signals'
import type { AuditLine } from '../audit/schema.ts'

/** A line with a name of its own among those that are shown. */
export interface ShownLine {
  readonly key: string
  readonly line: AuditLine
}

/** Lines kept. A line is about a kilobyte in memory. */
export const KEPT_LINES = 5_000

/** Made once for a stream. */
export class LineStore {
  /** What is shown, the newest last; another list after every change. */
  readonly shown = signal<readonly ShownLine[]>([])
  /** Nothing new is shown while it is held; it waits, bounded. */
  readonly held = signal(false)
  /** Lines that wait. */
  readonly waiting = signal(0)
  /** Lines that came in the last second. */
  readonly rate = signal(0)
  /** Lines that are not shown any more, or never were, since there were too many; all are in the log. */
  readonly passed = signal(0)
  readonly #matches: () => (line: AuditLine) => boolean
  #kept: ShownLine[] = []
  #pending: ShownLine[] = []
  #frame = 0
  #arrivals = 0
  readonly #clock: number

  /** `matches` gives the filter of the moment; after it changed call {@link LineStore.filter}. */
  constructor(matches: () => (line: AuditLine) => boolean) {
    this.#matches = matches
    this.#clock = window.setInterval(() => {
      this.rate.value = this.#arrivals
      this.#arrivals = 0
    }, 1_000)
  }

  /** The newest is 0. */
  at(index: number): ShownLine | undefined {
    return this.shown.value[this.shown.value.length - 1 - index]
  }

  readonly add = (line: AuditLine): void => {
    this.#arrivals += 1
    this.#pending.push({ key: `${line.instance}:${line.seq}`, line })
    // In a tab that nobody sees there are no frames.
    if (this.#pending.length > KEPT_LINES * 2) this.passed.value += this.#pending.splice(0, KEPT_LINES).length
    if (this.#frame === 0) this.#frame = requestAnimationFrame(this.#takeIn)
  }

  /** Stops or goes on. */
  hold(held: boolean): void {
    this.held.value = held
    if (!held && this.#frame === 0) this.#frame = requestAnimationFrame(this.#takeIn)
  }

  /** Looks at all kept lines again. */
  filter(): void {
    const matches = this.#matches()
    this.shown.value = this.#kept.filter(({ line }) => matches(line))
  }

  /** Forgets all lines. */
  clear(): void {
    this.#kept = []
    this.#pending = []
    this.shown.value = []
    this.waiting.value = 0
    this.passed.value = 0
  }

  close(): void {
    cancelAnimationFrame(this.#frame)
    clearInterval(this.#clock)
  }

  readonly #takeIn = (): void => {
    this.#frame = 0
    if (this.held.value) {
      if (this.#pending.length > KEPT_LINES)
        this.passed.value += this.#pending.splice(0, this.#pending.length - KEPT_LINES).length
      this.waiting.value = this.#pending.length
      return
    }
    const matches = this.#matches()
    this.#kept = this.#kept.concat(this.#pending)
    if (this.#kept.length > KEPT_LINES) {
      this.passed.value += this.#kept.length - KEPT_LINES
      this.#kept = this.#kept.slice(-KEPT_LINES)
    }
    const fresh = this.#pending.filter(({ line }) => matches(line))
    if (fresh.length > 0) this.shown.value = this.shown.value.concat(fresh).slice(-KEPT_LINES)
    this.#pending = []
    this.waiting.value = 0
  }
}
