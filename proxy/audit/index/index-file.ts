/** The file of the index: opens it, makes it, and throws away what is none. */
import { closeSync, existsSync, lstatSync, openSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { DatabaseSync } from 'node:sqlite'

/** Beside the files of the log. */
const INDEX_FILE = 'audit-index.sqlite'

/** Of the tables below; another version is thrown away, since the files hold everything. */
const VERSION = 1

const TABLES = `
  CREATE TABLE file (
    instance TEXT NOT NULL, number INTEGER NOT NULL, inode TEXT NOT NULL, modified_ms REAL NOT NULL, bytes INTEGER NOT NULL,
    end_hash TEXT NOT NULL, first_ms INTEGER, last_ms INTEGER, PRIMARY KEY (instance, number)
  ) WITHOUT ROWID;
  CREATE TABLE line (
    instance INTEGER NOT NULL, number INTEGER NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL, ms INTEGER NOT NULL,
    kind INTEGER, decision INTEGER, effective INTEGER, tenant INTEGER, sandbox INTEGER, host INTEGER, reason INTEGER,
    request_id INTEGER, token_id INTEGER, PRIMARY KEY (instance, number, offset)
  ) WITHOUT ROWID;
  PRAGMA user_version = ${VERSION};
`

/** The fields that have a tree of their own, the ones that tell most apart first. */
export const SEARCHABLE_FIELDS = ['request_id', 'token_id', 'sandbox', 'host', 'reason', 'tenant'] as const

/** Of SQLite: what another file would not mend. */
const NOT_THE_FILE = new Set([5, 6, 8, 10, 13, 14])

/** Trees in random order are slow to fill from a small cache. */
const CACHE_KIB = 128 * 1024

/** How long another process may be writing. */
const BUSY_MS = 10_000
/** Whoever reads hardly waits: what is being written, or locked by somebody, is found in the files. */
const READ_BUSY_MS = 250
/**
 * SQLite would map a file beside the index into the memory of the process, and whoever cuts that file short meanwhile would kill it with all its connections (SIGBUS). A connection that
 * keeps its lock maps none, whatever the file says of itself.
 * @see https://www.sqlite.org/wal.html#noshm
 */
const NO_SHARED_MEMORY = 'PRAGMA locking_mode = EXCLUSIVE'

/** Makes or opens the index of a folder; `isAlone` keeps all others out until it is closed. Rejects with the fault when there can be none: no such module, a folder that can't be written, a full disk. */
export async function openIndexFile(folder: string, isAlone: boolean): Promise<DatabaseSync> {
  const { DatabaseSync: Database } = await import('node:sqlite')
  const path = join(folder, INDEX_FILE)
  if (!areFiles(folder)) throw new Error('it is no file')
  try {
    return openWith(Database, path, isAlone)
  } catch (error) {
    if (!isGarbage(error)) throw error
    removeIndex(folder)
    return openWith(Database, path, isAlone)
  }
}

/** Opens the index of a folder as it is, to read from; `undefined` when there is none that can be read. Nothing is made, mended or taken away. */
export async function openIndexToRead(folder: string): Promise<DatabaseSync | undefined> {
  const path = join(folder, INDEX_FILE)
  if (!areFiles(folder) || !existsSync(path)) return undefined
  let database: DatabaseSync | undefined
  try {
    const { DatabaseSync: Database } = await import('node:sqlite')
    database = new Database(path, { readOnly: true })
    database.exec(`${NO_SHARED_MEMORY}; PRAGMA busy_timeout = ${READ_BUSY_MS}`)
    if (versionOf(database) === VERSION && isAsMade(Database, database)) return database
  } catch {
    // Whoever brings it up to date finds out why.
  }
  database?.close()
  return undefined
}

/** Makes what is not there of the trees by which lines are found. */
export function makeTrees(database: DatabaseSync): void {
  for (const name of SEARCHABLE_FIELDS)
    database.exec(`CREATE INDEX IF NOT EXISTS by_${name} ON line (${name}) WHERE ${name} IS NOT NULL`)
}

/** Takes it away; the next query makes it anew. */
export function removeIndex(folder: string): void {
  for (const path of pathsIn(folder)) rmSync(path, { force: true })
}

/** The database, and what SQLite keeps beside it. */
function pathsIn(folder: string): readonly string[] {
  return ['', '-wal', '-shm', '-journal'].map((end) => join(folder, INDEX_FILE + end))
}

/** A link would let whoever may write here have another file overwritten; a pipe would be waited for. */
function areFiles(folder: string): boolean {
  return pathsIn(folder).every((path) => lstatSync(path, { throwIfNoEntry: false })?.isFile() !== false)
}

/** Whether a fault says that the file is not what was written, rather than that it can't be read or written now. */
export function isGarbage(error: unknown): boolean {
  if (error instanceof WrongVersion) return true
  const code = error instanceof Error && 'errcode' in error ? Number(error.errcode) & 0xff : undefined
  return code !== undefined && !NOT_THE_FILE.has(code)
}

class WrongVersion extends Error {}

function openWith(Database: typeof DatabaseSync, path: string, isAlone: boolean): DatabaseSync {
  closeSync(openSync(path, 'a', 0o600))
  const database = new Database(path)
  try {
    database.exec(
      `${isAlone ? NO_SHARED_MEMORY : ''}; PRAGMA busy_timeout = ${BUSY_MS}; PRAGMA journal_mode = TRUNCATE; PRAGMA cache_size = -${CACHE_KIB};`,
    )
    if (versionOf(database) === 0) makeTables(database)
    if (versionOf(database) !== VERSION || !isAsMade(Database, database)) throw new WrongVersion()
    database.prepare('SELECT instance, number, bytes FROM file').all()
    return database
  } catch (error) {
    database.close()
    throw error
  }
}

function makeTables(database: DatabaseSync): void {
  database.exec('BEGIN IMMEDIATE')
  if (versionOf(database) === 0) database.exec(TABLES)
  database.exec('COMMIT')
}

function versionOf(database: DatabaseSync): number {
  return Number(database.prepare('PRAGMA user_version').get()?.['user_version'])
}

/** Whether there are our tables and trees, and nothing else: a view in the place of a table could answer without an end, a trigger change what is written. */
function isAsMade(Database: typeof DatabaseSync, database: DatabaseSync): boolean {
  const made = new Database(':memory:')
  try {
    made.exec(TABLES)
    makeTrees(made)
    const expected = new Set(schemaOf(made))
    const found = schemaOf(database)
    return found.every((one) => expected.has(one)) && schemaOf(made, 'table').every((one) => found.includes(one))
  } finally {
    made.close()
  }
}

function schemaOf(database: DatabaseSync, type?: 'table'): readonly string[] {
  const rows = database.prepare('SELECT type, name, tbl_name, sql FROM sqlite_schema LIMIT 100').all()
  return rows.filter((row) => type === undefined || row['type'] === type).map((row) => JSON.stringify(row))
}
