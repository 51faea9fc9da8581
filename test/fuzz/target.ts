/** What is fuzzed: a reader of what others write, and what must hold whatever they write. */

/** One thing that is fuzzed. */
export interface Target {
  readonly name: string
  /** Longest input in bytes. */
  readonly maxBytes: number
  /** Most milliseconds of processor time for one input of any length up to that. */
  readonly maxCpuMs: number
  /** Inputs to begin with: good ones of every kind. */
  readonly seeds: readonly Buffer[]
  /** What means something to the reader. */
  readonly words: readonly string[]
  /** Rejects or throws when something does not hold. */
  readonly run: (input: Buffer) => void | Promise<void>
  readonly close?: () => void | Promise<void>
}

/** A target by its name; what it needs is made when it is opened. */
export type OpenTarget = () => Target | Promise<Target>

/** Something that must hold does not. Two inputs with one message are one finding. */
export class Broken extends Error {
  override name = 'Broken'
}

/**
 * Says that something must hold.
 * @throws Broken with `what` and, after a line break, the details
 */
export function hold(isSo: boolean, what: string, details?: () => unknown): asserts isSo {
  if (!isSo) throw new Broken(details === undefined ? what : `${what}\n${printed(details())}`)
}

/** Says that two values are the same. Plain data only. */
export function same(one: unknown, other: unknown, what: string): void {
  const [left, right] = [printed(one), printed(other)]
  hold(left === right, what, () => [left, right])
}

function printed(value: unknown): string {
  // Of nothing at all it makes nothing, whatever its type says.
  const text: unknown = JSON.stringify(value, (_key, member: unknown) =>
    typeof member === 'bigint' ? `${member}n` : member,
  )
  return String(text)
}
