/** Reads the files of one instance from a position on, some lines at a time, over rotation, restarts, and files that somebody touched. Never writes. */
import { stat } from 'node:fs/promises'
import { parseLine } from '../match.ts'
import { openSegment } from '../open-segment.ts'
import { readLines } from '../read-lines.ts'
import type { AuditLine } from '../schema.ts'
import { listSegments, type SegmentFile } from '../segments.ts'
import type { Position } from './position.ts'

/** One line, on its way to a sink. */
export interface AuditRecord {
  readonly line: AuditLine
  /** The line as it is in the file, without its newline. */
  readonly text: string
  /** The place after it. */
  readonly end: Position
}

/** What was read. */
export interface ReadBatch {
  readonly records: readonly AuditRecord[]
  /** Lines that no file holds any more: their numbers were skipped, and no `gap` line says so. */
  readonly missing: number
  /** Lines that are none of a gateway's; they are passed over, and `sallyport audit verify` tells what became of the log. */
  readonly foreign: number
}

/** Most lines in a batch, and most bytes of text unless a single line has more. */
export interface BatchLimits {
  readonly records: number
  readonly bytes: number
}

interface Unparsed {
  readonly text: string
  readonly segment: number
  readonly endOffset: number
}

/** A cursor in the log of one instance. Holds a megabyte of text at most. */
export class LogReader {
  readonly #folder: string
  readonly #instance: string
  #position: Position
  /** Read, but not handed on. */
  #ahead: Unparsed[] = []
  #readTo: { segment: number; offset: number }
  /** The place in the file was not between two lines: it is read from its beginning, and what was handed on before is passed over. */
  #skipToSeq = 0

  constructor(folder: string, instance: string, position: Position) {
    this.#folder = folder
    this.#instance = instance
    this.#position = position
    this.#readTo = { segment: position.segment, offset: position.offset }
  }

  /** Goes on from another position. */
  seek(position: Position): void {
    this.#position = position
    this.#ahead = []
    this.#readTo = { segment: position.segment, offset: position.offset }
    this.#skipToSeq = 0
  }

  /**
   * The next lines; none at the end of the log.
   * @throws SallyportError `SALLYPORT_AUDIT_UNREADABLE`, or the system's error; the position stays
   */
  async next(limits: BatchLimits): Promise<ReadBatch> {
    if (this.#ahead.length === 0) await this.#readAhead()
    const records: AuditRecord[] = []
    let [taken, bytes, missing, foreign] = [0, 0, 0, 0]
    for (const { text, segment, endOffset } of this.#ahead) {
      if (records.length >= limits.records || (records.length > 0 && bytes + text.length > limits.bytes)) break
      taken += 1
      const line = parseLine(text)
      if (line?.instance !== this.#instance) {
        foreign += 1
        continue
      }
      if (line.seq <= this.#skipToSeq) continue
      missing += this.#missingBefore(line)
      bytes += text.length
      this.#position = { segment, offset: endOffset, seq: line.seq }
      records.push({ line, text, end: this.#position })
    }
    this.#ahead.splice(0, taken)
    return { records, missing, foreign }
  }

  #missingBefore(line: AuditLine): number {
    if (this.#position.seq === 0) return 0
    const told = line.kind === 'admin' && line.action === 'gap' ? (line.lost ?? 0) : 0
    return Math.max(0, line.seq - this.#position.seq - 1 - told)
  }

  async #readAhead(): Promise<void> {
    const segments = listSegments(this.#folder).filter(
      ({ instance, number }) => instance === this.#instance && number >= this.#readTo.segment,
    )
    // A file that was listed together with a later one is complete, so it is read to its end before the later one.
    for (const segment of segments) {
      if (segment.number > this.#readTo.segment) this.#readTo = { segment: segment.number, offset: 0 }
      if (await this.#readSome(segment)) return
    }
  }

  async #readSome({ path, number }: SegmentFile): Promise<boolean> {
    const { size } = await stat(path)
    if (size <= this.#readTo.offset) return false
    if (!(await isBetweenLines(path, this.#readTo.offset))) {
      this.#skipToSeq = this.#position.seq
      this.#readTo.offset = 0
    }
    for await (const { lines, endOffset } of readLines(path, this.#readTo.offset)) {
      let offset = this.#readTo.offset
      for (const line of lines) {
        offset += line.length
        this.#ahead.push({ text: line.toString('latin1', 0, line.length - 1), segment: number, endOffset: offset })
      }
      this.#readTo.offset = endOffset
      if (lines.length > 0) return true
    }
    return false
  }
}

async function isBetweenLines(path: string, offset: number): Promise<boolean> {
  if (offset === 0) return true
  const file = await openSegment(path)
  try {
    const { bytesRead, buffer } = await file.read(Buffer.alloc(1), 0, 1, offset - 1)
    return bytesRead === 1 && buffer[0] === 10
  } finally {
    await file.close()
  }
}
