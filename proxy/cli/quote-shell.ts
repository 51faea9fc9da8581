/** A text as one word for a POSIX shell, whatever is in it. */
export function quoteShell(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`
}
