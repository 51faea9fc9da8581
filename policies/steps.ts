/** Work that may be long, in small steps: whoever also serves connections does that in between. */

/** Yields after at most about a millisecond, again and again, and ends with its result. */
export type Steps<T> = Generator<undefined, T, undefined>

/** Does all of it at once. */
export function finish<T>(steps: Generator<unknown, T, undefined>): T {
  for (;;) {
    const step = steps.next()
    if (step.done === true) return step.value
  }
}
