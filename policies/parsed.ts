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

/** The outcome of parsing something with several parts: the value, or everything that is wrong with it. */
export type Checked<T> =
  { readonly ok: true; readonly value: T } | { readonly ok: false; readonly faults: readonly LocatedFault[] }

/** A fault, and where in the document it is. */
export interface LocatedFault extends Fault {
  /** Such as `allowedHosts[3]`; empty for the document itself. */
  readonly path: string
}

/** Quotes an input for a message: in backticks, printable ASCII only, cut at 80 characters. */
export function quoted(text: string): string {
  const cut = text.length > 80 ? `${text.slice(0, 80)}…` : text
  return `\`${cut.replace(/[^\x20-\x5f\x61-\x7e…]/g, escapeUnit)}\``
}

function escapeUnit(unit: string): string {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`
}
