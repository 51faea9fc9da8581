/** How many entries the policies of all tenants may have together: who would need more is told no, and everybody else goes on. */
import { getHeapStatistics } from 'node:v8'
import { type CompiledPolicy, SallyportError } from '../../policies/index.ts'

/** What an entry takes, compiled, with its text and that of its answer; measured, and rounded up. */
const BYTES_PER_ENTRY = 300

/** A quarter of the memory that this process may have for all it does. */
export function mostEntries(): number {
  return Math.floor(getHeapStatistics().heap_size_limit / 4 / BYTES_PER_ENTRY)
}

/** Counts entries of policies that are held, and of those that are being read. Equal lists are one policy, which counts once. */
export class EntryBudget {
  readonly #most: number
  readonly #holders = new Map<CompiledPolicy, number>()
  #used = 0

  /** `most`: all entries together. */
  constructor(most: number) {
    this.#most = most
  }

  /**
   * Keeps room for entries that are about to be read; returns what gives it back, once.
   * @throws SallyportError `SALLYPORT_POLICY_INVALID` when there is none
   */
  reserve(entries: number): () => void {
    if (this.#used + entries > this.#most)
      throw new SallyportError(
        'SALLYPORT_POLICY_INVALID',
        `the policies of tenants would have more than ${this.#most} entries together, which is what there is memory for`,
      )
    this.#used += entries
    return once(() => (this.#used -= entries))
  }

  /** Counts a policy for one more tenant; returns what ends that, once. */
  hold(policy: CompiledPolicy): () => void {
    const holders = this.#holders.get(policy) ?? 0
    this.#holders.set(policy, holders + 1)
    if (holders === 0) this.#used += entriesOf(policy)
    return once(() => {
      const left = (this.#holders.get(policy) ?? 1) - 1
      if (left > 0) this.#holders.set(policy, left)
      else if (this.#holders.delete(policy)) this.#used -= entriesOf(policy)
    })
  }
}

/** Entries of a list, compiled or as data of any kind. */
export function entriesOf(policy: unknown): number {
  if (typeof policy !== 'object' || policy === null) return 0
  const { allowedHosts, deniedHosts } = policy as { readonly allowedHosts?: unknown; readonly deniedHosts?: unknown }
  return [allowedHosts, deniedHosts].reduce<number>((sum, list) => sum + (Array.isArray(list) ? list.length : 0), 0)
}

function once(action: () => void): () => void {
  let isDone = false
  return () => {
    if (isDone) return
    isDone = true
    action()
  }
}
