/** Shows the last lines of a log and follows it while it grows, over rotation and restarts. */
import { statSync } from 'node:fs'
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
 * The last lines there are at the moment of the call, then every later one, each instance in its own order. Ends when `signal` aborts.
 * What comes throws SallyportError `SALLYPORT_AUDIT_UNREADABLE`: no such folder, or too many instances in it.
 */
export function tailAudit(options: TailOptions): AsyncGenerator<Tailed, void, undefined> {
  // Not when the first line is asked for: whoever was told that it follows may count on what is written from then on.
  return tailFrom(notedEnds(options), options)
}

/** An instance as it is now. */
interface End {
  readonly segments: readonly SegmentFile[]
  /** Of its newest file. */
  readonly bytes: number
}

function notedEnds({ path, filters }: TailOptions): ReadonlyMap<string, End> | { readonly fault: unknown } {
  try {
    return new Map([...segmentsByInstance(path, filters?.instance)].map(([instance, segments]) => [instance, { segments, bytes: sizeOf(segments.at(-1)) }])) // prettier-ignore
  } catch (fault) {
    return { fault }
  }
}

/** None of a file that is gone: what comes next is all new. */
function sizeOf(newest: SegmentFile | undefined): number {
  return newest === undefined ? 0 : (statSync(newest.path, { throwIfNoEntry: false })?.size ?? 0)
}

async function* tailFrom(
  ends: ReturnType<typeof notedEnds>,
  { path, filters = {}, lines = 10, follow = true, pollMs = 200, signal }: TailOptions,
): AsyncGenerator<Tailed, void, undefined> {
  if ('fault' in ends) throw ends.fault
  const matches = compileFilters(filters)
  const places = new Map<string, Place>()
  let last: readonly string[] = []
  for (const [instance, { segments, bytes }] of ends) {
    const place = { number: 0, offset: 0 }
    places.set(instance, place)
    // Only the end of it is looked at where nobody asked for what is before.
    if (lines === 0) Object.assign(place, { number: segments.at(-1)?.number ?? 0, offset: Math.max(0, bytes - MAX_LINE_BYTES) }) // prettier-ignore
    const own = new LastTexts(lines)
    for await (const text of readNew(segments.slice(-LOOKED_BACK_FILES), place, signal, bytes))
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

/** A file that was listed together with a later one is complete, so it is read to its end before the later one; of the last, no more than `bytes`. */
async function* readNew(
  segments: readonly SegmentFile[],
  place: Place,
  signal: AbortSignal | undefined,
  bytes = Infinity,
): AsyncGenerator<string, void, undefined> {
  const newest = segments.at(-1)?.number
  for (const { path, number } of segments) {
    if (number < place.number) continue
    if (number > place.number) Object.assign(place, { number, offset: 0 })
    try {
      if ((await stat(path)).size <= place.offset) continue
      for await (const { lines, endOffset } of readLines(
        path,
        place.offset,
        signal,
        number === newest ? bytes : Infinity,
      )) {
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
