/** Blanks of HTTP fields. By hand: an expression for the blanks at an end looks at every run of blanks in between, again from each of its characters. */

/** Without spaces and tabs around it, which are no part of a value; nothing else that `trim` would take. @see RFC 9110 section 5.5 */
export function withoutBlanksAround(value: string): string {
  let from = 0
  let to = value.length
  while (from < to && isBlank(value, from)) from++
  while (to > from && isBlank(value, to - 1)) to--
  return value.slice(from, to)
}

function isBlank(value: string, at: number): boolean {
  const unit = value.charCodeAt(at)
  return unit === 0x20 || unit === 0x09
}
