/** Follows the chain of one instance line by line and says what is wrong first. Reads no file. */
import { type ChainLine, parseChainLine } from './chain-line.ts'
import { GENESIS, hashLine } from './chain.ts'
import { isSignatureValid, MAX_UNSIGNED_LINES } from './checkpoint.ts'
import type { VerifyKey } from './key.ts'
import type { InstanceReport, RunReport } from './verify.ts'

/** What is wrong with a line or a file. */
export interface ChainFault {
  readonly code: string
  readonly message: string
}

/** A checkpoint that was kept elsewhere. */
export interface Anchor {
  readonly instance: string
  readonly seq: number
  readonly segment: number
  /** It is the last line of its file. */
  readonly isClosing: boolean
  /** Of its line, hex. */
  readonly hash: string
}

/** How the file before ended. */
type Closing = 'stop' | 'segment' | undefined

/** The state of a verification of one instance; every method gives back a fault or nothing, and is not to be called again after a fault. */
export class ChainCheck {
  readonly #instance: string
  readonly #keys: ReadonlyMap<string, VerifyKey>
  readonly #anchors: ReadonlyMap<number, Anchor>
  readonly #firstSegment: number
  #seq: number
  #head: string
  #isHeadKnown: boolean
  #segment: number
  #isFirstInFile = true
  /** Whole lines were seen in an earlier file. */
  #isJoined = false
  #closing: Closing
  #tornBytes = 0
  #unsigned = 0
  #lines = 0
  #lost = 0
  #checkpoints = 0
  #lastCheckpoint: { readonly seq: number; readonly time: string } | undefined
  #firstSeq = 0
  /** The files of which signed lines say that they were removed. */
  #retired = 0
  #retiredUnsigned = 0
  #lastTime = ''
  #runs: RunReport[] = []
  #run: { readonly firstSeq: number; readonly startTime: string } | undefined

  constructor(instance: string, keys: readonly VerifyKey[], anchors: readonly Anchor[], firstSegment: number) {
    this.#instance = instance
    this.#keys = new Map(keys.map((key) => [key.id, key]))
    this.#anchors = new Map(anchors.map((anchor) => [anchor.seq, anchor]))
    this.#firstSegment = firstSegment
    this.#segment = firstSegment
    // The end of an archived part, when a checkpoint of it was kept.
    const before = anchors.find((anchor) => anchor.isClosing && anchor.segment === firstSegment - 1)
    this.#isHeadKnown = firstSegment === 1
    this.#seq = before?.seq ?? GENESIS.seq
    this.#head = before?.hash ?? GENESIS.head
  }

  /** The lines of file `number` come next. */
  beginFile(number: number): void {
    this.#segment = number
    this.#isFirstInFile = true
  }

  /** `tornBytes` follow the last newline of the file, of `size` bytes. */
  endFile(tornBytes: number, hasLines: boolean): ChainFault | undefined {
    if (tornBytes === 0) return undefined
    if (hasLines && this.#closing !== undefined)
      return fault('line_after_close', 'bytes follow the checkpoint that closes the file')
    this.#closing = undefined
    this.#tornBytes += tornBytes
    return undefined
  }

  /** The next line, with its newline. */
  line(bytes: Buffer): ChainFault | undefined {
    const text = bytes.toString('latin1')
    const line = parseChainLine(text)
    if (line === undefined)
      return fault(
        'line_malformed',
        'this is no audit line: one JSON object in printable ASCII, with `seq`, `time`, `instance`, `kind` and `prev`',
      )
    if (line.instance !== this.#instance)
      return fault('instance_foreign', `the line is of instance \`${line.instance}\``)
    const found = this.#checkOrder(line) ?? this.#checkPlace(line) ?? this.#checkSignature(line, text)
    if (found !== undefined) return found
    this.#take(line, hashLine(bytes))
    return this.#checkAnchor(line.seq)
  }

  /** Number of the last file of which a line that is signed says that it was removed; 0 when none does. */
  get retiredTo(): number {
    return this.#retired
  }

  /** After the last line: what anchors say is missing. */
  finish(): ChainFault | undefined {
    for (const { seq } of this.#anchors.values()) {
      if (seq > this.#seq)
        return fault(
          'log_cut',
          `the log ends with line ${this.#seq}, but a kept checkpoint is line ${seq}: the end was cut, or the log replaced by an older one`,
        )
    }
    if (this.#lines === 0) return fault('log_empty', 'there is no whole line in the files')
    return undefined
  }

  report(): InstanceReport {
    const end = this.#closing === 'stop' ? 'stop' : 'open'
    return {
      instance: this.#instance,
      firstSegment: this.#firstSegment,
      lastSegment: this.#segment,
      firstSeq: this.#firstSeq,
      lastSeq: this.#seq,
      lines: this.#lines,
      lost: this.#lost,
      head: this.#head,
      checkpoints: this.#checkpoints,
      lastCheckpoint: this.#lastCheckpoint,
      unsignedLines: this.#unsigned,
      runs: this.#run === undefined ? this.#runs : [...this.#runs, this.#endedRun(end, this.#tornBytes)],
    }
  }

  #checkOrder(line: ChainLine): ChainFault | undefined {
    if (!this.#isHeadKnown && this.#lines === 0 && this.#head === GENESIS.head) return undefined
    const lost = line.kind === 'admin' && line.action === 'gap' && typeof line.lost === 'number' ? line.lost : 0
    const expected = this.#seq + 1 + lost
    if (line.seq > expected)
      return fault(
        'lines_missing',
        `line ${line.seq} follows line ${this.#seq}: ${line.seq - expected === 1 ? '1 line is' : `${line.seq - expected} lines are`} missing`,
      )
    if (line.seq < expected)
      return fault(
        'lines_reordered',
        `line ${line.seq} follows line ${this.#seq}: lines were moved, repeated or renumbered`,
      )
    if (line.prev === this.#head) return undefined
    const before = this.#lines === 0 ? 'what should come before it' : `line ${this.#seq}`
    return fault(
      'chain_broken',
      `line ${line.seq} does not hold the hash of ${before}: that line was changed, or this one`,
    )
  }

  /** Whether the line may stand where it stands in its file. */
  #checkPlace(line: ChainLine): ChainFault | undefined {
    const isOpening = line.kind === 'admin' && (line.action === 'start' || line.action === 'segment')
    if (!this.#isFirstInFile) {
      if (isOpening) return fault('line_misplaced', `a \`${line.action}\` line stands in the middle of a file`)
      return this.#closing === undefined
        ? undefined
        : fault('line_after_close', 'a line follows the checkpoint that closes the file')
    }
    if (!isOpening)
      return fault(
        'file_unopened',
        'the first line of the file is neither `start` nor `segment`: lines before it were cut',
      )
    if (line.segment !== this.#segment)
      return fault(
        'file_renamed',
        `the first line says that this is file ${String(line.segment)}, its name says ${this.#segment}`,
      )
    return this.#checkJoint(line)
  }

  #checkJoint(line: ChainLine): ChainFault | undefined {
    if (!this.#isJoined && !this.#isHeadKnown) return undefined
    if (!this.#isJoined && line.previous === 'none' && this.#tornBytes === 0) return undefined
    // The files before had been moved away when this run began; that they are the right ones, the chain shows.
    if (line.previous === 'missing') return undefined
    const expected =
      line.action === 'start'
        ? this.#closing === 'stop'
          ? 'stop'
          : 'unclean'
        : this.#closing === 'segment'
          ? 'segment'
          : 'abandoned'
    if (line.previous !== expected) {
      return fault(
        'file_end_differs',
        `the first line says that the file before ended as \`${String(line.previous)}\`, but it looks like \`${expected}\`: its end was cut or changed`,
      )
    }
    if (line.torn_bytes === this.#tornBytes) return undefined
    return fault(
      'file_end_differs',
      `the first line says that ${String(line.torn_bytes)} bytes of an unfinished line end the file before; there are ${this.#tornBytes}`,
    )
  }

  #checkSignature(line: ChainLine, text: string): ChainFault | undefined {
    if (line.action !== 'checkpoint' || line.kind !== 'admin') {
      if (this.#unsigned < MAX_UNSIGNED_LINES) return undefined
      return fault(
        'checkpoint_missing',
        `more than ${MAX_UNSIGNED_LINES} lines without a checkpoint: a gateway signs before that`,
      )
    }
    if (line.segment !== this.#segment)
      return fault(
        'file_renamed',
        `the checkpoint is of file ${String(line.segment)}, the name of the file says ${this.#segment}`,
      )
    if (this.#keys.size === 0) return undefined
    const key = this.#keys.get(String(line.signer))
    if (key === undefined)
      return fault(
        'signer_unknown',
        `the checkpoint is signed by \`${String(line.signer)}\`, of which there is no public key`,
      )
    return isSignatureValid(text, key)
      ? undefined
      : fault('signature_invalid', 'the signature of the checkpoint is wrong: the line, or one before it, was changed')
  }

  #take(line: ChainLine, hash: string): void {
    if (line.kind === 'admin' && line.action === 'start') this.#beginRun(line)
    this.#run ??= { firstSeq: line.seq, startTime: line.time }
    if (this.#lines === 0) this.#firstSeq = line.seq
    const isCheckpoint = line.kind === 'admin' && line.action === 'checkpoint'
    this.#lost += line.kind === 'admin' && line.action === 'gap' && typeof line.lost === 'number' ? line.lost : 0
    this.#closing = isCheckpoint && (line.cause === 'stop' || line.cause === 'segment') ? line.cause : undefined
    this.#unsigned = isCheckpoint ? 0 : this.#unsigned + 1
    if (isCheckpoint) this.#lastCheckpoint = { seq: line.seq, time: line.time }
    if (line.kind === 'admin' && line.action === 'retention' && typeof line.segment === 'number')
      this.#retiredUnsigned = Math.max(this.#retiredUnsigned, line.segment)
    if (isCheckpoint) this.#retired = this.#retiredUnsigned
    this.#checkpoints += isCheckpoint ? 1 : 0
    this.#lines += 1
    this.#seq = line.seq
    this.#head = hash
    this.#lastTime = line.time
    this.#tornBytes = 0
    this.#isFirstInFile = false
    this.#isJoined = true
  }

  #beginRun({ seq, time }: ChainLine): void {
    if (this.#run !== undefined)
      this.#runs.push(this.#endedRun(this.#closing === 'stop' ? 'stop' : 'unclean', this.#tornBytes))
    this.#run = { firstSeq: seq, startTime: time }
  }

  #endedRun(end: RunReport['end'], tornBytes: number): RunReport {
    return {
      firstSeq: this.#run?.firstSeq ?? 0,
      startTime: this.#run?.startTime ?? '',
      lastSeq: this.#seq,
      endTime: this.#lastTime,
      end,
      tornBytes,
    }
  }

  #checkAnchor(seq: number): ChainFault | undefined {
    const anchor = this.#anchors.get(seq)
    if (anchor === undefined || anchor.hash === this.#head) return undefined
    return fault('anchor_differs', `line ${seq} is not the checkpoint that was kept: the log was replaced`)
  }
}

function fault(code: string, message: string): ChainFault {
  return { code, message }
}
