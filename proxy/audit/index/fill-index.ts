/** Brings an index up to date with the files: reads what they have got since, and forgets files that are gone or are no longer what was read. */
import { stat } from 'node:fs/promises'
import { hash } from 'node:crypto'
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { openSegment } from '../open-segment.ts'
import { readLines } from '../read-lines.ts'
import type { SegmentFile } from '../segments.ts'
import { makeTrees } from './index-file.ts'
import { keyOf } from './key-of.ts'

/** The fields of a line that the index knows, in the order of its table. */
export const INDEXED_FIELDS = [
  'kind',
  'decision',
  'effective',
  'tenant',
  'sandbox',
  'host',
  'reason',
  'request_id',
  'token_id',
] as const

interface KnownFile {
  readonly inode: string
  readonly modified_ms: number
  readonly bytes: number
  readonly end_hash: string
  readonly first_ms: number | null
  readonly last_ms: number | null
}

/** So much before the end of what was read shows whether a file that grew is still the same. */
const END_BYTES = 4096

/** One transaction a file: what was read of it is there whole, or not at all. */
export async function fillIndex(
  database: DatabaseSync,
  segments: readonly SegmentFile[],
  signal: AbortSignal | undefined,
): Promise<void> {
  forgetRemoved(database, segments)
  // A tree that is made of all lines at once costs a fraction of one that grows line by line.
  const isFresh = database.prepare('SELECT 1 FROM file').get() === undefined
  if (!isFresh) makeTrees(database)
  for (const segment of segments) {
    signal?.throwIfAborted()
    const { size, ino, mtimeMs } = await stat(segment.path)
    const known = readKnown(database, segment)
    if (known?.bytes === size && known.modified_ms === mtimeMs && known.inode === String(ino)) continue
    database.exec('BEGIN IMMEDIATE')
    try {
      await fillFile(database, segment, { inode: String(ino), modifiedMs: mtimeMs, size }, signal)
      database.exec('COMMIT')
    } catch (error) {
      if (database.isTransaction) database.exec('ROLLBACK')
      throw error
    }
  }
  if (isFresh) makeTrees(database)
}

async function fillFile(
  database: DatabaseSync,
  segment: SegmentFile,
  found: { readonly inode: string; readonly modifiedMs: number; readonly size: number },
  signal: AbortSignal | undefined,
): Promise<void> {
  // Read again: another process may have been here before the transaction began.
  let known = readKnown(database, segment)
  const hasGrown = known !== undefined && known.inode === found.inode && known.bytes < found.size
  if (known !== undefined && !(hasGrown && (await endHash(segment.path, known.bytes)) === known.end_hash)) {
    forget(database, segment)
    known = undefined
  }
  const columns = ['instance', 'number', 'offset', 'length', 'ms', ...INDEXED_FIELDS]
  const insert = database.prepare(
    `INSERT OR REPLACE INTO line (${columns.join(', ')}) VALUES (${columns.map(() => '?').join(', ')})`,
  )
  let bytes = known?.bytes ?? 0
  let [firstMs, lastMs] = [known?.first_ms ?? null, known?.last_ms ?? null]
  for await (const { lines, endOffset } of readLines(segment.path, bytes, signal)) {
    let offset = bytes
    for (const raw of lines) {
      const line = parseFields(raw)
      const ms = line === undefined ? Number.NaN : Date.parse(String(line['time']))
      if (line !== undefined && !Number.isNaN(ms)) {
        insertLine(insert, segment, { offset, length: raw.length, ms }, line)
        firstMs = Math.min(firstMs ?? ms, ms)
        lastMs = Math.max(lastMs ?? ms, ms)
      }
      offset += raw.length
    }
    bytes = endOffset
  }
  database
    .prepare('INSERT OR REPLACE INTO file VALUES (?, ?, ?, ?, ?, ?, ?, ?)')
    .run(
      segment.instance,
      segment.number,
      found.inode,
      found.modifiedMs,
      bytes,
      await endHash(segment.path, bytes),
      firstMs,
      lastMs,
    )
}

function insertLine(
  insert: StatementSync,
  { instance, number }: SegmentFile,
  { offset, length, ms }: { readonly offset: number; readonly length: number; readonly ms: number },
  line: Readonly<Record<string, unknown>>,
): void {
  const keys = INDEXED_FIELDS.map((name) => {
    const value = line[name]
    return typeof value === 'string' ? keyOf(value) : null
  })
  insert.run(keyOf(instance), number, offset, length, ms, ...keys)
}

/** What is no JSON object is passed over: whatever reads the line later looks at it properly. */
function parseFields(raw: Buffer): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(raw.toString('latin1'))
    return typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>) : undefined
  } catch {
    return undefined
  }
}

function forgetRemoved(database: DatabaseSync, segments: readonly SegmentFile[]): void {
  const present = new Set(segments.map(({ instance, number }) => `${instance}/${number}`))
  for (const { instance, number } of database.prepare('SELECT instance, number FROM file').all()) {
    const [name, count] = [String(instance), Number(number)]
    if (!present.has(`${name}/${count}`)) forget(database, { instance: name, number: count })
  }
}

function forget(database: DatabaseSync, { instance, number }: Pick<SegmentFile, 'instance' | 'number'>): void {
  database.prepare('DELETE FROM line WHERE instance = ? AND number = ?').run(keyOf(instance), number)
  database.prepare('DELETE FROM file WHERE instance = ? AND number = ?').run(instance, number)
}

function readKnown(database: DatabaseSync, { instance, number }: SegmentFile): KnownFile | undefined {
  const row = database.prepare('SELECT * FROM file WHERE instance = ? AND number = ?').get(instance, number)
  return row as unknown as KnownFile | undefined
}

async function endHash(path: string, bytes: number): Promise<string> {
  const file = await openSegment(path)
  try {
    const length = Math.min(bytes, END_BYTES)
    const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, bytes - length)
    return hash('sha256', buffer.subarray(0, bytesRead), 'hex')
  } finally {
    await file.close()
  }
}
