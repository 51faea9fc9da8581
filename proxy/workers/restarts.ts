/** How soon a worker is replaced: at once, then later and later while its replacements do not last; at some time never again. */

/** The rules; all finite. */
export interface RestartRules {
  /** A worker that served for so long counts as sound, in milliseconds. */
  readonly soundMs: number
  /** Before the second replacement; each further one waits twice as long. */
  readonly firstMs: number
  readonly longestMs: number
  /** Replacements in a row. */
  readonly most: number
}

/** About half a minute of trying. */
export const RESTART_RULES: RestartRules = { soundMs: 10_000, firstMs: 100, longestMs: 5_000, most: 10 }

/** Of one place. */
export class Restarts {
  readonly #rules: RestartRules
  #row = 0

  constructor(rules: RestartRules) {
    this.#rules = rules
  }

  /** A worker ended after it had served for so long; before its replacement begins, how many milliseconds to wait, and `undefined` when there is to be none. */
  afterEnd(servedMs: number): number | undefined {
    const { soundMs, firstMs, longestMs, most } = this.#rules
    if (servedMs >= soundMs) this.#row = 0
    this.#row += 1
    if (this.#row > most) return undefined
    return this.#row === 1 ? 0 : Math.min(longestMs, firstMs * 2 ** (this.#row - 2))
  }
}
