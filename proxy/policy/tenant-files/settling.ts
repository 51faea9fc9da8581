/** Whether a file has come to rest: somebody may be writing it this moment, and half a list of denied hosts denies half. */

/** Remembers the stamps of files between two looks. */
export class Settling {
  readonly #taken = new Map<string, string>()
  readonly #seen = new Map<string, string>()

  /** Whether a file is to be read: another one than was taken, and the same as at the look before. `now`: without waiting for a second look. */
  isDue(name: string, stamp: string, now: boolean): boolean {
    if (this.#taken.get(name) === stamp) {
      this.#seen.delete(name)
      return false
    }
    const hasRested = this.#seen.get(name) === stamp
    this.#seen.set(name, stamp)
    return hasRested || now
  }

  /** It was read, whatever came of it. */
  take(name: string, stamp: string): void {
    this.#taken.set(name, stamp)
    this.#seen.delete(name)
  }

  /** It is gone. */
  forget(name: string): void {
    this.#taken.delete(name)
    this.#seen.delete(name)
  }

  /** Those that changed and have yet to be read. */
  waiting(): Iterable<string> {
    return this.#seen.keys()
  }
}
