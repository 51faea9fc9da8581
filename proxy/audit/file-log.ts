/** The audit log over its writer: what waits in memory, when it is written, what happens while it can't be. */
import { DiskSync } from './disk-sync.ts'
import { HeadKeeper } from './head.ts'
import type { LogEntry } from './line.ts'
import type { InstanceLock } from './lock.ts'
import type { AuditLogOptions } from './log.ts'
import type { AuditEntry, AuditLog } from './record.ts'
import { resumeLog } from './resume.ts'
import { errorCode } from './segment.ts'
import { LogWriter, type Pending, type Written } from './writer.ts'

interface Waiting extends Pending {
  /** Undefined once the caller was told that the line isn't written. */
  answer: ((isWritten: boolean) => void) | undefined
}

/** Most entries in one write: bounds the memory of a batch. */
const MAX_BATCH = 512
/** For the line of an end nobody waits: it goes with the next line for which somebody does, or after so many milliseconds. */
const CLOSE_WAIT_MS = 20
const TOUCH_LOCK_MS = 5000
const STOLEN = 'ELOCKED'

/** Made by `openAuditLog`. */
export class FileAuditLog implements AuditLog {
  readonly #options: AuditLogOptions
  readonly #lock: InstanceLock
  readonly #writer: LogWriter
  readonly #head: HeadKeeper
  readonly #disk: DiskSync
  readonly #maxKept: number
  readonly #lockTimer: NodeJS.Timeout
  #queue: Waiting[] = []
  #isFlushPlanned = false
  #lateFlush: NodeJS.Timeout | undefined
  #failure: string | undefined
  #lost = 0
  #lostFromMs = 0
  #retryTimer: NodeJS.Timeout | undefined
  #checkpointTimer: NodeJS.Timeout | undefined
  #lastCheckpoint: string | undefined
  /** Number of the last line that is on the disk for sure. */
  #syncedSeq = 0
  #closed: Promise<void> | undefined

  constructor(options: AuditLogOptions, lock: InstanceLock) {
    const { path: folder, instance, signingKey: key, headPath } = options
    this.#options = options
    this.#lock = lock
    this.#maxKept = options.maxKeptLines ?? 4096
    this.#head = new HeadKeeper({
      path: headPath,
      last: () => this.#lastCheckpoint,
      sync: () => this.#sync(),
      onError: (error) =>
        options.logger?.warn({ code: errorCode(error) }, 'the head of the audit log could not be kept'),
    })
    this.#disk = new DiskSync({ mode: options.sync ?? 'interval', sync: () => this.#sync() })
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
        syncFile: options.syncFile,
      },
      resumeLog(folder, instance, headPath, key),
      options.start ?? {},
    )
    this.#syncedSeq = this.#writer.lastSeq
    const started = this.#writer.start()
    if (started.fault !== undefined) void this.#writer.close()
    if (started.fault !== undefined)
      throw Object.assign(new Error('the first line could not be written'), { code: started.fault })
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
      else if (entry.kind === 'close') this.#lateFlush ??= setTimeout(this.#flushLate, CLOSE_WAIT_MS)
      else if (!this.#isFlushPlanned) {
        this.#isFlushPlanned = true
        setImmediate(this.#flushPlanned)
      }
    })
  }

  readonly close = (): Promise<void> => (this.#closed ??= this.#stop())

  readonly #flushLate = (): void => {
    this.#lateFlush = undefined
    if (this.#failure === undefined && !this.#isFlushPlanned) this.#flush()
  }

  readonly #flushPlanned = (): void => {
    this.#isFlushPlanned = false
    if (this.#failure === undefined) this.#flush()
  }

  /** Writes all that waits; the lines of one turn with one write. */
  #flush(): void {
    while (this.#queue.length > 0) {
      const batch = this.#queue.length <= MAX_BATCH ? this.#queue : this.#queue.slice(0, MAX_BATCH)
      const written = this.#writer.append(batch)
      for (let index = 0; index < written.count; index += 1) this.#tellWritten(batch[index])
      if (batch[0] !== undefined && written.count > 0)
        this.#options.onWrite?.(Math.max(0, this.#options.clock.wallMs() - batch[0].timeMs))
      this.#queue = written.count === this.#queue.length ? [] : this.#queue.slice(written.count)
      if (written.fault !== undefined) {
        this.#fail(written.fault)
        return
      }
    }
    if (this.#lost > 0) this.#writeGap()
    else if (this.#failure !== undefined) this.#recover()
    this.#planCheckpoint()
  }

  #tellWritten(line: Waiting | undefined): void {
    if (line?.answer === undefined) return
    // Nobody waits for the line of an end.
    if (line.entry.kind === 'close' && this.#options.sync === 'each') line.answer(true)
    else this.#disk.wrote(line.answer)
    this.#options.onEntry?.(line.entry)
  }

  /** Tries again after a failure; with nothing to write, a checkpoint shows whether it goes. */
  #retry(): void {
    const probe =
      this.#queue.length === 0 && this.#lost === 0 ? this.#writer.checkpoint('interval') : { fault: undefined }
    if (probe.fault === undefined) this.#flush()
    else this.#fail(probe.fault)
  }

  #writeGap(): void {
    const detail = `${this.#lost} lines since ${new Date(this.#lostFromMs).toISOString()} could not be written and are lost`
    const written = this.#writer.append([
      { entry: { kind: 'admin', action: 'gap', detail, lost: this.#lost }, timeMs: this.#options.clock.wallMs() },
    ])
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
    this.#options.onEntry?.(waiting.entry)
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
    // Nobody was let out: the name had no address, or nobody answered there. That is what the client was told.
    if (/^(?:dns|connect)_/.test(entry.reason ?? '')) return entry
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
    if (fault === undefined) void this.#head.keep()
    else this.#fail(fault)
  }

  async #sync(): Promise<boolean> {
    const { lastSeq } = this.#writer
    const isSynced = await this.#writer.sync()
    if (isSynced) this.#syncedSeq = Math.max(this.#syncedSeq, lastSeq)
    else if (this.#failure === undefined) this.#failUnsynced()
    return isSynced
  }

  /** Not the write failed, but the disk: the system may have dropped what it had taken, and says so only once. */
  #failUnsynced(): void {
    const areRefused = this.#options.sync === 'each' && this.#options.onFailure === 'deny'
    const detail =
      `lines ${this.#syncedSeq + 1} to ${this.#writer.lastSeq} were written, but could not be brought to the disk` +
      (areRefused ? '; connections that waited for that were refused' : '')
    this.#writer.giveUp(detail)
    this.#fail('EIO')
    this.#keep({
      entry: { kind: 'admin', action: 'sync_failed', detail },
      timeMs: this.#options.clock.wallMs(),
      answer: undefined,
    })
  }

  #noteCheckpoint(line: string): void {
    this.#lastCheckpoint = line
    try {
      this.#options.onCheckpoint?.(line)
    } catch (error) {
      this.#options.logger?.error({ code: errorCode(error) }, 'a checkpoint could not be handed on')
    }
  }

  #touchLock(): void {
    if (this.#lock.touch()) return
    this.#options.logger?.error(
      { path: this.#options.path },
      'another gateway took over the audit log of this instance',
    )
    clearInterval(this.#lockTimer)
    clearTimeout(this.#retryTimer)
    if (this.#failure === undefined) this.#options.onWritable?.(false)
    this.#fail(STOLEN)
  }

  async #stop(): Promise<void> {
    for (const timer of [this.#lateFlush, this.#retryTimer, this.#checkpointTimer, this.#lockTimer]) clearTimeout(timer)
    if (this.#failure === undefined) this.#flush()
    else if (this.#failure !== STOLEN) this.#retry()
    await this.#disk.settle()
    const written: Written =
      this.#failure === undefined
        ? this.#writer.stop({ entry: { kind: 'admin', action: 'stop' }, timeMs: this.#options.clock.wallMs() })
        : { count: 0, fault: this.#failure }
    if (written.fault === undefined) await this.#head.keep()
    else this.#noteUnclean(written.fault)
    await this.#writer.close()
    this.#lock.release()
  }

  #noteUnclean(code: string): void {
    const lines = this.#queue.length + this.#lost
    if (this.#queue.length > 0) this.#options.onLost?.(this.#queue.length)
    this.#options.logger?.error(
      { code, lines },
      'the audit log was closed without its last checkpoint; these lines are lost',
    )
  }
}
