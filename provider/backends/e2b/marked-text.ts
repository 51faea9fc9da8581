/** Tells what the supervisor says from what its command says, in one stream of text that comes in pieces. */

/** A piece of the command's output, or the words of a mark. */
export type MarkedPiece = { readonly text: string } | { readonly words: readonly string[] }

const SIGN = '\x1e'
const MAX_MARK_LENGTH = 100

/** Gives the pieces of each text that is pushed; the beginning of what may be a mark is kept for the next. */
export function createMarkedText(mark: string): { push: (text: string) => readonly MarkedPiece[]; rest: () => string } {
  const begin = `${SIGN}${mark}:`
  let kept = ''

  return {
    push(text) {
      kept += text
      const pieces: MarkedPiece[] = []
      for (;;) {
        const at = kept.indexOf(begin)
        if (at < 0) {
          const end = kept.length - possibleBeginning(kept, begin)
          if (end > 0) pieces.push({ text: kept.slice(0, end) })
          kept = kept.slice(end)
          return pieces
        }
        const end = kept.indexOf(SIGN, at + begin.length)
        if (end < 0 && kept.length - at <= begin.length + MAX_MARK_LENGTH) {
          if (at > 0) pieces.push({ text: kept.slice(0, at) })
          kept = kept.slice(at)
          return pieces
        }
        if (at > 0) pieces.push({ text: kept.slice(0, at) })
        // A command may write anything, also something that begins like a mark.
        if (end < 0 || end - at > begin.length + MAX_MARK_LENGTH) {
          pieces.push({ text: begin })
          kept = kept.slice(at + begin.length)
        } else {
          pieces.push({ words: kept.slice(at + begin.length, end).split(' ') })
          kept = kept.slice(end + 1)
        }
      }
    },
    rest: () => kept,
  }
}

/** Length of the longest end of `text` that `begin` begins with. */
function possibleBeginning(text: string, begin: string): number {
  const at = text.lastIndexOf(SIGN)
  return at >= 0 && begin.startsWith(text.slice(at)) ? text.length - at : 0
}
