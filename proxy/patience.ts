/** Waits for what others have yet to say, until told to wait no longer. */

/** Patience that ends for everything at once, and for good. */
export class Patience {
  readonly #waiting = new Set<() => void>()
  #ended = false

  /** What is there already, or the promise; what `instead` gives (or throws) once patience has ended. */
  of<T>(work: T | Promise<T>, instead: () => T): T | Promise<T> {
    if (!(work instanceof Promise)) return work
    return new Promise((resolve, reject) => {
      const giveUp = () => {
        try {
          resolve(instead())
        } catch (error) {
          reject(error instanceof Error ? error : new Error('given up', { cause: error }))
        }
      }
      if (this.#ended) giveUp()
      else this.#waiting.add(giveUp)
      void work.then(resolve, reject).finally(() => this.#waiting.delete(giveUp))
    })
  }

  /** Idempotent. */
  end(): void {
    this.#ended = true
    for (const giveUp of [...this.#waiting]) giveUp()
  }
}
