/** Sandboxes that are started before anybody asks, so that the next `create()` need not wait for one to start. */
import { type SpareSandbox, startSpare, type Workshop } from './create-sandbox.ts'

/** So many are plenty: each is a process that waits. */
const MAX_SPARES = 32
const FILL_AFTER_MS = 100
/** After one could not be started. The next `create()` without a spare says why. */
const RETRY_AFTER_MS = 5_000

/** @throws TypeError for a number that can't be kept */
export function checkSpares(count: number): number {
  if (!Number.isInteger(count) || count < 0 || count > MAX_SPARES)
    throw new TypeError(`\`spares\` is a whole number from 0 to ${MAX_SPARES}`)
  return count
}

/** Keeps so many ready from the first {@link SpareSandboxes.fill} on. */
export class SpareSandboxes {
  readonly #workshop: Workshop
  readonly #count: number
  readonly #ready = new Set<SpareSandbox>()
  readonly #starting = new Set<Promise<void>>()
  readonly #closing = new AbortController()
  #timer: NodeJS.Timeout | undefined

  constructor(workshop: Workshop, count: number) {
    this.#workshop = workshop
    this.#count = count
  }

  /** How many could be taken now. */
  get size(): number {
    return this.#ready.size
  }

  /** Starts what is missing, a moment from now: the first command of a sandbox that was just made comes before. */
  fill(): void {
    this.#fillIn(FILL_AFTER_MS)
  }

  #startMissing(): void {
    this.#timer = undefined
    while (!this.#closing.signal.aborted && this.#ready.size + this.#starting.size < this.#count) {
      const starting = this.#start().finally(() => this.#starting.delete(starting))
      this.#starting.add(starting)
    }
  }

  /** One that lives, which is the caller's from here on. */
  readonly take = (): SpareSandbox | undefined => {
    const [spare] = this.#ready
    if (spare === undefined) return undefined
    this.#ready.delete(spare)
    this.fill()
    return spare
  }

  /** Takes away those that nobody took; idempotent. */
  async close(): Promise<void> {
    this.#closing.abort()
    clearTimeout(this.#timer)
    await Promise.all(this.#starting)
    const left = [...this.#ready]
    this.#ready.clear()
    await Promise.all(left.map(takeAway))
  }

  async #start(): Promise<void> {
    try {
      const spare = await startSpare(this.#workshop, this.#closing.signal)
      if (this.#closing.signal.aborted) {
        await takeAway(spare)
        return
      }
      this.#ready.add(spare)
      void spare.started.ended.then(() => this.#onEnded(spare))
    } catch {
      this.#fillIn(RETRY_AFTER_MS)
    }
  }

  /** Somebody else ended it, or its backend did. */
  #onEnded(spare: SpareSandbox): void {
    if (!this.#ready.delete(spare)) return
    void takeAway(spare)
    this.#fillIn(RETRY_AFTER_MS)
  }

  #fillIn(milliseconds: number): void {
    if (this.#closing.signal.aborted) return
    this.#timer ??= setTimeout(() => this.#startMissing(), milliseconds).unref()
  }
}

/** What could not be taken away is left to `reap`. */
async function takeAway({ transaction }: SpareSandbox): Promise<void> {
  await transaction.rollBack(undefined)
}
