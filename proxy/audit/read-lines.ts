/** Reads a file line by line with bounded memory, and says what is left at its end. */
import type { FileHandle } from 'node:fs/promises'
import { SallyportError } from '../../policies/error.ts'
import { isNoFile, openSegment } from './open-segment.ts'
import { whyUnreadable } from '../unreadable.ts'

/** Some lines in a row. The buffers are good only until the next batch is asked for. */
export interface LineBatch {
  /** With their newlines; one without is the beginning of a line that is too long. */
  readonly lines: readonly Buffer[]
  /** Where the line after the last one begins in the file. */
  readonly endOffset: number
  /** Bytes that were read after the last newline. */
  readonly restBytes: number
}

/** Longer than any line that the log writes. */
export const MAX_LINE_BYTES = 256 * 1024

const CHUNK_BYTES = 1 << 20

/**
 * The lines of `path` from `offset` on, to where the file ends now, or to `end` if that is earlier.
 * @throws SallyportError `SALLYPORT_AUDIT_UNREADABLE`
 */
export async function* readLines(
  path: string,
  offset = 0,
  signal?: AbortSignal,
  end = Infinity,
): AsyncGenerator<LineBatch, void, undefined> {
  const file = await openSegment(path).catch((error: unknown) => {
    throw new SallyportError(
      'SALLYPORT_AUDIT_UNREADABLE',
      `audit log \`${path}\` can't be read (${isNoFile(error) ? 'it is no file' : whyUnreadable(error)})`,
      { cause: error },
    )
  })
  try {
    const buffer = Buffer.allocUnsafe(CHUNK_BYTES + MAX_LINE_BYTES)
    let kept = 0
    let isSkipping = false
    let endOffset = offset
    for (let position = offset; ;) {
      signal?.throwIfAborted()
      const { length, isEnd } = await fill(
        file,
        buffer.subarray(kept, kept + Math.min(CHUNK_BYTES, end - position)),
        position,
      )
      if (length === 0) return
      // Whoever reads many files side by side waits with none of them open that is at its end.
      if (isEnd) await file.close()
      position += length
      const view = buffer.subarray(0, kept + length)
      const skipped = isSkipping ? view.indexOf(10) + 1 : 0
      const lines: Buffer[] = []
      let start = skipped
      if (!isSkipping || skipped > 0) {
        isSkipping = false
        for (let at = view.indexOf(10, start); at !== -1; at = view.indexOf(10, start)) {
          lines.push(view.subarray(start, at + 1))
          start = at + 1
        }
        endOffset = position - (view.length - start)
        if (view.length - start >= MAX_LINE_BYTES) {
          lines.push(view.subarray(start, start + MAX_LINE_BYTES))
          isSkipping = true
        }
      }
      yield { lines, endOffset, restBytes: position - endOffset }
      if (isEnd) return
      kept = isSkipping ? 0 : view.length - start
      if (kept > 0) buffer.copyWithin(0, start, view.length)
    }
  } finally {
    await file.close()
  }
}

/** Reads until the buffer is full, or the file ends for now. */
async function fill(
  file: FileHandle,
  buffer: Buffer,
  position: number,
): Promise<{ readonly length: number; readonly isEnd: boolean }> {
  for (let length = 0; length < buffer.length;) {
    const { bytesRead } = await file.read(buffer, length, buffer.length - length, position + length)
    if (bytesRead === 0) return { length, isEnd: true }
    length += bytesRead
  }
  return { length: buffer.length, isEnd: false }
}
