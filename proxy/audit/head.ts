/** Keeps the last checkpoint in a file apart from the log, so that a restart, or whoever verifies, sees that the end of the log was cut. */
import { rename, writeFile } from 'node:fs/promises'

/** Where the head is kept. Writes one after the other and only the newest; a failure is told once for each row of failures. */
export class HeadFile {
  readonly #path: string
  readonly #onError: (error: unknown) => void
  #next: string | undefined
  #writing: Promise<void> | undefined
  #isFailing = false

  constructor(path: string, onError: (error: unknown) => void) {
    this.#path = path
    this.#onError = onError
  }

  /** Keeps `line`, a checkpoint that is on the disk; resolves when it, or a newer one, was written or could not be. */
  keep(line: string): Promise<void> {
    this.#next = line
    return (this.#writing ??= this.#writeAll().finally(() => (this.#writing = undefined)))
  }

  async #writeAll(): Promise<void> {
    while (this.#next !== undefined) {
      const line = this.#next
      this.#next = undefined
      try {
        await writeFile(`${this.#path}.new`, line, { mode: 0o600 })
        await rename(`${this.#path}.new`, this.#path)
        this.#isFailing = false
      } catch (error) {
        if (!this.#isFailing) this.#onError(error)
        this.#isFailing = true
      }
    }
  }
}
