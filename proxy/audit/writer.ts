/** Makes lines of entries and puts them into segments: numbers, chain, checkpoints, rotation, and what to do when a file fails or was touched. No timers. */
import { join } from 'node:path'
import { chainLine, type ChainState, hashLine } from './chain.ts'
import { CHECKPOINT_LINES, signLine } from './checkpoint.ts'
import { quoteField } from './escape.ts'
import type { SigningKey } from './key.ts'
import { type CheckpointCause, formatEntry, type LogEntry, type LogOwnEntry, type PreviousEnd } from './line.ts'
import type { Resumed } from './resume.ts'
import { errorCode, Segment, type WriteBytes } from './segment.ts'
import { segmentName } from './segments.ts'

/** An entry and when it happened. */
export interface Pending {
  readonly entry: LogEntry
  readonly timeMs: number
}

/** How many of the entries are in the file; `fault` when that isn't all of them. */
export interface Written {
  readonly count: number
  readonly fault?: string
}

/** What {@link LogWriter} needs. */
export interface WriterOptions {
  readonly folder: string
  readonly instance: string
  readonly key: SigningKey
  readonly maxFileBytes: number
  readonly nowMs: () => number
  /** A checkpoint is in the file. */
  readonly onCheckpoint: (line: string) => void
  /** Somebody touched the files. */
  readonly onTouched: (detail: string) => void
  readonly write: WriteBytes | undefined
}

/** Lines that are not in the file yet, and what holds once each of them is. */
interface Draft {
  length: number
  readonly marks: Mark[]
}

interface Mark {
  /** Bytes of the draft up to the end of the line. */
  readonly end: number
  readonly chain: ChainState
  readonly unsigned: number
  /** The line is a caller's. */
  readonly counts: boolean
  readonly checkpoint: string | undefined
}

interface SegmentStart {
  readonly action: 'start' | 'segment'
  readonly previous: PreviousEnd
  readonly tornBytes: number
  readonly detail: string | undefined
  readonly policyVersion?: string | undefined
}

/** Writes the lines of one run. Whatever fails, what `append` counted is in a file, whole and in order. */
export class LogWriter {
  readonly #options: WriterOptions
  readonly #instance: string
  #chain: ChainState
  #segment: Segment | undefined
  #nextNumber: number
  #nextStart: SegmentStart
  #buffer = Buffer.allocUnsafeSlow(64 * 1024)
  #unsigned = 0
  #isRemoved = false
  #closing = Promise.resolve()

  constructor(options: WriterOptions, resumed: Resumed, start: { readonly detail?: string; readonly policy_version?: string }) {
    this.#options = options
    this.#instance = quoteField(options.instance)
    this.#chain = resumed.chain
    this.#nextNumber = resumed.nextNumber
    const detail = [resumed.detail, start.detail].filter((part) => part !== undefined).join('; ')
    this.#nextStart = {
      action: 'start',
      previous: resumed.previous,
      tornBytes: resumed.tornBytes,
      detail: detail === '' ? undefined : detail,
      policyVersion: start.policy_version,
    }
  }

  /** Lines in the file that no checkpoint covers yet. */
  get unsignedLines(): number {
    return this.#unsigned
  }

  /** Number of the last line. */
  get lastSeq(): number {
    return this.#chain.seq
  }

  /** Writes the first line of the run, and signs it: with it all that an earlier run left unsigned. */
  start(): Written {
    return this.#append([], 'start', 2)
  }

  /** Writes entries, in order, with one write. */
  append(pending: readonly Pending[]): Written {
    return this.#append(pending, undefined, 2)
  }

  /** Signs what is in the file. */
  checkpoint(cause: 'interval' | 'segment'): Written {
    const written = this.#append([], cause, 2)
    if (written.fault === undefined && cause === 'segment') this.#closeSegment()
    return written
  }

  /** Writes the last entry of the run and the checkpoint that closes it. */
  stop(last: Pending): Written {
    return this.#append([last], 'stop', 2)
  }

  /** Brings the open file to the disk; resolves `false` when that failed. */
  sync(): Promise<boolean> {
    const segment = this.#segment
    const isSynced = segment === undefined || new Promise<boolean>((resolve) => segment.sync((error) => resolve(error === null)))
    return this.#closing.then(() => isSynced)
  }

  /** Gives up the open file, without a checkpoint; waits for files that are being closed. */
  close(): Promise<void> {
    if (this.#segment !== undefined) this.#closeSegment()
    return this.#closing
  }

  #append(pending: readonly Pending[], cause: CheckpointCause | undefined, attempts: number): Written {
    try {
      if (this.#isRemoved) this.#restore()
      const draft = this.#draft(pending, cause)
      return draft.marks.length === 0 ? { count: 0 } : this.#put(draft, pending, cause, attempts)
    } catch (error) {
      return { count: 0, fault: errorCode(error) }
    }
  }

  #draft(pending: readonly Pending[], cause: CheckpointCause | undefined): Draft {
    const draft: Draft = { length: 0, marks: [] }
    const { number } = (this.#segment ??= this.#open(draft))
    for (const { entry, timeMs } of pending) {
      if ((draft.marks.at(-1)?.unsigned ?? this.#unsigned) >= CHECKPOINT_LINES) this.#draftCheckpoint(draft, 'lines', number)
      this.#draftLine(draft, entry, timeMs, true)
    }
    if (cause !== undefined) this.#draftCheckpoint(draft, cause, number)
    return draft
  }

  #draftCheckpoint(draft: Draft, cause: CheckpointCause, segment: number): void {
    this.#draftLine(draft, { kind: 'admin', action: 'checkpoint', segment, cause }, this.#options.nowMs(), false)
  }

  #draftStart(draft: Draft, segment: Segment): void {
    const { action, previous, tornBytes, detail, policyVersion } = this.#nextStart
    const entry: LogOwnEntry = { kind: 'admin', action, detail, policy_version: policyVersion, segment: segment.number, previous, torn_bytes: tornBytes }
    this.#draftLine(draft, entry, this.#options.nowMs(), false)
  }

  #draftLine(draft: Draft, entry: LogEntry, timeMs: number, counts: boolean): void {
    const last = draft.marks.at(-1)
    const { seq: lastSeq, head } = last?.chain ?? this.#chain
    const isAdmin = entry.kind === 'admin'
    const seq = lastSeq + 1 + (isAdmin && entry.action === 'gap' ? (entry.lost ?? 0) : 0)
    const body = formatEntry(entry, seq, timeMs, this.#instance)
    const isCheckpoint = isAdmin && 'cause' in entry
    const line = isCheckpoint ? signLine(body, head, this.#options.key) : chainLine(body, head)
    this.#reserve(draft.length + line.length)
    draft.length += this.#buffer.write(line, draft.length, 'latin1')
    draft.marks.push({
      end: draft.length,
      chain: { seq, head: hashLine(line) },
      unsigned: isCheckpoint ? 0 : (last?.unsigned ?? this.#unsigned) + 1,
      counts,
      checkpoint: isCheckpoint ? line : undefined,
    })
  }

  /** One buffer for all drafts: a new one for each costs more than all else in a line. */
  #reserve(length: number): void {
    if (length <= this.#buffer.length) return
    const larger = Buffer.allocUnsafeSlow(Math.max(length, 2 * this.#buffer.length))
    this.#buffer.copy(larger)
    this.#buffer = larger
  }

  #put(draft: Draft, pending: readonly Pending[], cause: CheckpointCause | undefined, attempts: number): Written {
    const segment = this.#segment
    if (segment === undefined) return { count: 0, fault: 'EBADF' }
    const appended = segment.append(this.#buffer.subarray(0, draft.length))
    switch (appended.state) {
      case 'ok':
        this.#commit(segment, draft, draft.length)
        if (segment.size >= this.#options.maxFileBytes && cause === undefined) this.checkpoint('segment')
        return { count: pending.length }
      case 'moved':
        this.#commit(segment, draft, draft.length)
        this.#leaveMoved(segment)
        return { count: pending.length }
      case 'failed':
        return this.#takeBack(segment, draft, appended.written, appended.code)
      case 'removed':
        this.#isRemoved = segment.size > 0
        if (!this.#isRemoved) this.#dropEmpty(segment)
        break
      case 'foreign':
        this.#abandon(segment, 0, `file ${segment.number} was replaced or changed by somebody else`)
    }
    return attempts === 0 ? { count: 0, fault: 'ESTALE' } : this.#append(pending, cause, attempts - 1)
  }

  #commit(segment: Segment, draft: Draft, bytes: number): number {
    let last: Mark | undefined
    let count = 0
    for (const mark of draft.marks) {
      if (mark.end > bytes) break
      last = mark
      if (mark.counts) count += 1
      if (mark.checkpoint !== undefined) this.#options.onCheckpoint(mark.checkpoint)
    }
    if (last === undefined) return 0
    segment.commit(last.end)
    this.#chain = last.chain
    this.#unsigned = last.unsigned
    return count
  }

  #takeBack(segment: Segment, draft: Draft, written: number, fault: string): Written {
    const before = segment.size
    const count = this.#commit(segment, draft, written)
    const torn = segment.takeBack(written - (segment.size - before))
    if (segment.size === 0 && torn === 0) this.#dropEmpty(segment)
    else if (torn > 0) this.#abandon(segment, torn, `file ${segment.number} failed with ${fault}`)
    return { count, fault }
  }

  #restore(): void {
    const segment = this.#segment
    if (segment === undefined) return
    segment.restore()
    this.#isRemoved = false
    const detail = `file ${segment.number} had been removed under the running gateway; its ${segment.size} bytes were put back`
    this.#options.onTouched(detail)
    this.#append([{ entry: { kind: 'admin', action: 'restored', detail }, timeMs: this.#options.nowMs() }], undefined, 0)
  }

  #leaveMoved(segment: Segment): void {
    this.#options.onTouched(`file ${segment.number} was moved away under the running gateway; a new one follows`)
    const draft: Draft = { length: 0, marks: [] }
    this.#draftCheckpoint(draft, 'segment', segment.number)
    if (segment.append(this.#buffer.subarray(0, draft.length)).state === 'failed') this.#abandon(segment, 0, `file ${segment.number} was moved away`)
    else {
      this.#commit(segment, draft, draft.length)
      this.#closeSegment()
    }
  }

  #abandon(segment: Segment, tornBytes: number, detail: string): void {
    this.#options.onTouched(detail)
    const start = this.#nextStart
    this.#closeSegment()
    if (segment.size > 0) this.#nextStart = { action: 'segment', previous: 'abandoned', tornBytes, detail }
    // Not even the first line got into that file: the next one says what it would have said.
    else this.#nextStart = { ...start, previous: afterTorn(start), tornBytes: start.tornBytes + tornBytes }
  }

  #dropEmpty(segment: Segment): void {
    segment.discard()
    this.#segment = undefined
    this.#nextNumber = segment.number
  }

  #closeSegment(): void {
    const segment = this.#segment
    if (segment === undefined) return
    this.#segment = undefined
    this.#isRemoved = false
    this.#nextStart = { action: 'segment', previous: 'segment', tornBytes: 0, detail: undefined }
    const before = this.#closing
    this.#closing = new Promise((resolve) => segment.close(() => void before.then(resolve)))
  }

  #open(draft: Draft): Segment {
    const segment = new Segment(join(this.#options.folder, segmentName(this.#options.instance, this.#nextNumber)), this.#nextNumber, this.#options.write)
    this.#nextNumber += 1
    this.#draftStart(draft, segment)
    return segment
  }
}

function afterTorn({ action, previous }: SegmentStart): PreviousEnd {
  if (previous === 'missing') return previous
  return action === 'start' ? 'unclean' : 'abandoned'
}
