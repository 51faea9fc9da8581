/** Where the log of an instance ends at the moment, read off its newest file, for the lag of sinks. */
import { parseLine } from '../match.ts'
import { openSegment } from '../open-segment.ts'
import { MAX_LINE_BYTES } from '../read-lines.ts'
import { listSegments } from '../segments.ts'

/** Number of the last whole line; undefined when there is none, or it can't be read now. */
export async function lastSeq(folder: string, instance: string): Promise<number | undefined> {
  try {
    for (const { path } of listSegments(folder)
      .filter((segment) => segment.instance === instance)
      .slice(-2)
      .reverse()) {
      const seq = await lastSeqIn(path)
      if (seq !== undefined) return seq
    }
  } catch {
    // Removed since it was listed, or not readable: the sinks say so themselves.
  }
  return undefined
}

async function lastSeqIn(path: string): Promise<number | undefined> {
  const file = await openSegment(path)
  try {
    const { size } = await file.stat()
    for (const length of [4096, MAX_LINE_BYTES]) {
      const buffer = Buffer.alloc(Math.min(size, length))
      await file.read(buffer, 0, buffer.length, size - buffer.length)
      const end = buffer.lastIndexOf(10)
      const start = end <= 0 ? -1 : buffer.lastIndexOf(10, end - 1)
      if (end === -1 || (start === -1 && buffer.length < size)) continue
      return parseLine(buffer.toString('latin1', start + 1, end))?.seq
    }
    return undefined
  } finally {
    await file.close()
  }
}
