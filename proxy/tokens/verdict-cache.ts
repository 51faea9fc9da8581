/** Remembers what became of a token by its hash, bounded in entries and in bytes of tokens: the least recently used goes first. */

/** How much is remembered. */
export interface CacheLimits {
  /** Default 20,000: an identity with a short list takes about 1 KiB. */
  readonly entries: number
  /** Sum of the tokens' lengths, since a compiled list takes several times its text; tokens whose list is the same one count once. Default 16 MiB. */
  readonly tokenBytes: number
}

const LIMITS: CacheLimits = { entries: 20_000, tokenBytes: 16 * 1024 * 1024 }

interface Held<V> {
  readonly verdict: V
  readonly list: object | undefined
  /** Of the token alone, where no list is shared. */
  readonly weight: number
}

/** Verdicts of type `V`. */
export class VerdictCache<V> {
  readonly #limits: CacheLimits
  readonly #entries = new Map<string, Held<V>>()
  /** How many verdicts hold a list, and what it weighs. */
  readonly #lists = new Map<object, { count: number; readonly weight: number }>()
  #weight = 0

  constructor(limits: Partial<CacheLimits> = {}) {
    this.#limits = { ...LIMITS, ...limits }
  }

  /** Verdicts held. */
  get size(): number {
    return this.#entries.size
  }

  /** The verdict, which is then the most recently used. */
  get(key: string): V | undefined {
    const entry = this.#entries.get(key)
    if (entry === undefined) return undefined
    // Which was used last matters once some must go.
    if (this.#entries.size > this.#limits.entries / 2 || this.#weight > this.#limits.tokenBytes / 2) {
      this.#entries.delete(key)
      this.#entries.set(key, entry)
    }
    return entry.verdict
  }

  /** Remembers a verdict on a token of so many bytes, and the compiled list that it holds. */
  set(key: string, verdict: V, weight: number, list?: object): void {
    this.delete(key)
    this.#entries.set(key, { verdict, list, weight: list === undefined ? weight : 0 })
    this.#weight += list === undefined ? weight : this.#share(list, weight)
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= this.#limits.entries && this.#weight <= this.#limits.tokenBytes) break
      this.delete(oldest)
    }
  }

  /** Forgets one verdict. */
  delete(key: string): void {
    const entry = this.#entries.get(key)
    if (entry === undefined) return
    this.#entries.delete(key)
    this.#weight -= entry.list === undefined ? entry.weight : this.#unshare(entry.list)
  }

  /** Forgets all. */
  clear(): void {
    this.#entries.clear()
    this.#lists.clear()
    this.#weight = 0
  }

  /** What is added by one more that holds the list. */
  #share(list: object, weight: number): number {
    const known = this.#lists.get(list)
    if (known === undefined) this.#lists.set(list, { count: 1, weight })
    else known.count += 1
    return known === undefined ? weight : 0
  }

  /** What is freed by one that holds it no more. */
  #unshare(list: object): number {
    const known = this.#lists.get(list)
    if (known === undefined || --known.count > 0) return 0
    this.#lists.delete(list)
    return known.weight
  }
}
