/** Many connections have work in one turn of the event loop: done one after the other, while its code is in the caches, it is cheaper than in between everything else. */

/** No more go on in one turn than this: the others' bytes wait meanwhile. */
const AT_ONCE = 32

/** The last of those that wait, and how many it still takes. */
let waiting: Promise<void> | undefined
let places = 0

/**
 * Resolves when all that came in with this turn of the event loop has been taken in; whoever asks in the same turn goes on right after the others, or in
 * one of the next turns when there are many.
 */
export function endOfTurn(): Promise<void> {
  if (waiting === undefined || places === 0) {
    const own = waiting === undefined ? nextImmediate() : waiting.then(nextImmediate)
    void own.then(() => {
      if (waiting === own) waiting = undefined
    })
    waiting = own
    places = AT_ONCE
  }
  places--
  return waiting
}

function nextImmediate(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
