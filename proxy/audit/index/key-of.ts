/** The number by which the index knows a text. Two texts may share one: every hit is compared with its line in the file. */

/** 53 bits; undefined stays undefined. Not for secrets, and not for anything that two texts must not share. */
export function keyOf(text: string): number {
  let high = 0x811c9dc5
  let low = 0x9dc5811c
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index)
    high = Math.imul(high ^ code, 0x01000193)
    low = Math.imul((low << 5) ^ (low >>> 27) ^ code, 0x85ebca6b)
  }
  high ^= high >>> 15
  low ^= low >>> 13
  return (high & 0x1fffff) * 0x1_0000_0000 + (low >>> 0)
}
