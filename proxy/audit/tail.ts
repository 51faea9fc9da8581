/** Shows the last lines of a log and follows it while it grows, over rotation and restarts. */
import { setTimeout as wait } from 'node:timers/promises'
import { type AuditFilters, compileFilters, parseLine, timeOf } from './match.ts'
import { readLines } from './read-lines.ts'
import type { AuditLine } from './schema.ts'
import { listSegments, type SegmentFile, segmentsAt } from './segments.ts'

/** What {@link tailAudit} follows. */
export interface TailOptions {
  /** Folder of the log. */
  readonly path: string
  readonly filters?: AuditFilters
  /** How many of the last matching lines come first; they are looked for in the last four files of each instance. Default 10. */
  readonly lines?: number
  /** Goes on with new lines until `signal` aborts. Default true. */
  readonly follow?: boolean
  /** How often the files are looked at. Default 200 ms. */
  readonly pollMs?: number
  readonly signal?: AbortSignal
}

/** One line of the tail. */
export interface Tailed {
  readonly line: AuditLine
  /** The line as it is in the file, without its newline. */
  readonly text: string
}

const LOOKED_BACK_FILES = 4

/** How far an instance was read. */
interface Place {
  number: number
  offset: number
}

/**
 * The last lines, then every new one, each instance in its own order. Ends when `signal` aborts.
 * @throws SallyportError `SALLYPORT_AUDIT_UNREADABLE`: no such folder
 */
export async function* tailAudit({
  path,
  filters = {},
  lines = 10,
  follow = true,
  pollMs = 200,
  signal,
}: TailOptions): AsyncGenerator<Tailed, void, undefined> {
  const matches = compileFilters(filters)
  const places = new Map<string, Place>()
  const last: string[] = []
  for (const [instance, segments] of Map.groupBy(segmentsAt(path), (segment) => segment.instance)) {
    const place = { number: 0, offset: 0 }
    places.set(instance, place)
    const own: string[] = []
    for await (const text of readNew(segments.slice(-LOOKED_BACK_FILES), place)) {
      if (!matches(text)) continue
      own.push(text)
      if (own.length > lines) own.shift()
    }
    last.push(...own)
  }
  last.sort(byTime)
  yield* parsed(lines === 0 ? [] : last.slice(-lines))
  while (follow && (await pause(pollMs, signal))) {
    for (const [instance, segments] of Map.groupBy(listQuietly(path), (segment) => segment.instance)) {
      const place = places.get(instance) ?? { number: 0, offset: 0 }
      places.set(instance, place)
      for await (const text of readNew(segments, place)) if (matches(text)) yield* parsed([text])
    }
  }
}

/** A file that was listed together with a later one is complete, so it is read to its end before the later one. */
async function* readNew(segments: readonly SegmentFile[], place: Place): AsyncGenerator<string, void, undefined> {
  for (const { path, number } of segments) {
    if (number < place.number) continue
    if (number > place.number) Object.assign(place, { number, offset: 0 })
    try {
      for await (const { lines, endOffset } of readLines(path, place.offset)) {
        const texts = lines.map((line) => line.toString('latin1', 0, line.length - 1))
        place.offset = endOffset
        yield* texts
      }
    } catch {
      // Removed since it was listed; what the gateway puts back is read when it is there again.
    }
  }
}

function* parsed(texts: readonly string[]): Generator<Tailed, void, undefined> {
  for (const text of texts) {
    const line = parseLine(text)
    if (line !== undefined) yield { line, text }
  }
}

function byTime(left: string, right: string): number {
  const [leftTime, rightTime] = [timeOf(left), timeOf(right)]
  return leftTime < rightTime ? -1 : Number(leftTime > rightTime)
}

function listQuietly(path: string): readonly SegmentFile[] {
  try {
    return listSegments(path)
  } catch {
    return []
  }
}

async function pause(ms: number, signal: AbortSignal | undefined): Promise<boolean> {
  try {
    await wait(ms, undefined, signal === undefined ? {} : { signal })
    return true
  } catch {
    return false
  }
}
