/**
 * Makes text from outside safe to look at: whatever a reader can not see, or what moves the text around it, is shown by its number. Nothing here makes markup;
 * texts are only ever put into text nodes.
 * @see UTS 39 and the "Trojan Source" paper, for what bidirectional controls do to a reader
 */

/**
 * Controls, format characters (bidirectional ones, zero-width ones), separators of lines, surrogates without their half, characters for private use and unassigned ones,
 * whatever is drawn as nothing, and blanks that are no space.
 */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}\p{Cn}\p{Default_Ignorable_Code_Point}\u2800]|(?! )\p{Zs}/gu

/** A piece of a text. */
export interface Piece {
  readonly text: string
  /** It stands for a character that can't be seen, such as `U+202E`. */
  readonly isUnseen: boolean
}

/** The pieces of a text, in order. */
export function piecesOf(text: string): readonly Piece[] {
  const pieces: Piece[] = []
  let from = 0
  for (const { 0: character, index } of text.matchAll(UNSEEN)) {
    if (index > from) pieces.push({ text: text.slice(from, index), isUnseen: false })
    pieces.push({ text: numberOf(character), isUnseen: true })
    from = index + character.length
  }
  if (from < text.length) pieces.push({ text: text.slice(from), isUnseen: false })
  return pieces
}

/** The same as one text, for titles and labels. */
export function visible(text: string): string {
  return text.replace(UNSEEN, (character) => `‹${numberOf(character)}›`)
}

function numberOf(character: string): string {
  return `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}`
}
