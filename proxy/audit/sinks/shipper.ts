/**
 * Carries the lines of the log to one sink, in order and at least once, and keeps how far it got. A sink that is slow, down or refuses makes it late, never
 * forgetful: the queue is the log itself. It decides nothing about what is in a line.
 */
import { setTimeout as wait } from 'node:timers/promises'
import type { AuditLogger } from '../log.ts'
import { keepPosition, type Position, readPosition } from './position.ts'
import { type AuditRecord, LogReader } from './reader.ts'
import { DeliveryFault, type Sink } from './sink.ts'
import { lastSeq } from './log-end.ts'

/** What {@link Shipper} needs; all limits are finite. */
export interface ShipperOptions {
  /** Of the sink; in metrics and logs. */
  readonly name: string
  readonly sink: Sink
  /** Folder of the log. */
  readonly folder: string
  readonly instance: string
  /** File for the position. */
  readonly positionPath: string
  /** Most lines sent at once. Default 500. */
  readonly batchRecords?: number
  /** How often the end of the log is looked at. Default 200 ms. */
  readonly pollMs?: number
  /** First pause after a failure; each further one doubles it. Default 500 ms. */
  readonly firstPauseMs?: number
  /** Longest pause, also when the other side asks for more. Default 60 s. */
  readonly maxPauseMs?: number
  /** A line that this sink will never take; it stays in the files. */
  readonly onRefused?: (record: AuditRecord, why: string) => void
  readonly logger?: AuditLogger
  /** What its pauses are made of, and the wall clock that they pass by. Default: the machine's. */
  readonly time?: ShipperTime
}

/** Time, through a door. */
export interface ShipperTime {
  readonly wallMs: () => number
  /** Resolves after so long, or when the signal aborts. */
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>
}

/** How a sink is doing. */
export interface SinkStatus {
  readonly name: string
  /** Lines in the log that it has not taken. */
  readonly lagRecords: number
  /** Age of the oldest line that waits; 0 when none does. */
  readonly lagSeconds: number
  readonly delivered: number
  /** Attempts that failed. */
  readonly failures: number
  /** Lines that it will never take. */
  readonly refused: number
  /** Lines that were gone from the files before it had taken them. */
  readonly missing: number
  /** Number of the oldest file it still needs; 0 before the first. */
  readonly segment: number
}

const MACHINE_TIME: ShipperTime = {
  wallMs: Date.now,
  sleep: (ms, signal) => wait(ms, undefined, { signal }).catch(() => undefined),
}
const MAX_BATCH_BYTES = 512 * 1024
/** Other lines that are tried before one counts as refused for good. */
const MAX_PROBES = 8

/** Made once for a sink; {@link Shipper.start} begins. */
export class Shipper {
  readonly #options: ShipperOptions
  readonly #time: ShipperTime
  readonly #reader: LogReader
  readonly #stop = new AbortController()
  readonly #hurry = new AbortController()
  #kept: Position
  #unsettled: { readonly end: Position; readonly atMs: number }[] = []
  #batchSize: number
  #failuresInRow = 0
  #lastFault = ''
  #waitingSinceMs: number | undefined
  #counts = { delivered: 0, failures: 0, refused: 0, missing: 0 }
  #running: Promise<void> | undefined

  constructor(options: ShipperOptions) {
    this.#options = options
    this.#time = options.time ?? MACHINE_TIME
    this.#batchSize = options.batchRecords ?? 500
    const { position, isDamaged } = readPosition(options.positionPath)
    this.#kept = position
    this.#reader = new LogReader(options.folder, options.instance, position)
    if (isDamaged)
      this.#log('error', 'the position of an audit sink can not be read; it starts at the oldest file again', {})
  }

  /** Starts to carry lines. */
  start(): void {
    this.#running ??= this.#run()
  }

  /** How it is doing. */
  async status(): Promise<SinkStatus> {
    const { name, folder, instance } = this.#options
    const end = await lastSeq(folder, instance)
    const lagRecords = end === undefined ? 0 : Math.max(0, end - this.#kept.seq)
    const since = this.#waitingSinceMs
    const lagSeconds = lagRecords === 0 || since === undefined ? 0 : Math.max(0, this.#time.wallMs() - since) / 1000
    return { name, lagRecords, lagSeconds, ...this.#counts, segment: this.#kept.segment }
  }

  /** Whose log it carries. */
  get instance(): string {
    return this.#options.instance
  }

  /** Number of the oldest file that is still needed; 0 before the first. */
  get segment(): number {
    return this.#kept.segment
  }

  /** Carries what is in the log for up to `withinMs`, then stops; what is left goes at the next start. Idempotent. */
  async close(withinMs: number): Promise<void> {
    if (this.#running === undefined) return
    this.#hurry.abort()
    const limit = setTimeout(() => this.#stop.abort(), withinMs)
    await this.#running
    clearTimeout(limit)
    this.#stop.abort()
    this.#options.sink.close()
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      try {
        const isIdle = await this.#step()
        if (!isIdle) continue
        if (this.#hurry.signal.aborted && this.#unsettled.length === 0) return
        await this.#pause(this.#options.pollMs ?? 200, this.#hurry.signal.aborted ? undefined : this.#hurry.signal)
      } catch (error) {
        if (this.#isStopped()) return
        const pauseMs = this.#noteFault(error)
        this.#rewind()
        // A gateway that is stopping does not wait for a sink that is down: the position is on the disk.
        if (this.#hurry.signal.aborted) return
        await this.#pause(pauseMs, this.#hurry.signal)
      }
    }
  }

  #isStopped(): boolean {
    return this.#stop.signal.aborted
  }

  /** One batch; whether there was none. */
  async #step(): Promise<boolean> {
    await this.#settle()
    const { records, missing, foreign } = await this.#reader.next({
      records: this.#options.batchRecords ?? 500,
      bytes: MAX_BATCH_BYTES,
    })
    if (missing > 0) this.#noteMissing(missing)
    if (foreign > 0) this.#log('error', 'lines that are no audit lines are not sent on', { lines: foreign })
    const [first] = records
    this.#waitingSinceMs = first === undefined ? undefined : Date.parse(first.line.time)
    if (first === undefined) return foreign === 0
    await this.#send(records)
    return false
  }

  async #send(records: readonly AuditRecord[]): Promise<void> {
    for (let at = 0; at < records.length;) {
      const part = records.slice(at, at + this.#batchSize)
      try {
        await this.#options.sink.send(part, this.#stop.signal)
        await this.#take(part)
        at += part.length
        this.#batchSize = Math.min(this.#options.batchRecords ?? 500, this.#batchSize * 2)
      } catch (error) {
        if (!(error instanceof DeliveryFault) || error.outlook !== 'refused') throw error
        if (part.length > 1) this.#batchSize = Math.ceil(part.length / 2)
        else if (await this.#takesOthers(records.slice(at + 1))) at += await this.#passOver(part, error)
        else throw error
      }
    }
  }

  /** Whether the sink takes anything at the moment: one that refuses all lines is set up wrongly, and one line is not to blame. */
  async #takesOthers(others: readonly AuditRecord[]): Promise<boolean> {
    const stride = Math.max(1, Math.floor(others.length / MAX_PROBES))
    for (let index = 0; index < others.length; index += stride) {
      try {
        await this.#options.sink.send(others.slice(index, index + 1), this.#stop.signal)
        return true
      } catch (error) {
        if (!(error instanceof DeliveryFault) || error.outlook !== 'refused') throw error
      }
    }
    return false
  }

  async #passOver(part: readonly AuditRecord[], { message }: DeliveryFault): Promise<number> {
    for (const record of part) {
      this.#counts.refused += 1
      this.#log('error', 'an audit sink refuses a line; it stays in the files', {
        seq: record.line.seq,
        fault: message,
      })
      this.#options.onRefused?.(record, message)
      await this.#advance(record.end)
    }
    return part.length
  }

  async #take(part: readonly AuditRecord[]): Promise<void> {
    const end = part.at(-1)?.end
    this.#counts.delivered += part.length
    if (this.#failuresInRow > 0) this.#log('info', 'an audit sink takes lines again', {})
    this.#failuresInRow = 0
    this.#lastFault = ''
    if (end !== undefined) await this.#advance(end)
  }

  async #advance(end: Position): Promise<void> {
    const { settling } = this.#options.sink
    if (settling === undefined) await this.#keep(end)
    else this.#unsettled.push({ end, atMs: performance.now() + settling.afterMs })
  }

  async #settle(): Promise<void> {
    const { settling } = this.#options.sink
    if (settling === undefined) return
    if (settling.hasBroken() && this.#unsettled.length > 0)
      throw new DeliveryFault('the connection broke; the last lines are sent again')
    let settled: Position | undefined
    while (this.#unsettled[0] !== undefined && this.#unsettled[0].atMs <= performance.now())
      settled = this.#unsettled.shift()?.end
    if (settled !== undefined) await this.#keep(settled)
  }

  async #keep(position: Position): Promise<void> {
    this.#kept = position
    try {
      await keepPosition(this.#options.positionPath, position)
    } catch {
      // In memory it holds; after a restart lines are repeated, not lost.
      this.#log('error', 'the position of an audit sink can not be kept', {})
    }
  }

  #rewind(): void {
    this.#unsettled = []
    this.#reader.seek(this.#kept)
  }

  #noteFault(error: unknown): number {
    const { firstPauseMs = 500, maxPauseMs = 60_000 } = this.#options
    const fault = error instanceof DeliveryFault ? error.message : 'the log could not be read'
    this.#counts.failures += 1
    if (fault !== this.#lastFault) this.#log('error', 'an audit sink does not take lines; it is tried again', { fault })
    this.#lastFault = fault
    const doubled = firstPauseMs * 2 ** Math.min(this.#failuresInRow, 20)
    this.#failuresInRow += 1
    const asked = error instanceof DeliveryFault ? (error.retryAfterMs ?? 0) : 0
    // Several gateways that lost one sink should not come back at once.
    return Math.min(maxPauseMs, Math.max(asked, doubled * (0.5 + Math.random() / 2)))
  }

  #noteMissing(lines: number): void {
    this.#counts.missing += lines
    this.#log('error', 'lines were removed from the audit log before a sink had taken them', { lines })
  }

  async #pause(ms: number, early: AbortSignal | undefined): Promise<void> {
    const signal = early === undefined ? this.#stop.signal : AbortSignal.any([this.#stop.signal, early])
    await this.#time.sleep(ms, signal)
  }

  #log(level: 'info' | 'error', message: string, fields: object): void {
    this.#options.logger?.[level]({ sink: this.#options.name, ...fields }, message)
  }
}
