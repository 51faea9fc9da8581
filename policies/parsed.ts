/** What a parser returns: the value, or the fault. A parser never throws on bad input and never guesses. */

/** One thing wrong with an input, in words for whoever wrote it. */
export interface Fault {
  /** Stable word for the kind of fault, such as `wildcard_too_wide`. */
  readonly code: string
  /** Lower case, quotes the input in backticks, and says what would be right. */
  readonly message: string
  /** The right form, where there is one. */
  readonly hint?: string
}

/** The outcome of parsing a `T`. */
export type Parsed<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly fault: Fault }

/** Wraps a parsed value. */
export function parsed<T>(value: T): Parsed<T> {
  return { ok: true, value }
}

/** Wraps a fault; `hint` is the right form, where there is one. */
export function faulty(code: string, message: string, hint?: string): { readonly ok: false; readonly fault: Fault } {
  return { ok: false, fault: hint === undefined ? { code, message } : { code, message, hint } }
}
