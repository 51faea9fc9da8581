/** Which known word a misspelt one was meant to be. */

/** Words that other gateways use for the same thing. */
const HABITS: Readonly<Record<string, string>> = {
  alloweddomains: 'allowedHosts',
  allowedendpoints: 'allowedHosts',
  allow: 'allowedHosts',
  allowout: 'allowedHosts',
  denieddomains: 'deniedHosts',
  deny: 'deniedHosts',
  denyout: 'deniedHosts',
  jwksuri: 'jwks',
  jwksurl: 'jwks',
  jwksfile: 'jwks',
  secret: 'secretFile',
  default: 'ceiling',
  proxy: 'listen',
  admin: 'listen',
  dns: 'resolvers',
  action: 'mode',
  enforce: 'mode',
}

/** The candidate that `word` most likely stands for: the same but for case and separators, another gateway's word, or few typing slips away. */
export function suggest(word: string, candidates: readonly string[]): string | undefined {
  const folded = fold(word)
  const same = candidates.find((candidate) => fold(candidate) === folded)
  if (same !== undefined) return same
  const habit = Object.hasOwn(HABITS, folded) ? HABITS[folded] : undefined
  if (habit !== undefined && candidates.includes(habit)) return habit
  if (folded.length > 64) return undefined
  const limit = Math.max(1, Math.floor(folded.length / 4))
  let best: { readonly candidate: string; readonly distance: number } | undefined
  for (const candidate of candidates) {
    const distance = slips(folded, fold(candidate))
    if (distance <= limit && (best === undefined || distance < best.distance)) best = { candidate, distance }
  }
  return best?.candidate
}

function fold(word: string): string {
  return word.toLowerCase().replace(/[^a-z0-9]/g, '')
}

/** Insertions, deletions, replacements and swaps of neighbours between two words (optimal string alignment). */
function slips(left: string, right: string): number {
  let beforeLast: number[] = []
  let last = Array.from({ length: right.length + 1 }, (_item, index) => index)
  for (let row = 1; row <= left.length; row += 1) {
    const current = [row]
    for (let column = 1; column <= right.length; column += 1) {
      const replaced = (last[column - 1] ?? 0) + (left[row - 1] === right[column - 1] ? 0 : 1)
      let distance = Math.min((last[column] ?? 0) + 1, (current[column - 1] ?? 0) + 1, replaced)
      const swapped = left[row - 1] === right[column - 2] && left[row - 2] === right[column - 1]
      if (row > 1 && column > 1 && swapped) distance = Math.min(distance, (beforeLast[column - 2] ?? 0) + 1)
      current.push(distance)
    }
    beforeLast = last
    last = current
  }
  return last[right.length] ?? 0
}
