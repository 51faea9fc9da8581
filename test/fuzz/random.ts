/** Numbers that look random and come again with the same seed. */

/** A source of numbers. */
export interface Random {
  /** A whole number from 0 up to, not including, `limit`. */
  readonly below: (limit: number) => number
  /** One of these; there must be one. */
  readonly pick: <T>(items: readonly T[]) => T
}

/** Mulberry32: 32 bits of state, which is plenty to choose a mutation. */
export function createRandom(seed: number): Random {
  let state = seed >>> 0
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 0x1_0000_0000
  }
  const below = (limit: number): number => Math.floor(next() * limit)
  return { below, pick: (items) => items[below(items.length)]! }
}

/** The same for the same bytes: for choices that belong to an input, such as where it is split. */
export function randomOf(bytes: Uint8Array): Random {
  let hash = 0x811c9dc5
  for (const byte of bytes) hash = Math.imul(hash ^ byte, 0x01000193)
  return createRandom(hash)
}

/** Bytes in a few pieces, and sometimes one by one. */
export function pieces(bytes: Buffer): Buffer[] {
  const random = randomOf(bytes)
  const most = random.pick([1, 3, 17, Math.max(1, bytes.length)])
  const parts: Buffer[] = []
  for (let at = 0; at < bytes.length;) {
    const length = 1 + random.below(most)
    parts.push(bytes.subarray(at, at + length))
    at += length
  }
  return parts
}
