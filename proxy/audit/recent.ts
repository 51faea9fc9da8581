/** Remembers the text that was last made of something, by one of its fields; bounded. */
import { ownText } from '../own-text.ts'

/** Texts kept, and the longest field that is remembered: some megabytes at most, whatever comes. */
const MAX_KEPT = 8_192
const MAX_KEY_CHARACTERS = 256

interface Made<T> {
  /** All else that the text was made of. */
  readonly of: T
  readonly text: string
}

/** Texts by key; when there are too many, all are forgotten. */
export class Recent<T> {
  #made = new Map<string, Made<T>>()

  /** What was made last under this key: good only if all of {@link Made.of} is still the same. */
  get(key: string | undefined): Made<T> | undefined {
    return key === undefined ? undefined : this.#made.get(key)
  }

  /** Remembers it, unless the key is absent or long. */
  set(key: string | undefined, of: T, text: string): void {
    if (key === undefined || key.length > MAX_KEY_CHARACTERS) return
    if (this.#made.size >= MAX_KEPT) this.#made = new Map()
    this.#made.set(ownText(key), { of, text })
  }
}
