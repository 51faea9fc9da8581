/** Lines that are not in a file yet: numbered, chained, signed where they are checkpoints, and what holds once each of them is written. */
import { chainLine, type ChainState, GENESIS, hashLine } from './chain.ts'
import { signLine } from './checkpoint.ts'
import { quoteField } from './escape.ts'
import type { SigningKey } from './key.ts'
import { formatEntry, type LogEntry } from './line.ts'

/** What holds once a line is in the file. */
export interface Mark {
  /** Bytes of the draft up to the end of the line. */
  readonly end: number
  readonly chain: ChainState
  /** Lines that no checkpoint covers. */
  readonly unsigned: number
  /** The line is a caller's, not the log's own. */
  readonly counts: boolean
  readonly checkpoint: string | undefined
}

/** One draft at a time, in one buffer: a new buffer for each would cost more than all else in a line. */
export class Draft {
  readonly #quotedInstance: string
  readonly #key: SigningKey
  #buffer = Buffer.allocUnsafeSlow(64 * 1024)
  #length = 0
  #chain = GENESIS
  #unsigned = 0
  #marks: Mark[] = []

  constructor(instance: string, key: SigningKey) {
    this.#quotedInstance = quoteField(instance)
    this.#key = key
  }

  /** The bytes to write; good until the next {@link Draft.begin}. */
  get bytes(): Buffer {
    return this.#buffer.subarray(0, this.#length)
  }

  /** One for each line. */
  get marks(): readonly Mark[] {
    return this.#marks
  }

  /** Lines that no checkpoint would cover if the draft were written. */
  get unsigned(): number {
    return this.#unsigned
  }

  /** Drops what was drafted and goes on from `chain`. */
  begin(chain: ChainState, unsigned: number): void {
    this.#length = 0
    this.#marks = []
    this.#chain = chain
    this.#unsigned = unsigned
  }

  /** Adds a line. The line of a gap takes the number after those that are lost. */
  add(entry: LogEntry, timeMs: number, counts: boolean): void {
    const isAdmin = entry.kind === 'admin'
    const seq = this.#chain.seq + 1 + (isAdmin && entry.action === 'gap' ? (entry.lost ?? 0) : 0)
    const body = formatEntry(entry, seq, timeMs, this.#quotedInstance)
    const isCheckpoint = isAdmin && 'cause' in entry
    const line = isCheckpoint ? signLine(body, this.#chain.head, this.#key) : chainLine(body, this.#chain.head)
    this.#reserve(this.#length + line.length)
    this.#length += this.#buffer.write(line, this.#length, 'latin1')
    this.#chain = { seq, head: hashLine(line) }
    this.#unsigned = isCheckpoint ? 0 : this.#unsigned + 1
    const checkpoint = isCheckpoint ? line : undefined
    this.#marks.push({ end: this.#length, chain: this.#chain, unsigned: this.#unsigned, counts, checkpoint })
  }

  #reserve(length: number): void {
    if (length <= this.#buffer.length) return
    const larger = Buffer.allocUnsafeSlow(Math.max(length, 2 * this.#buffer.length))
    this.#buffer.copy(larger)
    this.#buffer = larger
  }
}
