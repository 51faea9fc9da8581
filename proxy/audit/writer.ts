/** Puts lines into files: checkpoints, rotation, and what to do when a file fails or was touched. No timers. */
import { join } from 'node:path'
import type { ChainState } from './chain.ts'
import { CHECKPOINT_LINES } from './checkpoint.ts'
import { Draft, type Mark } from './draft.ts'
import type { SigningKey } from './key.ts'
import type { CheckpointCause, LogEntry, LogOwnEntry, PreviousEnd } from './line.ts'
import type { Resumed } from './resume.ts'
import { errorCode, Segment, type SyncFile, type WriteBytes } from './segment.ts'
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
  readonly syncFile: SyncFile | undefined
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
  readonly #draft: Draft
  #chain: ChainState
  #segment: Segment | undefined
  #nextNumber: number
  #nextStart: SegmentStart
  #unsigned = 0
  #isRemoved = false
  #closing = Promise.resolve()
  /** A file that was closed may not be on the disk. */
  #isCloseLost = false

  constructor(
    options: WriterOptions,
    resumed: Resumed,
    start: { readonly detail?: string; readonly policy_version?: string },
  ) {
    this.#options = options
    this.#draft = new Draft(options.instance, options.key)
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

  /** Number of the last line in the file. */
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

  /** Brings all that was written to the disk; resolves `false` when that failed, also for a file that was closed since the last time. */
  async sync(): Promise<boolean> {
    const segment = this.#segment
    const syncing =
      segment === undefined || new Promise<boolean>((resolve) => segment.sync((error) => resolve(error === null)))
    const [isSynced] = await Promise.all([syncing, this.#closing])
    return isSynced && !this.#isCloseLost
  }

  /** After a failed {@link LogWriter.sync}: goes on in another file, since nobody knows what of this one is on the disk. */
  giveUp(detail: string): void {
    this.#isCloseLost = false
    if (this.#segment !== undefined && !this.#isRemoved) this.#abandon(this.#segment, 0, detail, false)
  }

  /** Gives up the open file, without a checkpoint; waits for files that are being closed. */
  close(): Promise<void> {
    if (this.#segment !== undefined) this.#closeSegment()
    return this.#closing
  }

  #append(pending: readonly Pending[], cause: CheckpointCause | undefined, attempts: number): Written {
    try {
      if (this.#isRemoved) this.#restore()
      const segment = this.#prepare(pending, cause)
      return this.#draft.marks.length === 0 ? { count: 0 } : this.#put(segment, pending, cause, attempts)
    } catch (error) {
      return { count: 0, fault: errorCode(error) }
    }
  }

  /** Drafts the lines, and before them the first line of a file when there is none open. */
  #prepare(pending: readonly Pending[], cause: CheckpointCause | undefined): Segment {
    this.#draft.begin(this.#chain, this.#unsigned)
    const segment = (this.#segment ??= this.#open())
    for (const { entry, timeMs } of pending) {
      if (this.#draft.unsigned >= CHECKPOINT_LINES) this.#addCheckpoint('lines', segment)
      this.#draft.add(entry, timeMs, true)
    }
    if (cause !== undefined) this.#addCheckpoint(cause, segment)
    return segment
  }

  #addCheckpoint(cause: CheckpointCause, { number }: Segment): void {
    const entry: LogOwnEntry = { kind: 'admin', action: 'checkpoint', segment: number, cause }
    this.#draft.add(entry, this.#options.nowMs(), false)
  }

  #put(segment: Segment, pending: readonly Pending[], cause: CheckpointCause | undefined, attempts: number): Written {
    const { bytes } = this.#draft
    const appended = segment.append(bytes)
    switch (appended.state) {
      case 'ok':
        this.#commit(segment, bytes.length)
        if (segment.size >= this.#options.maxFileBytes && cause === undefined) this.checkpoint('segment')
        return { count: pending.length }
      case 'moved':
        this.#commit(segment, bytes.length)
        if (cause !== 'segment' && cause !== 'stop') this.#leaveMoved(segment)
        return { count: pending.length }
      case 'failed':
        return this.#takeBack(segment, appended.written, appended.code)
      case 'removed':
        this.#isRemoved = segment.size > 0
        if (!this.#isRemoved) this.#dropEmpty(segment)
        break
      case 'foreign':
        this.#abandon(segment, 0, `file ${segment.number} was replaced or changed by somebody else`)
    }
    return attempts === 0 ? { count: 0, fault: 'ESTALE' } : this.#append(pending, cause, attempts - 1)
  }

  /** Counts the lines that are whole in the first `bytes` of the draft; how many of them are a caller's. */
  #commit(segment: Segment, bytes: number): number {
    let last: Mark | undefined
    let count = 0
    for (const mark of this.#draft.marks) {
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

  #takeBack(segment: Segment, written: number, fault: string): Written {
    const before = segment.size
    const count = this.#commit(segment, written)
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
    this.#append(
      [{ entry: { kind: 'admin', action: 'restored', detail }, timeMs: this.#options.nowMs() }],
      undefined,
      0,
    )
  }

  #leaveMoved(segment: Segment): void {
    this.#options.onTouched(`file ${segment.number} was moved away under the running gateway; a new one follows`)
    this.#draft.begin(this.#chain, this.#unsigned)
    this.#addCheckpoint('segment', segment)
    const { bytes } = this.#draft
    if (segment.append(bytes).state === 'failed') this.#abandon(segment, 0, `file ${segment.number} was moved away`)
    else {
      this.#commit(segment, bytes.length)
      this.#closeSegment()
    }
  }

  /** `countsClose`: whether it still matters if the file reaches the disk. */
  #abandon(segment: Segment, tornBytes: number, detail: string, countsClose = true): void {
    this.#options.onTouched(detail)
    const start = this.#nextStart
    this.#closeSegment(countsClose)
    if (segment.size > 0) this.#nextStart = { action: 'segment', previous: 'abandoned', tornBytes, detail }
    // Not even the first line got into that file: the next one says what it would have said.
    else this.#nextStart = { ...start, previous: afterTorn(start), tornBytes: start.tornBytes + tornBytes }
  }

  #dropEmpty(segment: Segment): void {
    segment.discard()
    this.#segment = undefined
    this.#nextNumber = segment.number
  }

  #closeSegment(counts = true): void {
    const segment = this.#segment
    if (segment === undefined) return
    this.#segment = undefined
    this.#isRemoved = false
    this.#nextStart = { action: 'segment', previous: 'segment', tornBytes: 0, detail: undefined }
    const before = this.#closing
    this.#closing = new Promise((resolve) =>
      segment.close((error) => {
        this.#isCloseLost ||= counts && error !== null
        void before.then(resolve)
      }),
    )
  }

  #open(): Segment {
    const { folder, instance, write, syncFile, nowMs } = this.#options
    const path = join(folder, segmentName(instance, this.#nextNumber))
    const segment = new Segment(path, this.#nextNumber, write, syncFile)
    this.#nextNumber += 1
    const { action, previous, tornBytes, detail, policyVersion } = this.#nextStart
    const first = {
      kind: 'admin',
      action,
      detail,
      policy_version: policyVersion,
      previous,
      torn_bytes: tornBytes,
    } as const
    this.#draft.add({ ...first, segment: segment.number }, nowMs(), false)
    return segment
  }
}

function afterTorn({ action, previous }: SegmentStart): PreviousEnd {
  if (previous === 'missing') return previous
  return action === 'start' ? 'unclean' : 'abandoned'
}
