/** Writes the audit log: every line in order, chained and in the file before anybody is told that it was written. */
import { join } from 'node:path'
import { SallyportError } from '../../policies/error.ts'
import type { Clock } from '../clock.ts'
import type { SyncMode } from './disk-sync.ts'
import { FileAuditLog } from './file-log.ts'
import type { SigningKey } from './key.ts'
import type { LogEntry } from './line.ts'
import { type InstanceLock, lockInstance } from './lock.ts'
import type { AuditLog } from './record.ts'
import type { SyncFile, WriteBytes } from './segment.ts'
import { isInstanceName } from './segments.ts'
import { makeFolder } from '../make-folder.ts'
import { whyUnreadable } from '../unreadable.ts'

/** The gateway's own log, as far as the audit log needs it; a pino logger fits. */
export interface AuditLogger {
  readonly info: (fields: object, message: string) => void
  readonly warn: (fields: object, message: string) => void
  readonly error: (fields: object, message: string) => void
}

/** What {@link openAuditLog} needs; all limits are finite. */
export interface AuditLogOptions {
  /** Folder of the log; made with mode 0700 when it isn't there. */
  readonly path: string
  /** Name of this gateway, unique in the folder: letters and digits, inside also dots, hyphens and underscores; 64 characters at most. */
  readonly instance: string
  /**
   * What the gateway does while lines can't be written. `deny`: it refuses, so an `allow` that could not be written in time is later written with
   * `effective: deny` and `reason: audit_unavailable`. `allow`: it lets through, so the line is later written as it was.
   */
  readonly onFailure: 'deny' | 'allow'
  /** Signs the checkpoints. */
  readonly signingKey: SigningKey
  /** A file is closed by the write that takes it to this size. Default 64 MiB: small enough to ship, large enough to be few. */
  readonly maxFileBytes?: number
  /** A checkpoint follows an unsigned line after at most this time. Default 10,000 ms: so much can be cut unseen. */
  readonly checkpointMs?: number
  /** How often writing is tried again after a failure. Default 500 ms. */
  readonly retryMs?: number
  /** Lines kept in memory while the log can't be written; what comes after is counted and told in a `gap` line. Default 4,096. */
  readonly maxKeptLines?: number
  /** File for the last checkpoint, best outside `path`: a restart then sees that the end of the log was cut. */
  readonly headPath?: string
  /** Written into the `start` line. */
  readonly start?: { readonly detail?: string; readonly policy_version?: string }
  /** Called with each checkpoint line once it is in the file: for shipping it elsewhere. */
  readonly onCheckpoint?: (line: string) => void
  /** Called when the log becomes writable or stops being so. */
  readonly onWritable?: (writable: boolean) => void
  /** Called once with each entry of a caller, as its line says it: when it is in the file, or when it has to wait for a log that can't be written. */
  readonly onEntry?: (entry: LogEntry) => void
  /** Called with each write: how long its first line had waited, in milliseconds. */
  readonly onWrite?: (waitedMs: number) => void
  /** Called with the number of lines that were lost for good, for a metric. */
  readonly onLost?: (lines: number) => void
  readonly clock: Clock
  readonly logger?: AuditLogger
  /** When lines reach the disk, and whether an answer waits for that. Default `interval`. */
  readonly sync?: SyncMode
  /** Instead of the system's write: for tests. */
  readonly writeBytes?: WriteBytes
  /** Instead of the system's `fdatasync`: for tests. */
  readonly syncFile?: SyncFile
}

/**
 * Opens the log of one instance: takes its lock, continues the chain in a new file and writes the `start` line.
 * The log writes `start`, `stop`, `checkpoint`, `segment`, `restored` and `gap` lines by itself; every other `admin` line is the caller's.
 * @throws SallyportError `SALLYPORT_AUDIT_UNWRITABLE`: in use by another process, no folder, not writable, or its end can't be read
 * @throws TypeError for a name or a limit that can't be
 */
export function openAuditLog(options: AuditLogOptions): Promise<AuditLog> {
  return new Promise((resolve) => resolve(open(options)))
}

function open(options: AuditLogOptions): AuditLog {
  checkOptions(options)
  const { path, instance } = options
  let lock: InstanceLock | undefined
  try {
    makeFolder(path)
    lock = lockInstance(join(path, `audit-${instance}.lock`), instance, options.clock.wallMs)
    return new FileAuditLog(options, lock)
  } catch (error) {
    lock?.release()
    if (error instanceof SallyportError) throw error
    const message = `the audit log can't be written to \`${path}\` (${whyUnreadable(error)})`
    throw new SallyportError('SALLYPORT_AUDIT_UNWRITABLE', message, { cause: error })
  }
}

function checkOptions({ instance, ...options }: AuditLogOptions): void {
  if (!isInstanceName(instance)) {
    throw new TypeError(
      `audit instance \`${instance}\` is no name: letters and digits, inside also dots, hyphens and underscores, at most 64`,
    )
  }
  for (const name of ['maxFileBytes', 'checkpointMs', 'retryMs', 'maxKeptLines'] as const) {
    const value = options[name]
    if (value !== undefined && !(Number.isSafeInteger(value) && value > 0))
      throw new TypeError(`audit ${name} must be a whole number above zero`)
  }
}
