/** When do written lines reach the disk, and who waits for that? Knows neither lines nor files. */

/**
 * `each`: before the caller of a line is answered; lines that were written meanwhile share the next turn. `interval`: within a second of being written, and
 * nobody waits. `os`: when the system does, and at checkpoints.
 */
export type SyncMode = 'each' | 'interval' | 'os'

/** What {@link DiskSync} needs. */
export interface DiskSyncOptions {
  readonly mode: SyncMode
  /** Brings all that was written so far to the disk; `false` when that failed. Never rejects. */
  readonly sync: () => Promise<boolean>
}

/** From the first line that is not on the disk to the next turn, with `interval`. */
const INTERVAL_MS = 1000

/** One for each log. */
export class DiskSync {
  readonly #options: DiskSyncOptions
  #waiting: ((isSafe: boolean) => void)[] = []
  #running: Promise<void> | undefined
  #timer: NodeJS.Timeout | undefined

  constructor(options: DiskSyncOptions) {
    this.#options = options
  }

  /** A line was written: `answer` is called when it is as safe as the mode promises. With `each` that is never at once. */
  wrote(answer: (isSafe: boolean) => void): void {
    if (this.#options.mode === 'each') {
      this.#waiting.push(answer)
      this.#running ??= this.#run()
      return
    }
    answer(true)
    if (this.#options.mode === 'interval') this.#timer ??= setTimeout(this.#syncSoon, INTERVAL_MS).unref()
  }

  /** Resolves when nobody waits any more; nothing is begun by a timer after that. */
  async settle(): Promise<void> {
    clearTimeout(this.#timer)
    while (this.#running !== undefined) await this.#running
  }

  readonly #syncSoon = (): void => {
    this.#timer = undefined
    this.#running ??= this.#run()
  }

  async #run(): Promise<void> {
    // All lines of a write come in a row: they share what follows.
    await Promise.resolve()
    do {
      const waiting = this.#waiting
      this.#waiting = []
      const isSafe = await this.#options.sync()
      // What was written while the disk failed is in the same file.
      if (!isSafe) waiting.push(...this.#waiting.splice(0))
      for (const answer of waiting) answer(isSafe)
    } while (this.#waiting.length > 0)
    this.#running = undefined
  }
}
