/** The audit lines of what files of policies changed: in the order in which it came into force, and in slices, since thousands may change at once. */
import { inSlices, type Waits } from '../in-slices.ts'
import { fileChangeForAudit } from './policy-difference.ts'
import type { FileChange } from './tenant-files/file-layers.ts'

/** What a line says. */
export type FileChangeLine = ReturnType<typeof fileChangeForAudit> extends Generator<unknown, infer Line> ? Line : never

/** Returns what is told of each change, and calls `write` for each in its turn. */
export function writeInOrder(write: (line: FileChangeLine) => void): (change: FileChange) => void {
  let waiting: FileChange[] = []
  let isWriting = false

  function* writeAll(): Waits<void> {
    while (waiting.length > 0) {
      const changes = waiting
      waiting = []
      for (const change of changes) {
        write(yield* fileChangeForAudit(change))
        yield undefined
      }
    }
    isWriting = false
  }

  return (change) => {
    waiting.push(change)
    if (isWriting) return
    isWriting = true
    // Once all that changed together is here.
    void Promise.resolve().then(() => inSlices(writeAll()))
  }
}
