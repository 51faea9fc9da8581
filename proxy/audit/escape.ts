/** Makes text from outside fit for an audit line: printable ASCII, bounded, without anything that looks like a credential. */

/** Longest text of a field, in characters before JSON escaping. Enough for any name, address or identifier; a line stays small. */
export const MAX_FIELD_CHARACTERS = 512

/** How much of a longer text is looked at; the rest is cut unseen, so that no text costs more than this. */
const MAX_SCANNED_CHARACTERS = 4096

const CUT_MARK = String.raw`\...`
const REDACTED = '[redacted]'
/** What the dialects leave of user information. */
const HIDDEN_USER = '***@'

/** Printable ASCII but for the quote and the backslash: needs no escaping in JSON. */
const PLAIN = /^[ !#-[\]-~]*$/
/** As nearly every target is: a name or an address, and a port. */
const ORDINARY_TARGET = /^[a-z0-9.:[\]_-]{1,300}$/i
const SUSPECT = /eyJ|sph_|@|basic|bearer/i
/** The first character of what base64url makes of a JSON object, also with blanks or a byte order mark in front. */
const OBJECT_START = /^[eICD7]/
const SUSPECT_OBJECT = /(?<![\w-])[eICD7][\w-]{14}/
/** So much of a segment is decoded to see whether it begins an object. */
const DECODED_CHARACTERS = 64

/**
 * The raw target (latin1) as the `requested` field shows it: printable ASCII stays, a backslash is doubled, any other byte becomes `\xHH`;
 * what looks like a credential is replaced, and so is whatever stands before an `@`, which no target has; at most 512 characters, and a text that was cut ends in `\...`.
 */
export function escapeRequested(raw: string): string {
  if (ORDINARY_TARGET.test(raw) && !isSuspect(raw)) return raw
  const escaped = redactCredentials(raw.slice(0, MAX_SCANNED_CHARACTERS))
    .replace(/[^\s/]+/g, hideUser)
    .replace(/[^ -[\]-~]/g, escapeCharacter)
  if (escaped.length <= MAX_FIELD_CHARACTERS && raw.length <= MAX_SCANNED_CHARACTERS) return escaped
  const room = MAX_FIELD_CHARACTERS - CUT_MARK.length
  // An escape is never cut in two: `\x1` would read as something else.
  return escaped.slice(0, room).replace(/(?<!\\)((?:\\\\)*)\\(?:x[0-9a-f]?)?$/, '$1') + CUT_MARK
}

/**
 * `text` with `[redacted]` in place of what looks like a JWT, a handle, an Authorization value or the user info of a URL. A second net: no field
 * is meant for credentials, but a client may put one into a target, and a caller into a detail. Takes time linear in the text.
 */
export function redactCredentials(text: string): string {
  if (text.length < 8 || !isSuspect(text)) return text
  return text
    .replace(/\b(basic|bearer)\s+[^\s"']+/gi, `$1 ${REDACTED}`)
    .replace(/[^\s/]+/g, redactUserInfo)
    .replace(/[\w.~+=-]+/g, redactToken)
}

/** `text` as a JSON string in ASCII: no character of it can end the line, the string, or start a terminal's escape sequence. */
export function quoteField(text: string): string {
  let clean = text.length > MAX_SCANNED_CHARACTERS ? text.slice(0, MAX_SCANNED_CHARACTERS) : text
  clean = redactCredentials(clean)
  if (clean.length > MAX_FIELD_CHARACTERS) clean = clean.slice(0, MAX_FIELD_CHARACTERS - CUT_MARK.length) + CUT_MARK
  if (PLAIN.test(clean)) return `"${clean}"`
  return JSON.stringify(clean).replace(/[\x7f-\uffff]/g, (character) => String.raw`\u` + hex(character, 4))
}

function isSuspect(text: string): boolean {
  return SUSPECT.test(text) || SUSPECT_OBJECT.test(text)
}

function hideUser(word: string): string {
  const at = word.lastIndexOf('@')
  const isHidden = at === HIDDEN_USER.length - 1 && word.startsWith(HIDDEN_USER)
  return at === -1 || isHidden ? word : REDACTED + word.slice(at)
}

function escapeCharacter(character: string): string {
  if (character === '\\') return '\\\\'
  const code = character.charCodeAt(0)
  return code > 0xff ? String.raw`\u` + hex(character, 4) : String.raw`\x` + hex(character, 2)
}

function hex(character: string, digits: number): string {
  return character.charCodeAt(0).toString(16).padStart(digits, '0')
}

function redactUserInfo(word: string): string {
  const at = word.lastIndexOf('@')
  const colon = word.indexOf(':')
  return colon === -1 || at < colon ? word : REDACTED + word.slice(at)
}

function redactToken(word: string): string {
  const jwt = word.indexOf('eyJ')
  if (jwt !== -1 && word.length - jwt >= 20 && word.includes('.', jwt)) return word.slice(0, jwt) + REDACTED
  if (word.length >= 20 && word.split('.').some(isObject)) return REDACTED
  const handle = word.indexOf('sph_')
  return handle !== -1 && word.length - handle >= 20 ? word.slice(0, handle) + REDACTED : word
}

/** Whether a segment is a JSON object with a member, as the header and the claims of a JWT are, however that is written. */
function isObject(segment: string): boolean {
  if (segment.length < 15 || !OBJECT_START.test(segment)) return false
  const start = Buffer.from(segment.slice(0, DECODED_CHARACTERS), 'base64url').toString('latin1')
  return /^(?:\xef\xbb\xbf)?\s*(?:\{\s*(?:"|$)|$)/.test(start)
}
