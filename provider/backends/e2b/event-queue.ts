/** Events on their way from who has them to who reads them, a few at a time: a writer waits until there is room. */

/** One reader, one writer. */
export interface EventQueue<T> {
  /** Resolves when there is room for another. */
  readonly push: (event: T) => Promise<void>
  /** After all that was pushed: one last event, or an error. Nothing is taken afterwards. */
  readonly end: (last: T | undefined, error?: Error) => void
  readonly events: () => AsyncGenerator<T>
}

const ROOM = 16

/** Makes one. */
export function createEventQueue<T>(): EventQueue<T> {
  const waiting: T[] = []
  let isOver = false
  let fault: Error | undefined
  let changed = Promise.withResolvers<undefined>()
  let room = Promise.withResolvers<undefined>()
  const wake = (): void => {
    changed.resolve(undefined)
    changed = Promise.withResolvers()
  }
  const releaseWriter = (): void => {
    room.resolve(undefined)
    room = Promise.withResolvers()
  }
  return {
    async push(event) {
      if (isOver) return
      waiting.push(event)
      wake()
      if (waiting.length > ROOM) await room.promise
    },
    end(last, error) {
      if (isOver) return
      isOver = true
      fault = error
      if (last !== undefined) waiting.push(last)
      wake()
      releaseWriter()
    },
    async *events() {
      try {
        for (;;) {
          const event = waiting.shift()
          if (event !== undefined) {
            if (waiting.length <= ROOM) releaseWriter()
            yield event
          } else if (fault !== undefined) throw fault
          else if (isOver) return
          else await changed.promise
        }
      } finally {
        isOver = true
        waiting.length = 0
        releaseWriter()
      }
    },
  }
}
