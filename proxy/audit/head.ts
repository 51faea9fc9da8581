/** After a checkpoint: brings the log to the disk, then keeps the checkpoint in a file apart from it, so that a later start sees that the end was cut. */
import { rename, writeFile } from 'node:fs/promises'

/** What {@link HeadKeeper} needs. */
export interface HeadOptions {
  /** Where the head is kept; without it the log is only brought to the disk. */
  readonly path: string | undefined
  /** The last checkpoint. */
  readonly last: () => string | undefined
  /** Brings the log to the disk; `false` when that failed. The head never runs ahead of what a loss of power leaves. */
  readonly sync: () => Promise<boolean>
  readonly onError: (error: unknown) => void
}

/** Keeps one head after the other; while one is being kept, all calls share the next. */
export class HeadKeeper {
  readonly #options: HeadOptions
  #running = Promise.resolve()
  #next: Promise<void> | undefined

  constructor(options: HeadOptions) {
    this.#options = options
  }

  /** Resolves when the checkpoint that is the last one now, or a later one, was kept or could not be. */
  keep(): Promise<void> {
    this.#next ??= this.#running = this.#running.then(() => {
      this.#next = undefined
      return this.#keepNow()
    })
    return this.#next
  }

  async #keepNow(): Promise<void> {
    const { path, last, sync, onError } = this.#options
    const line = last()
    if (!(await sync()) || line === undefined || path === undefined) return
    try {
      await writeFile(`${path}.new`, line, { mode: 0o600 })
      await rename(`${path}.new`, path)
    } catch (error) {
      onError(error)
    }
  }
}
