/** Shows the last lines of a log and follows it while it grows, over rotation and restarts. */
import { stat } from 'node:fs/promises'
import { setTimeout as wait } from 'node:timers/promises'
import { type AuditFilters, compileFilters, parseLine, timeOf } from './match.ts'
import { MAX_LINE_BYTES, readLines } from './read-lines.ts'
import type { AuditLine } from './schema.ts'
import { type SegmentFile, segmentsByInstance } from './segments.ts'

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
/** Of the lines that come first: as many as a thousand ordinary ones, several times. */
const MAX_FIRST_BYTES = 4 << 20

/** How far an instance was read. */
interface Place {
  number: number
  offset: number
}

/**
 * The last lines, then every new one, each instance in its own order. Ends when `signal` aborts.
 * @throws SallyportError `SALLYPORT_AUDIT_UNREADABLE`: no such folder, or too many instances in it
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
  let last: readonly string[] = []
  for (const [instance, segments] of segmentsByInstance(path, filters.instance)) {
    const place = { number: 0, offset: 0 }
    places.set(instance, place)
    if (lines === 0) await skipToEnd(segments.at(-1), place)
    const own = new LastTexts(lines)
    for await (const text of readNew(segments.slice(-LOOKED_BACK_FILES), place, signal))
      if (lines > 0 && matches(text)) own.add(text)
    // Together no more is kept than of one.
    const together = new LastTexts(lines)
    for (const text of [...last, ...own.texts()].sort(byTime)) together.add(text)
    last = together.texts()
  }
  yield* parsed(last)
  while (follow && (await pause(pollMs, signal))) {
    for (const [instance, segments] of listQuietly(path, filters.instance)) {
      const place = places.get(instance) ?? { number: 0, offset: 0 }
      places.set(instance, place)
      for await (const text of readNew(segments, place, signal)) if (matches(text)) yield* parsed([text])
    }
  }
}

/** A file that was listed together with a later one is complete, so it is read to its end before the later one. */
async function* readNew(
  segments: readonly SegmentFile[],
  place: Place,
  signal: AbortSignal | undefined,
): AsyncGenerator<string, void, undefined> {
  for (const { path, number } of segments) {
    if (number < place.number) continue
    if (number > place.number) Object.assign(place, { number, offset: 0 })
    try {
      if ((await stat(path)).size <= place.offset) continue
      for await (const { lines, endOffset } of readLines(path, place.offset, signal)) {
        const texts = lines.map((line) => line.toString('latin1', 0, line.length - 1))
        place.offset = endOffset
        yield* texts
      }
    } catch {
      if (signal?.aborted === true) return
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

/** The last texts, as many as are wanted and no more bytes than may be kept. */
class LastTexts {
  readonly #most: number
  #texts: string[] = []
  #bytes = 0

  constructor(most: number) {
    this.#most = most
  }

  add(text: string): void {
    this.#texts.push(text)
    this.#bytes += text.length
    while (this.#texts.length > this.#most || this.#bytes > MAX_FIRST_BYTES)
      this.#bytes -= this.#texts.shift()?.length ?? 0
  }

  texts(): readonly string[] {
    return this.#texts
  }
}

/** Behind the last whole line of the newest file: nobody asked for what is before. */
async function skipToEnd(newest: SegmentFile | undefined, place: Place): Promise<void> {
  if (newest === undefined) return
  try {
    const { size } = await stat(newest.path)
    const from = Math.max(0, size - MAX_LINE_BYTES)
    for await (const { endOffset } of readLines(newest.path, from))
      Object.assign(place, { number: newest.number, offset: endOffset })
  } catch {
    // Gone since it was listed: what comes next is all new.
  }
}

function listQuietly(path: string, instance: string | undefined): Iterable<[string, readonly SegmentFile[]]> {
  try {
    return segmentsByInstance(path, instance)
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
