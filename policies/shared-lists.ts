/**
 * Equal lists are compiled once: thousands of tenants and tokens often say the same, and a compiled list takes many times its text.
 * Nothing is kept alive by this: what nobody holds is forgotten.
 */
import type { StaticPolicy } from './policy.ts'

/** Compiled lists by what they were compiled from. */
export class SharedLists {
  readonly #known = new Map<string, WeakRef<StaticPolicy>>()
  readonly #forget = new FinalizationRegistry<string>((key) => {
    // The same may have been compiled anew since.
    if (this.#known.get(key)?.deref() === undefined) this.#known.delete(key)
  })

  /** Lists that are remembered. */
  get size(): number {
    return this.#known.size
  }

  /** The list compiled from `source`, if somebody holds it. */
  find(source: string): StaticPolicy | undefined {
    return this.#known.get(source)?.deref()
  }

  /** Remembers a list while somebody holds it. */
  keep(source: string, list: StaticPolicy): void {
    this.#known.set(source, new WeakRef(list))
    this.#forget.register(list, source)
  }
}
