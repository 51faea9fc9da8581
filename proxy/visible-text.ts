/**
 * Makes text from outside fit for a terminal: nothing in it moves the cursor, colours, answers, sets the clipboard, hides, or turns the direction of what stands around it.
 * Whatever could is shown by its number, as JSON writes it, so that JSON stays JSON.
 * @see UTS 39 and the "Trojan Source" paper, for what bidirectional controls do to a reader
 */

/**
 * Controls, format characters (bidirectional ones, zero-width ones), separators of lines, surrogates without their half, characters for private use and unassigned ones,
 * whatever is drawn as nothing, and blanks that are no space.
 */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}\p{Cn}\p{Default_Ignorable_Code_Point}\u2800]|(?! )\p{Zs}/gu
/** As nearly all that is printed. */
const PLAIN_LINE = /^[ -~]*$/
const PLAIN = /^[ -~\n\t]*$/

/** One line, whatever is in it: a line end is shown by its number too. */
export function visibleLine(text: string): string {
  return PLAIN_LINE.test(text) ? text : text.replace(UNSEEN, numberOf)
}

/** The same for what has several lines and tabs of its own. */
export function visibleText(text: string): string {
  return PLAIN.test(text)
    ? text
    : text.replace(UNSEEN, (character) => (character === '\n' || character === '\t' ? character : numberOf(character)))
}

function numberOf(character: string): string {
  return character.replace(/[^]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
}
