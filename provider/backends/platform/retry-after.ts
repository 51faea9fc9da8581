/** When to ask a platform again: what it says itself, or a wait that grows, with chance in it so that many do not come back at once. */

/** How long is waited between two tries when the platform does not say. */
export interface RetryPace {
  /** Milliseconds before the second try, at most; doubled for each further one. 500 by default. */
  readonly firstMs: number
  /** 10 000 by default. */
  readonly longestMs: number
  /** From 0 to 1; `Math.random` by default. */
  readonly random: () => number
}

/** What holds when nothing is said. */
export const DEFAULT_PACE: RetryPace = { firstMs: 500, longestMs: 10_000, random: Math.random }

/**
 * Milliseconds of a `Retry-After` header: seconds or a date; undefined for none, or one that can't be read.
 * @see RFC 9110 section 10.2.3
 */
export function parseRetryAfter(value: string | undefined, nowMs: number): number | undefined {
  if (value === undefined) return undefined
  const text = value.trim()
  // More digits than any wait has.
  if (/^\d{1,9}$/.test(text)) return Number(text) * 1_000
  if (!/^[A-Z][a-z]+,? /.test(text)) return undefined
  const atMs = Date.parse(text)
  return Number.isNaN(atMs) ? undefined : Math.max(0, atMs - nowMs)
}

/** Milliseconds before the try after `tries`; never 0, so that a loop is no storm. */
export function backOffMs(tries: number, { firstMs, longestMs, random }: RetryPace): number {
  const ceiling = Math.min(longestMs, firstMs * 2 ** Math.min(tries - 1, 20))
  return Math.ceil(ceiling / 2 + (ceiling / 2) * random())
}
