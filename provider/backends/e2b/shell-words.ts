/** Words for the one shell line that the platform takes: each arrives as it is, whatever a shell would make of it. */

/** Linux takes no longer single argument, and the whole line is one. With room for what the platform puts around it. */
const MAX_LINE_BYTES = 120 * 1024

/** One line; undefined when it is longer than the system takes. Without NUL: no argument can hold one. */
export function shellLine(words: readonly string[]): string | undefined {
  const line = `exec ${words.map(quoted).join(' ')}`
  return Buffer.byteLength(line) > MAX_LINE_BYTES ? undefined : line
}

function quoted(word: string): string {
  return /^[A-Za-z0-9/._=-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`
}
