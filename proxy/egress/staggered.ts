/** Tries several ways to one end, each a little after the last, and keeps the first that works. Knows nothing of networks. */

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
  const { signal, delayMs, timeoutMs, isWin } = options
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) {
      reject(reasonOf(signal))
      return
    }
    const open = new Map<number, () => void>()
    const failures: R[] = []
    let next = 0
    let ended = false
    let stagger: NodeJS.Timeout | undefined
    const deadline = setTimeout(() => end({ winner: undefined, failures, timedOut: true }), timeoutMs)
    const onAbort = () => {
      release()
      reject(reasonOf(signal))
    }
    const waiting = signal && waitingFor(signal)
    waiting?.add(onAbort)
    startNext()

    function startNext(): void {
      clearTimeout(stagger)
      const item = items[next]
      if (item === undefined) {
        if (open.size === 0) end({ winner: undefined, failures, timedOut: false })
        return
      }
      const place = next++
      const mine = { isSettled: false }
      if (next < items.length) stagger = setTimeout(startNext, delayMs)
      const giveUp = attempt(item, (outcome) => {
        if (mine.isSettled || ended) return
        mine.isSettled = true
        open.delete(place)
        if (isWin(outcome)) {
          end({ winner: outcome, failures, timedOut: false })
          return
        }
        failures.push(outcome)
        startNext()
      })
      // An attempt that settled at once has nothing left to give up.
      if (!mine.isSettled) open.set(place, giveUp)
    }

    function end(result: RaceResult<R>): void {
      if (ended) return
      release()
      resolve(result)
    }

    function release(): void {
      ended = true
      clearTimeout(stagger)
      clearTimeout(deadline)
      waiting?.delete(onAbort)
      for (const giveUp of open.values()) giveUp()
      open.clear()
    }
  })
}

/** Who is to be told when a signal aborts. Many races share one signal, and a listener for each would cost more than all else in a race. */
const waitingFors = new WeakMap<AbortSignal, Set<() => void>>()

function waitingFor(signal: AbortSignal): Set<() => void> {
  const known = waitingFors.get(signal)
  if (known) return known
  const waiting = new Set<() => void>()
  waitingFors.set(signal, waiting)
  signal.addEventListener('abort', () => [...waiting].forEach((onAbort) => onAbort()), { once: true })
  return waiting
}

/** What an aborted signal rejects with, always an `Error`. */
export function reasonOf(signal: AbortSignal | undefined): Error {
  return signal?.reason instanceof Error ? signal.reason : new DOMException('the operation was aborted', 'AbortError')
}
