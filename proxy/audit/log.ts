/** Writes the audit log: every line in order, chained and in the file before anybody is told that it was written. */
import type { Clock } from '../clock.ts'
import type { SigningKey } from './key.ts'
import type { AuditLog } from './record.ts'

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
  /** Name of this gateway, unique in the folder: `[a-z0-9]`, dots, hyphens and underscores inside, 64 characters at most. */
  readonly instance: string
  /**
   * What the gateway does while lines can't be written. `deny`: it refuses, so an `allow` that could not be written in time is later written with
   * `effective: deny` and `reason: audit_unavailable`. `allow`: it lets through, so the line is later written as it was.
   */
  readonly onFailure: 'deny' | 'allow'
  /** Ed25519; signs the checkpoints. */
  readonly signingKey: SigningKey
  /** A segment is closed by the write that takes it to this size. Default 64 MiB. */
  readonly maxFileBytes?: number
  /** A checkpoint follows an unsigned line after at most this time. Default 10,000 ms. */
  readonly checkpointMs?: number
  /** How often writing is tried again after a failure. Default 500 ms. */
  readonly retryMs?: number
  /** Lines kept in memory while the log can't be written; the rest is counted and told in a `gap` line. Default 4,096. */
  readonly maxKeptLines?: number
  /** File that holds the last signed checkpoint, best outside `path`: a restart then sees that the end of the log was cut. */
  readonly headPath?: string
  /** Written into the `start` line. */
  readonly start?: { readonly detail?: string; readonly policy_version?: string }
  /** Called with each checkpoint line (without its newline) once it is in the file: for shipping it elsewhere. */
  readonly onCheckpoint?: (line: string) => void
  /** Called when the log becomes writable or stops being so. */
  readonly onWritable?: (writable: boolean) => void
  /** Called with the number of lines that were lost for good, for a metric. */
  readonly onLost?: (lines: number) => void
  readonly clock: Clock
  readonly logger?: AuditLogger
}

/**
 * Opens the log of one instance: takes its lock, continues the chain in a new segment and writes the `start` line.
 * The log writes `start`, `stop`, `checkpoint`, `segment`, `restored` and `gap` lines by itself; every other `admin` line is the caller's.
 * @throws SallyportError `SALLYPORT_AUDIT_UNWRITABLE`: in use by another process, not a folder, not writable, or its end can't be read
 */
export function openAuditLog(options: AuditLogOptions): Promise<AuditLog> {
  return Promise.reject(new Error(`not written yet: ${options.instance}`))
}
