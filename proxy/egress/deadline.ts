/** One limit of time for several steps in a row, and the caller's own wish to stop. */
import { reasonOf } from './staggered.ts'

/** What {@link Deadline.before} gives when time ran out first. */
export const LATE = Symbol('late')

/** Of one operation. */
export interface Deadline {
  /** The caller's. */
  readonly signal: AbortSignal | undefined
  /** At least 1. */
  readonly remainingMs: () => number
  /** The promise's value, or {@link LATE}. @throws (rejects) the signal's reason when it aborts, or what the promise rejects with */
  readonly before: <T>(promise: Promise<T>) => Promise<T | typeof LATE>
}

/** Runs the steps under one limit, and says how long they took. The steps themselves free what they opened. */
export async function withDeadline<R extends object>(
  options: { readonly timeoutMs: number; readonly signal?: AbortSignal | undefined },
  steps: (deadline: Deadline) => Promise<R>,
): Promise<R & { readonly connectMs: number }> {
  const { timeoutMs, signal } = options
  if (signal?.aborted === true) throw reasonOf(signal)
  const startedMs = performance.now()
  let timer: NodeJS.Timeout | undefined
  let onAbort = (): void => undefined
  const late = new Promise<typeof LATE>((resolve, reject) => {
    timer = setTimeout(() => resolve(LATE), timeoutMs)
    onAbort = () => reject(reasonOf(signal))
  })
  // Nobody may be waiting at the moment of an abort; who waits next hears of it.
  late.catch(() => undefined)
  signal?.addEventListener('abort', onAbort, { once: true })
  try {
    const result = await steps({
      signal,
      remainingMs: () => Math.max(1, timeoutMs - (performance.now() - startedMs)),
      before: (promise) => Promise.race([promise, late]),
    })
    return { ...result, connectMs: performance.now() - startedMs }
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', onAbort)
  }
}
