/** How far a sink has got, kept on the disk: a place in the audit files, so that nothing of them is copied and nothing is lost over a restart. */
import { readFileSync } from 'node:fs'
import { z } from 'zod'
import { writeWhole } from '../../state/folder.ts'

/** A place between two lines of the log of one instance. */
export interface Position {
  /** Number of the file; 0 before the first one. */
  readonly segment: number
  /** Bytes of that file before this place. */
  readonly offset: number
  /** The line before this place; 0 when there is none. */
  readonly seq: number
}

/** Before the oldest line there is. */
export const BEGINNING: Position = { segment: 0, offset: 0, seq: 0 }

const positionSchema = z.strictObject({
  segment: z.int().nonnegative(),
  offset: z.int().nonnegative(),
  seq: z.int().nonnegative(),
})

/**
 * The kept position; the beginning where none was kept. What can't be read as one counts as none, so that a sink repeats lines rather than leaves some out:
 * `isDamaged` says so.
 */
export function readPosition(path: string): { readonly position: Position; readonly isDamaged: boolean } {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch {
    return { position: BEGINNING, isDamaged: false }
  }
  try {
    return { position: positionSchema.parse(JSON.parse(text)), isDamaged: false }
  } catch {
    return { position: BEGINNING, isDamaged: true }
  }
}

/**
 * Keeps a position: whole or not at all, on the disk when this resolves.
 * @throws SallyportError `SALLYPORT_STATE_UNUSABLE`
 */
export function keepPosition(path: string, { segment, offset, seq }: Position): Promise<void> {
  return writeWhole(path, `${JSON.stringify({ segment, offset, seq })}\n`)
}
