/** Work that must not overlap. */

/** What runs each piece of work when those before it are through, however they ended. */
export function turns(): <T>(work: () => Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve()
  return (work) => {
    const result = last.then(work)
    last = result.catch(() => undefined)
    return result
  }
}
