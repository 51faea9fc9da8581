/** One writer for one instance in one folder: a lock file that outlives a killed process without locking anybody out. */
import { linkSync, readFileSync, renameSync, statSync, unlinkSync, utimesSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { SallyportError } from '../../policies/error.ts'
import { errorCode } from './segment.ts'

/** A lock that is held. */
export interface InstanceLock {
  /** Shows other machines that the holder is alive; `false` when somebody else holds the lock now. A lock file that vanished is made again. */
  readonly touch: () => boolean
  /** Removes the lock file, if it is still ours; idempotent. */
  readonly release: () => void
}

/** A holder on another machine (or in another container) can't be asked; it is gone when it hasn't touched the file for this long. */
const FOREIGN_STALE_MS = 60_000

const held = new Set<string>()

/**
 * Takes the lock.
 * @throws SallyportError `SALLYPORT_AUDIT_UNWRITABLE` when it is held
 */
export function lockInstance(path: string, instance: string, nowMs: () => number): InstanceLock {
  const own = describeSelf()
  if (held.has(path)) throw inUse(path, instance, own)
  for (let attempt = 0; ; attempt += 1) {
    if (createLock(path, own)) break
    const holder = readLock(path)
    if (holder !== undefined && (attempt > 2 || isAlive(holder, path, nowMs()))) throw inUse(path, instance, holder)
    if (holder !== undefined) removeStale(path, holder)
  }
  held.add(path)
  return {
    touch: () => touch(path, own, nowMs()),
    release: () => {
      if (!held.delete(path)) return
      if (readLock(path) === own) unlinkQuietly(path)
    },
  }
}

function createLock(path: string, own: string): boolean {
  try {
    writeFileSync(path, own, { flag: 'wx', mode: 0o600 })
    return true
  } catch (error) {
    if (errorCode(error) === 'EEXIST') return false
    throw error
  }
}

function touch(path: string, own: string, nowMs: number): boolean {
  try {
    const holder = readLock(path)
    if (holder === undefined) return createLock(path, own) || readLock(path) === own
    if (holder !== own) return false
    utimesSync(path, nowMs / 1000, nowMs / 1000)
    return true
  } catch {
    // The folder is gone or read-only: that shows when the next line is written.
    return true
  }
}

/** Pid, its start (a pid is used again), and the machine. */
function describeSelf(): string {
  return JSON.stringify({ pid: process.pid, started: startOf(process.pid), machine: machine() })
}

function machine(): string {
  return `${hostname()} ${readQuietly('/proc/sys/kernel/random/boot_id')?.trim() ?? ''}`.trim()
}

/** Field 22 of `/proc/<pid>/stat`; empty where there is no such file. The name in field 2 may hold spaces and parentheses. */
function startOf(pid: number): string {
  return (
    readQuietly(`/proc/${pid}/stat`)
      ?.replace(/^.*\) /s, '')
      .split(' ')[19] ?? ''
  )
}

function isAlive(holder: string, path: string, nowMs: number): boolean {
  const { pid, started, machine: where } = parseHolder(holder)
  if (pid === undefined) return false
  if (where !== machine()) return nowMs - (statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0) < FOREIGN_STALE_MS
  // Our own pid in a file that this process doesn't hold: left by an earlier process with the same pid, as in a restarted container.
  if (pid === process.pid) return false
  return isRunning(pid) && startOf(pid) === started
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return errorCode(error) === 'EPERM'
  }
}

function parseHolder(holder: string): {
  readonly pid?: number
  readonly started?: unknown
  readonly machine?: unknown
} {
  try {
    const value: unknown = JSON.parse(holder)
    if (
      typeof value === 'object' &&
      value !== null &&
      'pid' in value &&
      Number.isSafeInteger(value.pid) &&
      Number(value.pid) > 0
    ) {
      return { ...value, pid: Number(value.pid) }
    }
  } catch {
    // Half written by a process that was killed.
  }
  return {}
}

/** Two who find the same stale lock must not both take it: only the one whose rename moved the stale file goes on; a live lock moved by mistake is put back. */
function removeStale(path: string, stale: string): void {
  const aside = `${path}.stale-${process.pid}`
  try {
    renameSync(path, aside)
    if (readLock(aside) !== stale) linkSync(aside, path)
  } catch {
    // Somebody else was first; the next attempt sees who.
  }
  unlinkQuietly(aside)
}

function readLock(path: string): string | undefined {
  return readQuietly(path)
}

function readQuietly(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined
  }
}

function unlinkQuietly(path: string): void {
  try {
    unlinkSync(path)
  } catch {
    // Gone already.
  }
}

function inUse(path: string, instance: string, holder: string): SallyportError {
  const { pid, machine: where } = parseHolder(holder)
  const by =
    where === machine()
      ? `process ${pid ?? 'unknown'}`
      : `process ${pid ?? 'unknown'} on \`${String(where).split(' ')[0] ?? ''}\``
  return new SallyportError(
    'SALLYPORT_AUDIT_UNWRITABLE',
    `the audit log of instance \`${instance}\` is in use by ${by} (\`${path}\`); stop it, or give this gateway a name of its own with \`audit.instance\``,
  )
}
