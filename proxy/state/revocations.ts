/**
 * Revocations that every process on the state folder sees within a quarter of a second, and that survive a restart. One file of JSON lines for each
 * day, only ever appended to: no process rewrites what another may be adding to. A clock may be ahead and come back, so a file is deleted only when this
 * process has itself seen more time pass than any of its rules can matter for.
 */
import { closeSync, fstatSync, openSync, readSync, readdirSync, rmSync, statSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { join } from 'node:path'
import type { Clock } from '../clock.ts'
import type { Identity } from '../tokens/identity.ts'
import { faultCode, openFolder, syncFolder, unusable } from './folder.ts'
import {
  MAX_RULES,
  type Revocation,
  type RevocationRule,
  RevocationRules,
  createRevocation,
  revocationSchema,
} from './revocation-rules.ts'
import { whyUnreadable } from '../unreadable.ts'

/** Milliseconds between two looks. */
const LOOK_EVERY_MS = 250

/** Milliseconds without a look that succeeded after which the rules count as out of date. */
const STALE_MS = 5_000

const DAY_MS = 86_400_000

const HOUR_MS = 3_600_000

/** Days by the clock after which a file may be deleted: rules lapse after little more than one. */
const KEPT_DAYS = 4

/** For so long must a process have known a file before it deletes it: no token outlives that, whatever the clock says. */
const CONFIRMED_MS = 25 * HOUR_MS

/** Old files kept at most, where no process runs long enough to be sure. */
const MAX_OLD_FILES = 30

const SWEEP_EVERY_MS = 600_000

/** The revocations of a state folder. */
export interface Revocations {
  /** Whether a rule concerns the identity. Cheap: asked at every connection. */
  readonly isRevoked: (identity: Identity) => boolean
  /** `false` while the folder can't be read, so that a revocation may have been missed; then nobody is to be let out. */
  readonly isCurrent: () => boolean
  /**
   * Revokes, here at once and elsewhere within a quarter of a second; resolves when it is on the disk.
   * @throws SallyportError `SALLYPORT_STATE_UNUSABLE` when it can't be written: then nothing was revoked
   */
  readonly revoke: (rule: RevocationRule) => Promise<void>
  /** Looks now for what others revoked; whether all that is on the disk is in force. */
  readonly look: () => boolean
  /** The rules in force. */
  readonly list: () => readonly Revocation[]
  /** Calls back after new rules came, from here or elsewhere; returns the way to stop that. */
  readonly onChange: (listener: () => void) => () => void
  /** Stops looking; idempotent. */
  readonly close: () => void
}

/**
 * Opens the revocations below a state folder; what others revoked before is in force when this resolves.
 * `onFault` is told, once each, of a folder that can't be read and of a line that is none.
 * @throws SallyportError `SALLYPORT_STATE_UNUSABLE`
 */
export async function openRevocations(
  path: string,
  clock: Clock,
  onFault: (message: string) => void = () => undefined,
): Promise<Revocations> {
  await openFolder(path)
  const rules = new RevocationRules()
  const listeners = new Set<() => void>()
  const readers = new Map<string, LineReader>()
  let lastGoodMs = clock.monotonicMs()
  let lastFault: string | undefined
  let nextSweepMs = clock.monotonicMs()
  let unreadable = 0
  let told = 0

  /** Never throws: what is wrong is told, and `isCurrent` knows. */
  function look(): void {
    try {
      const added = readNewRules()
      const nowMs = clock.monotonicMs()
      if (nowMs >= nextSweepMs) sweep(nowMs)
      if (rules.size > MAX_RULES) throw new TooManyRules(`hold more than ${MAX_RULES} rules; nobody is let out`)
      lastGoodMs = nowMs
      lastFault = undefined
      if (unreadable > told) onFault(`revocations \`${path}\` hold ${unreadable} lines that are none`)
      told = unreadable
      if (added) for (const listener of [...listeners]) listener()
    } catch (error) {
      const message = error instanceof TooManyRules ? error.message : `can't be read (${whyUnreadable(error)})`
      if (message !== lastFault) onFault(`revocations \`${path}\` ${message}`)
      lastFault = message
    }
  }

  function readNewRules(): boolean {
    let added = false
    for (const name of listFolder(path).filter(isDayFile)) {
      const reader = readers.get(name) ?? new LineReader(join(path, name), clock)
      readers.set(name, reader)
      for (const line of reader.readNew()) added = addLine(line) || added
      if (rules.size > MAX_RULES) rules.lapse(clock.wallMs())
    }
    return added
  }

  /** Never throws, so that no line after this one is missed. */
  function addLine(line: string): boolean {
    const revocation = parseLine(line)
    if (revocation === undefined) unreadable++
    if (revocation === undefined) return false
    rules.add(revocation)
    return true
  }

  function sweep(nowMs: number): void {
    nextSweepMs = nowMs + SWEEP_EVERY_MS
    const wallMs = clock.wallMs()
    rules.lapse(wallMs)
    const oldestKept = dayFile(wallMs - KEPT_DAYS * DAY_MS)
    const old = [...readers].filter(([name]) => name < oldestKept).sort()
    for (const [index, [name, reader]] of old.entries()) {
      if (nowMs - reader.lastReadMs < CONFIRMED_MS && index >= old.length - MAX_OLD_FILES) continue
      reader.close()
      readers.delete(name)
      rmSync(join(path, name), { force: true })
    }
  }

  async function revoke(rule: RevocationRule): Promise<void> {
    if (rules.size >= MAX_RULES) throw unusable(path, `holds ${MAX_RULES} revocations; revoke by sandbox or tenant`)
    const now = clock.wallMs()
    const revocation = createRevocation(rule, now)
    await openFolder(path)
    try {
      // The line feed in front ends what a crash may have left unfinished. One write: lines of two processes don't mix.
      await appendOnce(join(path, dayFile(now)), `\n${JSON.stringify(revocation)}\n`)
      await syncFolder(path)
    } catch (error) {
      throw unusable(path, `can't be written (${whyUnreadable(error)})`, error)
    }
    look()
  }

  look()
  if (lastFault !== undefined) throw unusable(path, lastFault)
  const timer = setInterval(look, LOOK_EVERY_MS).unref()
  return {
    isRevoked: (identity) => rules.isRevoked(identity),
    isCurrent: () => {
      if (clock.monotonicMs() - lastGoodMs <= STALE_MS) return true
      // The process may have slept: look before giving up.
      look()
      return lastFault === undefined
    },
    revoke,
    look: () => {
      look()
      return lastFault === undefined
    },
    list: () => rules.list(),
    onChange: (listener) => {
      listeners.add(listener)
      return () => void listeners.delete(listener)
    },
    close: () => {
      clearInterval(timer)
      listeners.clear()
      for (const reader of readers.values()) reader.close()
      readers.clear()
    },
  }
}

class TooManyRules extends Error {}

const dayFile = (ms: number): string => `${new Date(ms).toISOString().slice(0, 10)}.jsonl`
const isDayFile = (name: string): boolean => /^\d{4}-\d\d-\d\d\.jsonl$/.test(name)

function parseLine(line: string): Revocation | undefined {
  try {
    return revocationSchema.parse(JSON.parse(line))
  } catch {
    return undefined
  }
}

/** A folder that was deleted holds no new rules; whoever revokes makes it again. */
function listFolder(path: string): string[] {
  try {
    return readdirSync(path)
  } catch (error) {
    if (faultCode(error) === 'ENOENT') return []
    throw error
  }
}

async function appendOnce(path: string, line: string): Promise<void> {
  const file = await open(path, 'a', 0o600)
  try {
    const bytes = Buffer.from(line)
    const { bytesWritten } = await file.write(bytes)
    if (bytesWritten !== bytes.length) throw Object.assign(new Error('short write'), { code: 'ENOSPC' })
    await file.sync()
  } finally {
    await file.close()
  }
}

/** Follows a growing file of lines. It is kept open: else a file put in its place could have the same inode, and pass for it. */
class LineReader {
  readonly #path: string
  readonly #clock: Clock
  #file: { readonly descriptor: number; readonly inode: number; readonly device: number } | undefined
  #offset = 0
  #partial = ''
  /** Monotonic clock, of the last read that found something. */
  lastReadMs: number

  constructor(path: string, clock: Clock) {
    this.#path = path
    this.#clock = clock
    this.lastReadMs = clock.monotonicMs()
  }

  /** The lines that were finished since the last call. A file that shrank or was replaced is read from the start: rules only add up. */
  *readNew(): Generator<string> {
    const { size, ino, dev } = statSync(this.#path)
    if (ino !== this.#file?.inode || dev !== this.#file.device || size < this.#offset) this.#open()
    const descriptor = this.#file?.descriptor ?? -1
    while (this.#offset < size) {
      const length = readSync(descriptor, chunk, 0, chunk.length, this.#offset)
      if (length === 0) return
      this.lastReadMs = this.#clock.monotonicMs()
      this.#offset += length
      // As latin1, so that a character cut in two by the chunks is whole again in its line.
      const lines = (this.#partial + chunk.toString('latin1', 0, length)).split('\n')
      this.#partial = lines.pop()?.slice(0, MAX_LINE) ?? ''
      for (const line of lines) if (line !== '') yield Buffer.from(line, 'latin1').toString()
    }
  }

  #open(): void {
    this.close()
    const descriptor = openSync(this.#path, 'r')
    const { ino, dev } = fstatSync(descriptor)
    this.#file = { descriptor, inode: ino, device: dev }
    this.#offset = 0
    this.#partial = ''
  }

  close(): void {
    if (this.#file !== undefined) closeSync(this.#file.descriptor)
    this.#file = undefined
  }
}

/** More than any rule takes; what is longer is no rule. */
const MAX_LINE = 8_192

const chunk = Buffer.alloc(64 * 1024)
