/**
 * Verifies few signatures at a time, so that a flood is judged by its first failures before the rest of it is verified. The queue is bounded.
 */

/** Signatures in work at once: two for each thread of Node's pool. */
const IN_WORK = 8

/** Tokens that wait for their turn; at 0.15 ms each they wait 0.6 s at most. */
const MAX_QUEUED = 4_096

/** Runs work in turn. */
export interface VerifyGate {
  /** Resolves when it is the caller's turn, with the function that gives the turn back; `undefined` when the queue is full. */
  readonly enter: () => Promise<() => void> | undefined
}

/** A gate; first come, first served. */
export function createVerifyGate(inWork = IN_WORK, maxQueued = MAX_QUEUED): VerifyGate {
  let working = 0
  const queue: (() => void)[] = []
  let first = 0

  function leave(): void {
    const next = queue[first]
    if (next === undefined) {
      working--
      return
    }
    first++
    if (first === queue.length || first > maxQueued) {
      queue.splice(0, first)
      first = 0
    }
    next()
  }

  return {
    enter: () => {
      if (working < inWork) {
        working++
        return Promise.resolve(leave)
      }
      if (queue.length - first >= maxQueued) return undefined
      return new Promise((resolve) => queue.push(() => resolve(leave)))
    },
  }
}
