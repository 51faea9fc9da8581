/** A document as a row of small pieces, so that the thread that gets it from another is never long at it. */
import { DocumentFault } from './parse-document.ts'

/** A text, number, truth or null stands for itself; `[` and `{` begin a list and a map, `]` ends either; in a map each value follows its key. */
export type Piece = string | number | boolean | null | { readonly mark: '[' | '{' | ']' }

const LIST: Piece = { mark: '[' }
const MAP: Piece = { mark: '{' }
const END: Piece = { mark: ']' }
const MOST_DEEP = 64

/** Takes a value apart. @throws DocumentFault `too_deep` or `name` */
export function* piecesOf(value: unknown, depth = 0): Generator<Piece, void, undefined> {
  if (typeof value !== 'object' || value === null) {
    // Dates and the like are nothing that a document of ours holds.
    yield typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' ? value : null
    return
  }
  if (depth === MOST_DEEP) throw new DocumentFault('too_deep')
  if (Array.isArray(value)) {
    yield LIST
    for (const one of value) yield* piecesOf(one, depth + 1)
  } else {
    yield MAP
    for (const [key, one] of Object.entries(value)) {
      if (key === '__proto__') throw new DocumentFault('name')
      yield key
      yield* piecesOf(one, depth + 1)
    }
  }
  yield END
}

/** Puts it together again. */
export class Assembly {
  readonly #open: (unknown[] | Record<string, unknown>)[] = []
  #key: string | undefined
  /** Once all of it was added. */
  value: unknown

  /** Takes pieces in order. */
  add(pieces: readonly Piece[]): void {
    for (const piece of pieces) {
      const inside = this.#open.at(-1)
      if (typeof piece === 'object' && piece !== null) {
        if (piece.mark === ']') this.#open.pop()
        else {
          const fresh = piece.mark === '[' ? [] : {}
          this.#put(inside, fresh)
          this.#open.push(fresh)
        }
      } else if (inside !== undefined && !Array.isArray(inside) && this.#key === undefined) this.#key = String(piece)
      else this.#put(inside, piece)
    }
  }

  #put(inside: unknown[] | Record<string, unknown> | undefined, value: unknown): void {
    if (inside === undefined) this.value = value
    else if (Array.isArray(inside)) inside.push(value)
    else {
      inside[this.#key ?? ''] = value
      this.#key = undefined
    }
  }
}
