/** Many connections have work in one turn of the event loop: done one after the other, while its code is in the caches, it is cheaper than in between everything else. */

let waiting: Promise<void> | undefined

/** Resolves when all that came in with this turn of the event loop has been taken in; whoever asks in the same turn goes on right after the others. */
export function endOfTurn(): Promise<void> {
  return (waiting ??= new Promise((resolve) => {
    setImmediate(() => {
      waiting = undefined
      resolve()
    })
  }))
}
