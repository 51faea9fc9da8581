/** The shape of a set of hosts that ships with the product. */

/** Entries that belong to one service. */
export interface Preset {
  /** Without the `@`: lower-case letters, digits and `-`. */
  readonly name: string
  /** What a client can do with it, in a few words. */
  readonly opens: string
  /** What it deliberately leaves closed, and why. */
  readonly leavesClosed: string
  readonly entries: readonly string[]
}
