/** The chain: each line holds the SHA-256 of the bytes of the line before it, newline included. Whoever changes, cuts or moves a line must make every later one anew. */
import { hash } from 'node:crypto'

/** Where a chain stands: the number and the hash of its last line. */
export interface ChainState {
  readonly seq: number
  /** Hex. */
  readonly head: string
}

/** Before the first line of all. */
export const GENESIS: ChainState = { seq: 0, head: '0'.repeat(64) }

/** The line's own hash, in hex; `line` ends in its newline. */
export function hashLine(line: string | Buffer): string {
  return hash('sha256', line, 'hex')
}

/** Closes the open object that `formatEntry` made. */
export function chainLine(body: string, head: string): string {
  return `${body},"prev":"${head}"}\n`
}
