/** Tries several ways to one end, each a little after the last, and keeps the first that works. Knows nothing of networks. */
import { type Member, Roster } from '../roster.ts'

/** Starts one attempt; `settle` is called at most once, later or at once. Returns what gives the attempt up. */
export type Attempt<T, R> = (item: T, settle: (outcome: R) => void) => () => void

/** How a race is run. */
export interface RaceOptions<R> {
  /** From the start of an attempt to the start of the next, unless it fails before. */
  readonly delayMs: number
  /** For all of it. */
  readonly timeoutMs: number
  readonly isWin: (outcome: R) => boolean
  readonly signal?: AbortSignal | undefined
}

/** How a race ended. */
export interface RaceResult<R> {
  readonly winner: R | undefined
  /** Every attempt that failed, in the order in which they did. */
  readonly failures: readonly R[]
  /** Whether time ran out with attempts still open. */
  readonly timedOut: boolean
}

/**
 * Runs attempts over `items` in order: the next one starts when one fails, or `delayMs` after the last start. The first win gives up all others.
 * @throws (rejects) the signal's reason when it aborts; every attempt is given up then
 * @see RFC 8305 section 5
 */
export function raceStaggered<T, R>(
  items: readonly T[],
  attempt: Attempt<T, R>,
  options: RaceOptions<R>,
): Promise<RaceResult<R>> {
  return new Promise((resolve, reject) => {
    if (options.signal?.aborted === true) reject(reasonOf(options.signal))
    else new Race(items, attempt, options, resolve, reject).startNext()
  })
}

interface Waiter extends Member {
  readonly abort: () => void
}

/** What gives up an attempt, by its place; `undefined` before it has begun and once it has settled. */
type Open = ((() => void) | undefined)[]

class Race<T, R> implements Waiter {
  rosterPlace = -1
  readonly #items: readonly T[]
  readonly #attempt: Attempt<T, R>
  readonly #options: RaceOptions<R>
  readonly #resolve: (result: RaceResult<R>) => void
  readonly #reject: (reason: Error) => void
  readonly #waiting: Roster<Waiter> | undefined
  readonly #deadline: NodeJS.Timeout
  readonly #open: Open = []
  readonly #failures: R[] = []
  #next = 0
  #ended = false
  #stagger: NodeJS.Timeout | undefined

  constructor(
    items: readonly T[],
    attempt: Attempt<T, R>,
    options: RaceOptions<R>,
    resolve: (result: RaceResult<R>) => void,
    reject: (reason: Error) => void,
  ) {
    this.#items = items
    this.#attempt = attempt
    this.#options = options
    this.#resolve = resolve
    this.#reject = reject
    this.#deadline = setTimeout(endLate, options.timeoutMs, this)
    this.#waiting = options.signal && waitingFor(options.signal)
    this.#waiting?.add(this)
  }

  startNext(): void {
    clearTimeout(this.#stagger)
    const place = this.#next
    const item = this.#items[place]
    if (item === undefined) {
      if (this.#open.every((giveUp) => giveUp === undefined)) this.end(undefined, false)
      return
    }
    this.#next++
    if (this.#next < this.#items.length) this.#stagger = setTimeout(() => this.startNext(), this.#options.delayMs)
    const mine = { isSettled: false }
    const giveUp = this.#attempt(item, (outcome) => {
      if (mine.isSettled || this.#ended) return
      mine.isSettled = true
      this.#open[place] = undefined
      if (this.#options.isWin(outcome)) {
        this.end(outcome, false)
        return
      }
      this.#failures.push(outcome)
      this.startNext()
    })
    // An attempt that settled at once has nothing left to give up.
    if (!mine.isSettled) this.#open[place] = giveUp
  }

  end(winner: R | undefined, timedOut: boolean): void {
    if (this.#ended) return
    this.#release()
    this.#resolve({ winner, failures: this.#failures, timedOut })
  }

  abort(): void {
    this.#release()
    this.#reject(reasonOf(this.#options.signal))
  }

  #release(): void {
    this.#ended = true
    clearTimeout(this.#stagger)
    clearTimeout(this.#deadline)
    this.#waiting?.remove(this)
    for (const giveUp of this.#open) giveUp?.()
    this.#open.length = 0
  }
}

function endLate(race: { readonly end: (winner: undefined, timedOut: boolean) => void }): void {
  race.end(undefined, true)
}

/** Who is to be told when a signal aborts. Many races share one signal, and a listener for each would cost more than all else in a race. */
const waitingFors = new WeakMap<AbortSignal, Roster<Waiter>>()

function waitingFor(signal: AbortSignal): Roster<Waiter> {
  const known = waitingFors.get(signal)
  if (known) return known
  const waiting = new Roster<Waiter>()
  waitingFors.set(signal, waiting)
  signal.addEventListener('abort', () => waiting.forEach((waiter) => waiter.abort()), { once: true })
  return waiting
}

/** What an aborted signal rejects with, always an `Error`. */
export function reasonOf(signal: AbortSignal | undefined): Error {
  return signal?.reason instanceof Error ? signal.reason : new DOMException('the operation was aborted', 'AbortError')
}
