/** Remembers what was read of the targets that clients ask for: the same few hosts come again and again, and reading a target is strict and not cheap. */
import { type Destination, type Parsed, parseAuthority } from '../policies/index.ts'
import { ownText } from './own-text.ts'

/** Targets remembered; each costs about 500 bytes. What is malformed is not remembered. */
const MAX_KNOWN = 2_048

/** Reads targets as `parseAuthority` does; the oldest is forgotten first. */
export class KnownDestinations {
  readonly #known = new Map<string, Parsed<Destination>>()

  /** `raw` is the `host:port` as it came, in latin1. */
  read(raw: string): Parsed<Destination> {
    const known = this.#known.get(raw)
    if (known) return known
    const own = ownText(raw)
    const parsed = parseAuthority(own)
    if (!parsed.ok) return parsed
    if (this.#known.size >= MAX_KNOWN) {
      for (const oldest of this.#known.keys()) {
        this.#known.delete(oldest)
        break
      }
    }
    this.#known.set(own, parsed)
    return parsed
  }
}
