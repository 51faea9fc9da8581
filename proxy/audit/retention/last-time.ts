/** When the last line of a file happened. */
import { timeOf } from '../match.ts'
import { openSegment } from '../open-segment.ts'
import { MAX_LINE_BYTES } from '../read-lines.ts'

/** Milliseconds since the epoch; undefined when the end of the file says none. */
export async function lastTimeMs(path: string): Promise<number | undefined> {
  const file = await openSegment(path)
  try {
    const { size } = await file.stat()
    const buffer = Buffer.alloc(Math.min(size, MAX_LINE_BYTES))
    await file.read(buffer, 0, buffer.length, size - buffer.length)
    const lines = buffer.toString('latin1').split('\n')
    const times = lines.slice(-3).map((line) => Date.parse(timeOf(line)))
    const last = times.findLast((time) => !Number.isNaN(time))
    return last
  } finally {
    await file.close()
  }
}
