/**
 * How much may busy connections read before everyone else has a turn? libuv reads a busy socket up to 32 times in one turn of the event loop;
 * with a few of them a turn takes so long that new connections, accepted one a listener and turn, wait for seconds.
 * So a busy connection reads a visit's worth, then queues; each turn lets in as many visits as keep the turn short.
 */

import { HOT_BYTES } from './buffers.ts'

/** A connection in the queue. */
export interface Visitor {
  /** Its turn has come: read on. */
  readOn(): void
}

/**
 * What a turn of the event loop may take in CPU time while connections are busy: less while new ones keep coming, which want an answer; more otherwise,
 * since short turns cost a tenth of the throughput. Not wall time: on a crowded machine small turns would cost more and gain nothing.
 */
const BRISK_TURN_MS = 4
const CALM_TURN_MS = 10
/** So many turns after the last new connection it is calm. */
const TURNS_UNTIL_CALM = 100

const MIB = 1024 * 1024
/** One read of a busy connection. */
const LEAST_BYTES_A_TURN = HOT_BYTES
const MOST_BYTES_A_TURN = 32 * MIB
/** Longer visits gain no throughput, and make the turn uneven. */
const MOST_BYTES_A_VISIT = 4 * MIB

/** The queue of busy connections. It adapts to the machine: what a turn may read shrinks when turns are long, and grows when they are short. */
export class Turns {
  readonly #cpuMs: () => number
  readonly #atEndOfTurn: (run: () => void) => void
  #queue: Visitor[] = []
  #bytesATurn = 8 * MIB
  #scheduled = false
  /** When the turn that is being measured began; `undefined` when the event loop may have slept since. */
  #turnBeganCpuMs: number | undefined
  /** Whether somebody had to wait in that turn. */
  #crowded = false

  #turnsSinceArrival = 0

  /** `cpuMs` and `atEndOfTurn` are seams for tests. */
  constructor(cpuMs: () => number, atEndOfTurn: (run: () => void) => void = setImmediate) {
    this.#cpuMs = cpuMs
    this.#atEndOfTurn = atEndOfTurn
  }

  /** A new connection has come in. */
  arrived(): void {
    this.#turnsSinceArrival = 0
  }

  /** Bytes that a connection may read before it has to queue. */
  get bytesAVisit(): number {
    return Math.min(this.#bytesATurn, MOST_BYTES_A_VISIT)
  }

  /** Queues a connection that has read its visit's worth. It must not be queued already. */
  queue(visitor: Visitor): void {
    this.#queue.push(visitor)
    this.#schedule()
  }

  #schedule(): void {
    if (this.#scheduled) return
    this.#scheduled = true
    this.#atEndOfTurn(this.#run)
  }

  readonly #run = (): void => {
    this.#scheduled = false
    this.#adapt()
    const visits = Math.max(1, Math.floor(this.#bytesATurn / this.bytesAVisit))
    const admitted = this.#queue.splice(0, visits)
    this.#crowded = this.#queue.length > 0
    for (const visitor of admitted) visitor.readOn()
    // One more run also when nobody waits: it keeps the event loop from sleeping, so that this turn can be measured.
    if (admitted.length > 0) this.#schedule()
    else this.#turnBeganCpuMs = undefined
  }

  #adapt(): void {
    const nowMs = this.#cpuMs()
    const tookMs = this.#turnBeganCpuMs === undefined ? undefined : nowMs - this.#turnBeganCpuMs
    this.#turnBeganCpuMs = nowMs
    if (tookMs === undefined) return
    const targetMs = this.#turnsSinceArrival++ < TURNS_UNTIL_CALM ? BRISK_TURN_MS : CALM_TURN_MS
    if (tookMs > targetMs) this.#bytesATurn = Math.max(LEAST_BYTES_A_TURN, this.#bytesATurn * 0.75)
    else if (this.#crowded && tookMs < targetMs / 2) {
      this.#bytesATurn = Math.min(MOST_BYTES_A_TURN, this.#bytesATurn * 1.1)
    }
  }
}

/** CPU time of this thread, or of the process on a Node without such a thing; under a microsecond. */
function threadCpuMs(): number {
  const { user, system } = typeof process.threadCpuUsage === 'function' ? process.threadCpuUsage() : process.cpuUsage()
  return (user + system) / 1000
}

/** The queue of this process. */
export const turns = new Turns(threadCpuMs)
