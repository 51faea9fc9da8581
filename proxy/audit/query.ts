/** Finds lines in a log, in order of time, streaming with bounded memory. Trusts nothing that it reads and proves nothing; see verify.ts. */
import { z } from 'zod'
import { SallyportError } from '../../policies/error.ts'
import { closeSync, readSync } from 'node:fs'
import type { LineIndex } from './index/line-index.ts'
import { type AuditFilters, compileFilters, parseLine, timeOf } from './match.ts'
import { openSegmentSync } from './open-segment.ts'
import { MAX_LINE_BYTES, readLines } from './read-lines.ts'
import type { AuditLine } from './schema.ts'
import { type SegmentFile, segmentsByInstance } from './segments.ts'

export type { AuditFilters } from './match.ts'

/** What {@link queryAudit} looks for. */
export interface QueryOptions {
  /** Folder, or one file of the log. */
  readonly path: string
  readonly filters?: AuditFilters
  /** Most lines given back. Default: all. */
  readonly limit?: number
  /** From an earlier {@link Found}: goes on after that line. */
  readonly cursor?: string
  /** Of the folder, from `openLineIndex`: lines are then looked up. Absent: all files are read. */
  readonly index?: LineIndex | undefined
  readonly signal?: AbortSignal
}

/** One line that was found. */
export interface Found {
  readonly line: AuditLine
  /** The line as it is in the file, without its newline. */
  readonly text: string
  /** Where to go on after this line; text that is safe in a URL. */
  readonly cursor: () => string
}

/** For each instance: number of the file, and offset after the last line that was given back. */
type Positions = ReadonlyMap<string, readonly [number, number]>

const NOWHERE: Positions = new Map()

const positionsSchema = z.record(z.string(), z.tuple([z.int().positive(), z.int().nonnegative()]))

/**
 * The lines for which all filters hold, those of several instances merged by time. A line that is only half written is left out.
 * @throws SallyportError `SALLYPORT_AUDIT_UNREADABLE`: no such folder or file, or a cursor that is none
 */
export async function* queryAudit({
  path,
  filters = {},
  limit = Infinity,
  cursor,
  index,
  signal,
}: QueryOptions): AsyncGenerator<Found, void, undefined> {
  let positions = cursor === undefined ? NOWHERE : parseCursor(cursor)
  const sources = [...segmentsByInstance(path, filters.instance)].map(([instance, segments]) =>
    index === undefined
      ? scan(segments, filters, positions, signal)
      : lookUp(index, instance, segments, filters, positions, signal),
  )
  let count = 0
  try {
    for await (const { hit, line } of merge(sources)) {
      if (count >= limit) return
      count += 1
      const now = (positions = new Map(positions).set(hit.instance, [hit.number, hit.endOffset]))
      yield { line, text: hit.text, cursor: () => printCursor(now) }
    }
  } finally {
    for (const source of sources) await source.return()
  }
}

interface Hit {
  readonly text: string
  readonly time: string
  readonly instance: string
  readonly number: number
  readonly endOffset: number
}

async function* scan(
  segments: readonly SegmentFile[],
  filters: AuditFilters,
  positions: Positions,
  signal: AbortSignal | undefined,
): AsyncGenerator<Hit, void, undefined> {
  const matches = compileFilters(filters)
  for (const { path, instance, number } of segments) {
    const [fromNumber, fromOffset] = positions.get(instance) ?? [0, 0]
    if (number < fromNumber) continue
    let offset = number === fromNumber ? fromOffset : 0
    for await (const { lines, endOffset } of readLines(path, offset, signal)) {
      const hits: Hit[] = []
      for (const bytes of lines) {
        offset += bytes.length
        const text = bytes.toString('latin1', 0, bytes.length - 1)
        if (matches(text)) hits.push({ text, time: timeOf(text), instance, number, endOffset: offset })
      }
      offset = endOffset
      yield* hits
    }
  }
}

/** The same by the index, as far as it goes; then, or when it turns out not to fit the files, by reading them from there on. */
async function* lookUp(
  index: LineIndex,
  instance: string,
  segments: readonly SegmentFile[],
  filters: AuditFilters,
  positions: Positions,
  signal: AbortSignal | undefined,
): AsyncGenerator<Hit, void, undefined> {
  const matches = compileFilters(filters)
  const paths = new Map(segments.map(({ number, path }) => [number, path]))
  const [fromNumber, fromOffset] = positions.get(instance) ?? [0, 0]
  let place = { number: fromNumber, offset: fromOffset }
  let file: { readonly number: number; readonly fd: number } | undefined
  let isStale = false
  try {
    for (const { number, offset, length } of index.places(instance, filters, place)) {
      signal?.throwIfAborted()
      if (file?.number !== number) {
        if (file !== undefined) closeSync(file.fd)
        file = { number, fd: openSegmentSync(paths.get(number) ?? '') }
      }
      const text = readLineAt(file.fd, offset, length)
      if (text === undefined) {
        isStale = true
        break
      }
      place = { number, offset: offset + length }
      if (matches(text)) yield { text, time: timeOf(text), instance, number, endOffset: place.offset }
    }
    const end = index.end(instance)
    const isFurther = end.number > place.number || (end.number === place.number && end.offset > place.offset)
    if (!isStale && isFurther) place = end
  } catch {
    signal?.throwIfAborted()
    // A file that went, or an index that broke meanwhile: what is not given back yet is read.
  } finally {
    if (file !== undefined) closeSync(file.fd)
  }
  yield* scan(segments, filters, new Map([[instance, [place.number, place.offset]]]), signal)
}

/** Undefined when no whole line is there. */
function readLineAt(fd: number, offset: number, length: number): string | undefined {
  const buffer = Buffer.allocUnsafe(Math.min(length, MAX_LINE_BYTES))
  const count = readSync(fd, buffer, 0, buffer.length, offset)
  return count === length && buffer.indexOf(10) === length - 1 ? buffer.toString('latin1', 0, length - 1) : undefined
}

/** By time; a line never comes before an earlier one of its own instance. */
async function* merge(
  sources: readonly AsyncGenerator<Hit, void, undefined>[],
): AsyncGenerator<{ readonly hit: Hit; readonly line: AuditLine }, void, undefined> {
  // One after the other: of many instances no more files are open at a time than there are long ones.
  const heads: IteratorResult<Hit, void>[] = []
  for (const source of sources) heads.push(await source.next())
  for (;;) {
    const [first, earliest] = earliestOf(heads)
    const source = sources[first]
    if (earliest === undefined || source === undefined) return
    const line = parseLine(earliest.text)
    if (line !== undefined) yield { hit: earliest, line }
    heads[first] = await source.next()
  }
}

function earliestOf(heads: readonly IteratorResult<Hit, void>[]): readonly [index: number, hit: Hit | undefined] {
  let found: readonly [number, Hit | undefined] = [-1, undefined]
  for (const [index, { value, done }] of heads.entries()) {
    const [, earliest] = found
    if (done !== true && (earliest === undefined || value.time < earliest.time)) found = [index, value]
  }
  return found
}

function printCursor(positions: Positions): string {
  return Buffer.from(JSON.stringify(Object.fromEntries(positions))).toString('base64url')
}

/** Whether a text is a cursor of an audit query. */
export function isCursor(text: string): boolean {
  try {
    parseCursor(text)
    return true
  } catch {
    return false
  }
}

function parseCursor(cursor: string): Positions {
  try {
    return new Map(Object.entries(positionsSchema.parse(JSON.parse(Buffer.from(cursor, 'base64url').toString()))))
  } catch {
    throw new SallyportError('SALLYPORT_AUDIT_UNREADABLE', `\`${cursor.slice(0, 80)}\` is no cursor of an audit query`)
  }
}
