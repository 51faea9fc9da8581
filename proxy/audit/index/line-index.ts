/**
 * An index beside the files of a log: says where the lines are that a query looks for. It is made from the files, and nothing in it is believed: every line is read
 * from its file and compared again. What is wrong with it makes a query slow, never wrong.
 */
import type { DatabaseSync, SQLInputValue } from 'node:sqlite'
import type { AuditFilters } from '../match.ts'
import { listSegments } from '../segments.ts'
import { fillIndex, INDEXED_FIELDS } from './fill-index.ts'
import { isGarbage, openIndexFile, openIndexToRead, removeIndex, SEARCHABLE_FIELDS } from './index-file.ts'
import { keyOf } from './key-of.ts'

/** Where a line is. */
export interface LinePlace {
  readonly number: number
  readonly offset: number
  readonly length: number
}

/** An index that is up to date with the files as they were when it was opened. */
export interface LineIndex {
  /** Places of lines of an instance for which the filters may hold, in order, from a place on. */
  readonly places: (
    instance: string,
    filters: AuditFilters,
    from: { readonly number: number; readonly offset: number },
  ) => Iterable<LinePlace>
  /** Whether so few lines fit the filters that looking up all of them is faster than reading the files. */
  readonly hasFew: (filters: AuditFilters) => boolean
  /** Where the index ends for an instance: what follows is younger than it. */
  readonly end: (instance: string) => { readonly number: number; readonly offset: number }
  readonly close: () => void
}

/** The index, or why there is none at the moment. */
export type OpenedIndex =
  { readonly ok: true; readonly index: LineIndex } | { readonly ok: false; readonly why: string }

/** More lines than this, and reading all is as fast as looking each up. */
const FEW = 50_000

/** Opens the index of a folder and brings it up to date; makes it anew when it is missing or garbage. Never rejects, but for an aborted signal. `isAlone` is for a process that must live: it keeps all others out until it is closed. */
export async function openLineIndex(folder: string, signal?: AbortSignal, isAlone = false): Promise<OpenedIndex> {
  try {
    return { ok: true, index: await openFilled(folder, signal, isAlone) }
  } catch (error) {
    signal?.throwIfAborted()
    if (!isGarbage(error)) return { ok: false, why: whyNot(error) }
  }
  try {
    removeIndex(folder)
    return { ok: true, index: await openFilled(folder, signal, isAlone) }
  } catch (error) {
    signal?.throwIfAborted()
    return { ok: false, why: whyNot(error) }
  }
}

/** The index of a folder as somebody else left it, or `undefined`: what it does not know yet is read from the files. */
export async function openLineIndexAsIs(folder: string): Promise<LineIndex | undefined> {
  const database = await openIndexToRead(folder)
  return database && asIndex(database)
}

async function openFilled(folder: string, signal: AbortSignal | undefined, isAlone: boolean): Promise<LineIndex> {
  const database = await openIndexFile(folder, isAlone)
  try {
    await fillIndex(database, listSegments(folder), signal)
    return asIndex(database)
  } catch (error) {
    database.close()
    throw error
  }
}

function asIndex(database: DatabaseSync): LineIndex {
  return {
    places: (instance, filters, from) => findPlaces(database, instance, filters, from),
    hasFew: (filters) => countSome(database, filters) < FEW,
    end: (instance) => endOf(database, instance),
    close: () => database.close(),
  }
}

/** At most {@link FEW}. */
function countSome(database: DatabaseSync, filters: AuditFilters): number {
  const wanted = wantedFields(filters)
  const best = mostTelling(database, wanted)
  const conditions = wanted.map(({ name }) => `${name === best ? '' : '+'}${name} = ?`)
  const { since, until } = timesOf(filters)
  const row = database
    .prepare(
      `SELECT count(*) AS count FROM (SELECT 1 FROM line WHERE ${[...conditions, 'ms >= ?', 'ms < ?'].join(' AND ')} LIMIT ${FEW})`,
    )
    .get(...wanted.map(({ key }) => key), since, until)
  return Number(row?.['count'])
}

function wantedFields(filters: AuditFilters) {
  return INDEXED_FIELDS.flatMap((name) => {
    const value = filters[name]
    return value === undefined ? [] : [{ name, key: keyOf(value) }]
  })
}

function timesOf({ sinceMs, untilMs }: AuditFilters): { readonly since: number; readonly until: number } {
  return { since: Math.ceil(sinceMs ?? 0), until: Math.ceil(untilMs ?? Number.MAX_SAFE_INTEGER) }
}

function* findPlaces(
  database: DatabaseSync,
  instance: string,
  filters: AuditFilters,
  from: { readonly number: number; readonly offset: number },
): Iterable<LinePlace> {
  const { sinceMs, untilMs } = filters
  const wanted = wantedFields(filters)
  const best = mostTelling(database, wanted)
  const conditions = ['+instance = ?', ...wanted.map(({ name }) => `${name === best ? '' : '+'}${name} = ?`)]
  if (best === undefined) conditions[0] = 'instance = ?'
  const values: SQLInputValue[] = [keyOf(instance), ...wanted.map(({ key }) => key)]
  conditions.push('(number, offset) >= (?, ?)')
  values.push(from.number, from.offset)
  if (sinceMs !== undefined || untilMs !== undefined) {
    const { since, until } = timesOf(filters)
    conditions.push('ms >= ?', 'ms < ?', 'number BETWEEN ? AND ?')
    const { least, most } = filesBetween(database, instance, since, until)
    values.push(since, until, least, most)
  }
  const select = database.prepare(
    `SELECT number, offset, length FROM line WHERE ${conditions.join(' AND ')} ORDER BY number, offset`,
  )
  for (const row of select.iterate(...values))
    yield { number: Number(row['number']), offset: Number(row['offset']), length: Number(row['length']) }
}

/** The field whose tree leads to the fewest lines; undefined when all lead to many. */
function mostTelling(
  database: DatabaseSync,
  wanted: readonly { readonly name: string; readonly key: number }[],
): string | undefined {
  let best: { readonly name: string; readonly count: number } | undefined
  for (const name of SEARCHABLE_FIELDS) {
    const field = wanted.find((candidate) => candidate.name === name)
    if (field === undefined) continue
    const row = database
      .prepare(`SELECT count(*) AS count FROM (SELECT 1 FROM line WHERE ${name} = ? LIMIT ${FEW})`)
      .get(field.key)
    const count = Number(row?.['count'])
    if (count < (best?.count ?? FEW)) best = { name, count }
  }
  return best?.name
}

function filesBetween(
  database: DatabaseSync,
  instance: string,
  since: number,
  until: number,
): { readonly least: number; readonly most: number } {
  const row = database
    .prepare(
      'SELECT min(number) AS least, max(number) AS most FROM file WHERE instance = ? AND last_ms >= ? AND first_ms < ?',
    )
    .get(instance, since, until)
  return { least: Number(row?.['least'] ?? 0), most: Number(row?.['most'] ?? -1) }
}

function endOf(database: DatabaseSync, instance: string): { readonly number: number; readonly offset: number } {
  const row = database
    .prepare('SELECT number, bytes FROM file WHERE instance = ? ORDER BY number DESC LIMIT 1')
    .get(instance)
  return { number: Number(row?.['number'] ?? 0), offset: Number(row?.['bytes'] ?? 0) }
}

/** The code of the system or of SQLite, in a few words. */
function whyNot(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown fault'
  if ('errstr' in error && typeof error.errstr === 'string') return error.errstr
  return 'code' in error ? String(error.code) : error.message
}
