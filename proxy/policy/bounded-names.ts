/** Which names occurred, of whom there may be too many to keep: a count, and the first of them. */

/** Names that are told apart, of one thing. */
const MAX_NAMES = 1_000
/** Of all things that share a budget; each costs about 100 bytes. */
const MAX_SHARED = 500_000

/** How many, and some of them. */
export interface NameCount {
  readonly count: number
  /** Whether there were more than are told apart. */
  readonly atLeast: boolean
  readonly names: readonly string[]
}

/** What many {@link BoundedNames} may keep together. */
export class NameBudget {
  #left = MAX_SHARED

  /** Whether there is room for one more, which is then taken. */
  take(): boolean {
    if (this.#left === 0) return false
    this.#left--
    return true
  }
}

/** Counts distinct names. Where there is no room for more of them the count is the least that it may be. */
export class BoundedNames {
  readonly #names = new Set<string>()
  readonly #budget: NameBudget
  #isExact = true

  constructor(budget = new NameBudget()) {
    this.#budget = budget
  }

  /** Absent names don't count. */
  add(name: string | undefined): void {
    if (name === undefined || this.#names.has(name)) return
    if (this.#names.size < MAX_NAMES && this.#budget.take()) this.#names.add(name)
    else this.#isExact = false
  }

  /** Counts those of another in. */
  merge(other: BoundedNames): void {
    for (const name of other.#names) this.add(name)
    this.#isExact &&= other.#isExact
  }

  /** As data; `names` are the first by text, `most` of them. */
  summary(most: number): NameCount {
    const names = [...this.#names].sort()
    return { count: names.length, atLeast: !this.#isExact, names: names.slice(0, most) }
  }
}
