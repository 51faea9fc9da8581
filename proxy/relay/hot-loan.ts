/** The big buffer that one busy connection has borrowed, and when it may be taken from it again. */
import { type HotHolder, hotBuffers } from './buffers.ts'

/** A connection that borrows. */
export interface Borrower {
  /** Stops reading into the borrowed buffer for good, if it is not in use at this moment (a write that is pending, bytes that wait); says whether it did. */
  letGo(): boolean
}

/** Each surrender leaves a few bytes with the handle; this bounds them. A connection that was asked so often goes without. */
const MOST_SURRENDERS = 256

/** The loan of one connection, made when it is busy for the first time. */
export class HotLoan implements HotHolder {
  readonly #borrower: Borrower
  #buffer: Buffer | undefined
  /** Whether it was read into since the pool last asked for it. */
  #inUse = false
  #surrenders = 0

  /** Borrows nothing yet. */
  constructor(borrower: Borrower) {
    this.#borrower = borrower
  }

  /** The borrowed buffer, if there is one. */
  get buffer(): Buffer | undefined {
    return this.#buffer
  }

  /** Borrows one if it can be had. */
  borrow(): void {
    if (this.#surrenders >= MOST_SURRENDERS) return
    this.#buffer = hotBuffers.borrow(this)
    this.#inUse = true
  }

  /** It was read into. */
  used(): void {
    this.#inUse = true
  }

  /** Gives it back. Only where the handle won't read into it again and no write holds it. */
  giveBack(): void {
    const buffer = this.#buffer
    if (buffer === undefined) return
    this.#buffer = undefined
    hotBuffers.giveBack(buffer, this)
  }

  /** {@link HotHolder} */
  surrender(): boolean {
    if (this.#inUse) {
      this.#inUse = false
      return false
    }
    if (this.#buffer === undefined || !this.#borrower.letGo()) return false
    this.#surrenders++
    this.giveBack()
    return true
  }
}
