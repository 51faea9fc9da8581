/** Writes the audit log: every line in order, chained and in the file before anybody is told that it was written. */
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { SallyportError } from '../../policies/error.ts'
import type { Clock } from '../clock.ts'
import { HeadFile } from './head.ts'
import type { SigningKey } from './key.ts'
import type { LogEntry } from './line.ts'
import { type InstanceLock, lockInstance } from './lock.ts'
import type { AuditEntry, AuditLog } from './record.ts'
import { resumeLog } from './resume.ts'
import { errorCode, type WriteBytes } from './segment.ts'
import { isInstanceName } from './segments.ts'
import { LogWriter, type Pending, type Written } from './writer.ts'

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
  /** Called with the number of lines that were lost for good, for a metric. */
  readonly onLost?: (lines: number) => void
  readonly clock: Clock
  readonly logger?: AuditLogger
  /** Instead of the system's write: for tests. */
  readonly writeBytes?: WriteBytes
}

/**
 * Opens the log of one instance: takes its lock, continues the chain in a new file and writes the `start` line.
 * The log writes `start`, `stop`, `checkpoint`, `segment`, `restored` and `gap` lines by itself; every other `admin` line is the caller's.
 * @throws SallyportError `SALLYPORT_AUDIT_UNWRITABLE`: in use by another process, no folder, not writable, or its end can't be read
 * @throws TypeError for a name or a limit that can't be
 */
export async function openAuditLog(options: AuditLogOptions): Promise<AuditLog> {
  checkOptions(options)
  const { path, instance } = options
  let lock: InstanceLock | undefined
  try {
    mkdirSync(path, { recursive: true, mode: 0o700 })
    lock = lockInstance(join(path, `audit-${instance}.lock`), instance, options.clock.wallMs)
    return new FileAuditLog(options, lock)
  } catch (error) {
    lock?.release()
    if (error instanceof SallyportError) throw error
    throw new SallyportError('SALLYPORT_AUDIT_UNWRITABLE', `the audit log can't be written to \`${path}\` (${errorCode(error)})`, { cause: error })
  }
}

interface Waiting extends Pending {
  /** Undefined once the caller was told that the line isn't written. */
  answer: ((isWritten: boolean) => void) | undefined
}

/** Most entries in one write: bounds the memory of a batch. */
const MAX_BATCH = 512
const TOUCH_LOCK_MS = 5000
const STOLEN = 'ELOCKED'

class FileAuditLog implements AuditLog {
  readonly #options: AuditLogOptions
  readonly #lock: InstanceLock
  readonly #writer: LogWriter
  readonly #head: HeadFile | undefined
  readonly #maxKept: number
  readonly #lockTimer: NodeJS.Timeout
  #queue: Waiting[] = []
  #isFlushPlanned = false
  #failure: string | undefined
  #lost = 0
  #lostFromMs = 0
  #retryTimer: NodeJS.Timeout | undefined
  #checkpointTimer: NodeJS.Timeout | undefined
  #lastCheckpoint: string | undefined
  #closed: Promise<void> | undefined

  constructor(options: AuditLogOptions, lock: InstanceLock) {
    const { path: folder, instance, signingKey: key, headPath } = options
    this.#options = options
    this.#lock = lock
    this.#maxKept = options.maxKeptLines ?? 4096
    this.#head = headPath === undefined ? undefined : new HeadFile(headPath, (error) => options.logger?.warn({ code: errorCode(error) }, 'the head of the audit log could not be kept'))
    this.#writer = new LogWriter(
      {
        folder,
        instance,
        key,
        maxFileBytes: options.maxFileBytes ?? 64 * 1024 * 1024,
        nowMs: options.clock.wallMs,
        onCheckpoint: (line) => this.#noteCheckpoint(line),
        onTouched: (detail) => options.logger?.error({ detail }, 'somebody touched the files of the audit log'),
        write: options.writeBytes,
      },
      resumeLog(folder, instance, headPath, key),
      options.start ?? {},
    )
    const started = this.#writer.start()
    if (started.fault !== undefined) void this.#writer.close()
    if (started.fault !== undefined) throw Object.assign(new Error('the first line could not be written'), { code: started.fault })
    this.#lockTimer = setInterval(() => this.#touchLock(), TOUCH_LOCK_MS).unref()
    this.#planCheckpoint()
  }

  readonly isWritable = (): boolean => this.#failure === undefined && this.#closed === undefined

  readonly write = (entry: AuditEntry): Promise<boolean> => {
    if (this.#closed !== undefined) return Promise.resolve(false)
    const timeMs = this.#options.clock.wallMs()
    if (this.#failure !== undefined) {
      this.#keep({ entry: this.#asKept(entry), timeMs, answer: undefined })
      return Promise.resolve(false)
    }
    return new Promise((answer) => {
      this.#queue.push({ entry, timeMs, answer })
      if (this.#queue.length >= MAX_BATCH) this.#flush()
      else if (!this.#isFlushPlanned) {
        this.#isFlushPlanned = true
        setImmediate(this.#flushPlanned)
      }
    })
  }

  readonly close = (): Promise<void> => (this.#closed ??= this.#stop())

  readonly #flushPlanned = (): void => {
    this.#isFlushPlanned = false
    if (this.#failure === undefined) this.#flush()
  }

  /** Writes all that waits; the lines of one turn with one write. */
  #flush(): void {
    while (this.#queue.length > 0) {
      const batch = this.#queue.length <= MAX_BATCH ? this.#queue : this.#queue.slice(0, MAX_BATCH)
      const written = this.#writer.append(batch)
      for (let index = 0; index < written.count; index += 1) batch[index]?.answer?.(true)
      this.#queue = written.count === this.#queue.length ? [] : this.#queue.slice(written.count)
      if (written.fault !== undefined) return this.#fail(written.fault)
    }
    if (this.#lost > 0) this.#writeGap()
    else if (this.#failure !== undefined) this.#recover()
    this.#planCheckpoint()
  }

  /** Tries again after a failure; with nothing to write, a checkpoint shows whether it goes. */
  #retry(): void {
    const probe = this.#queue.length === 0 && this.#lost === 0 ? this.#writer.checkpoint('interval') : { fault: undefined }
    if (probe.fault === undefined) this.#flush()
    else this.#fail(probe.fault)
  }

  #writeGap(): void {
    const detail = `${this.#lost} lines since ${new Date(this.#lostFromMs).toISOString()} could not be written and are lost`
    const written = this.#writer.append([{ entry: { kind: 'admin', action: 'gap', detail, lost: this.#lost }, timeMs: this.#options.clock.wallMs() }])
    if (written.count === 1) this.#lost = 0
    if (written.fault !== undefined) this.#fail(written.fault)
    else if (this.#failure !== undefined) this.#recover()
  }

  #fail(code: string): void {
    const isNew = this.#failure === undefined
    this.#failure = code
    if (isNew) this.#refuseWaiting()
    if (this.#closed !== undefined || code === STOLEN) return
    this.#retryTimer = setTimeout(() => this.#retry(), this.#options.retryMs ?? 500).unref()
    if (!isNew) return
    this.#options.logger?.error({ code, path: this.#options.path }, 'the audit log cannot be written')
    this.#options.onWritable?.(false)
  }

  #refuseWaiting(): void {
    const waiting = this.#queue
    this.#queue = []
    for (const { entry, timeMs, answer } of waiting) {
      this.#keep({ entry: answer === undefined ? entry : this.#asKept(entry), timeMs, answer: undefined })
      answer?.(false)
    }
  }

  #recover(): void {
    this.#failure = undefined
    this.#options.logger?.info({ path: this.#options.path }, 'the audit log can be written again')
    this.#options.onWritable?.(true)
  }

  /** What comes after a lost line is lost too, so that there is one gap and not many. */
  #keep(waiting: Waiting): void {
    if (this.#lost === 0 && this.#queue.length < this.#maxKept) {
      this.#queue.push(waiting)
      return
    }
    if (this.#lost === 0) this.#lostFromMs = waiting.timeMs
    this.#lost += 1
    this.#options.onLost?.(1)
  }

  /** A gateway that denies on failure refuses what it could not write down; the line has to say so. */
  #asKept(entry: LogEntry): LogEntry {
    if (this.#options.onFailure !== 'deny' || entry.kind !== 'decision' || entry.effective === 'deny') return entry
    return { ...entry, effective: 'deny', reason: 'audit_unavailable' }
  }

  #planCheckpoint(): void {
    if (this.#checkpointTimer !== undefined || this.#writer.unsignedLines === 0 || this.#closed !== undefined) return
    this.#checkpointTimer = setTimeout(() => {
      this.#checkpointTimer = undefined
      if (this.#failure === undefined && this.#writer.unsignedLines > 0) this.#signNow()
      this.#planCheckpoint()
    }, this.#options.checkpointMs ?? 10_000).unref()
  }

  #signNow(): void {
    const { fault } = this.#writer.checkpoint('interval')
    if (fault === undefined) void this.#keepHead()
    else this.#fail(fault)
  }

  #noteCheckpoint(line: string): void {
    this.#lastCheckpoint = line
    try {
      this.#options.onCheckpoint?.(line)
    } catch (error) {
      this.#options.logger?.error({ code: errorCode(error) }, 'a checkpoint could not be handed on')
    }
  }

  /** The head never runs ahead of what a loss of power leaves. */
  async #keepHead(): Promise<void> {
    const line = this.#lastCheckpoint
    const isSynced = await this.#writer.sync()
    if (line !== undefined && isSynced) await this.#head?.keep(line)
  }

  #touchLock(): void {
    if (this.#lock.touch()) return
    this.#options.logger?.error({ path: this.#options.path }, 'another gateway took over the audit log of this instance')
    clearInterval(this.#lockTimer)
    clearTimeout(this.#retryTimer)
    if (this.#failure === undefined) this.#options.onWritable?.(false)
    this.#fail(STOLEN)
  }

  async #stop(): Promise<void> {
    for (const timer of [this.#retryTimer, this.#checkpointTimer, this.#lockTimer]) clearTimeout(timer)
    if (this.#failure === undefined) this.#flush()
    else if (this.#failure !== STOLEN) this.#retry()
    const written: Written = this.#failure === undefined ? this.#writer.stop({ entry: { kind: 'admin', action: 'stop' }, timeMs: this.#options.clock.wallMs() }) : { count: 0, fault: this.#failure }
    if (written.fault === undefined) await this.#keepHead()
    else this.#noteUnclean(written.fault)
    await this.#writer.close()
    this.#lock.release()
  }

  #noteUnclean(code: string): void {
    const lines = this.#queue.length + this.#lost
    if (this.#queue.length > 0) this.#options.onLost?.(this.#queue.length)
    this.#options.logger?.error({ code, lines }, 'the audit log was closed without its last checkpoint; these lines are lost')
  }
}

function checkOptions({ instance, ...options }: AuditLogOptions): void {
  if (!isInstanceName(instance)) {
    throw new TypeError(`audit instance \`${instance}\` is no name: letters and digits, inside also dots, hyphens and underscores, at most 64`)
  }
  for (const name of ['maxFileBytes', 'checkpointMs', 'retryMs', 'maxKeptLines'] as const) {
    const value = options[name]
    if (value !== undefined && !(Number.isSafeInteger(value) && value > 0)) throw new TypeError(`audit ${name} must be a whole number above zero`)
  }
}
