/** Reads a file line by line with bounded memory, and says what is left at its end. */
import { open } from 'node:fs/promises'
import { SallyportError } from '../../policies/error.ts'
import { errorCode } from './segment.ts'

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
 * The lines of `path` from `offset` on, to where the file ends now.
 * @throws SallyportError `SALLYPORT_AUDIT_UNREADABLE`
 */
export async function* readLines(
  path: string,
  offset = 0,
  signal?: AbortSignal,
): AsyncGenerator<LineBatch, void, undefined> {
  const file = await open(path, 'r').catch((error: unknown) => {
    throw new SallyportError(
      'SALLYPORT_AUDIT_UNREADABLE',
      `audit log \`${path}\` can't be read (${errorCode(error)})`,
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
      const { bytesRead } = await file.read(buffer, kept, CHUNK_BYTES, position)
      if (bytesRead === 0) return
      position += bytesRead
      const view = buffer.subarray(0, kept + bytesRead)
      const skipped = isSkipping ? view.indexOf(10) + 1 : 0
      const lines: Buffer[] = []
      let start = skipped
      if (!isSkipping || skipped > 0) {
        isSkipping = false
        for (let end = view.indexOf(10, start); end !== -1; end = view.indexOf(10, start)) {
          lines.push(view.subarray(start, end + 1))
          start = end + 1
        }
        endOffset = position - (view.length - start)
        if (view.length - start >= MAX_LINE_BYTES) {
          lines.push(view.subarray(start, start + MAX_LINE_BYTES))
          isSkipping = true
        }
      }
      yield { lines, endOffset, restBytes: position - endOffset }
      kept = isSkipping ? 0 : view.length - start
      if (kept > 0) buffer.copyWithin(0, start, view.length)
    }
  } finally {
    await file.close()
  }
}
