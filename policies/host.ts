/** What is a host name, and how is it spelled? The one reader of names; it never asks DNS and never repairs a name. */
import { toASCII } from 'tr46'
import { faulty, parsed, type Parsed } from './parsed.ts'

declare const checked: unique symbol

/**
 * A DNS name in canonical form: lower case, A-labels, no trailing dot, at most 253 characters; never an address.
 * Only {@link parseHostName} makes one.
 */
export type HostName = string & { readonly [checked]: 'HostName' }

/** Longest name without its trailing dot. @see RFC 1035 section 2.3.4 */
const MAX_NAME = 253
/** Longest label. @see RFC 1035 section 2.3.4 */
const MAX_LABEL = 63

/**
 * Reads a name. On the wire only ASCII is a name; `unicode` (for files) first maps it to A-labels by UTS 46.
 * Faults: `empty`, `empty_label`, `length`, `character`, `unicode`, `a_label`, `address` (the last label makes it an
 * IPv4 address for most resolvers). Messages do not repeat the input.
 * @see RFC 1123 section 2.1, UTS 46, and "ends in a number" of the WHATWG URL standard
 */
export function parseHostName(text: string, options: { readonly unicode?: boolean } = {}): Parsed<HostName> {
  if (text.length > 4 * MAX_NAME) return tooLong()
  let name = text
  if (options.unicode === true && /[^\x00-\x7f]/.test(text)) {
    const ascii = toAscii(text)
    if (ascii === undefined) return faulty('unicode', 'a name that is not valid under IDNA (UTS 46)')
    name = ascii
  }
  if (name.endsWith('.')) name = name.slice(0, -1)
  if (name === '') return faulty('empty', 'a name must not be empty')
  if (name.length > MAX_NAME) return tooLong()

  let labelStart = 0
  let hasUpperCase = false
  for (let index = 0; index <= name.length; index += 1) {
    const code = index < name.length ? name.charCodeAt(index) : DOT
    if (code === DOT) {
      if (index === labelStart) return faulty('empty_label', 'a name with an empty label')
      if (index - labelStart > MAX_LABEL) return faulty('length', 'a label is at most 63 characters long')
      if (index < name.length) labelStart = index + 1
    } else if (code >= 0x41 && code <= 0x5a) {
      hasUpperCase = true
    } else if (!isNameCharacter(code)) {
      return code > 0x7f
        ? faulty('unicode', 'a name holds only ASCII here; write its A-labels (`xn--…`)')
        : faulty('character', 'a name holds only letters, digits, `-`, `_` and `.`')
    }
  }
  if (hasUpperCase) name = name.toLowerCase()
  if (isNumberLike(name, labelStart)) {
    return faulty('address', 'a name whose last label is a number is no name, and not an address in canonical form')
  }
  if (name.includes('xn--') && !survivesRoundTrip(name)) {
    return faulty('a_label', 'an A-label that UTS 46 does not give back as it is')
  }
  return parsed(name as HostName)
}

const DOT = 0x2e

function isNameCharacter(code: number): boolean {
  return (code >= 0x61 && code <= 0x7a) || (code >= 0x30 && code <= 0x39) || code === 0x2d || code === 0x5f
}

/** `inet_aton` and getaddrinfo read such names as IPv4 addresses (`0x7f000001`, `127.1`), so they are no names here. */
function isNumberLike(name: string, lastLabel: number): boolean {
  const first = name.charCodeAt(lastLabel)
  if (first < 0x30 || first > 0x39) return false
  return /^(?:[0-9]+|0x.*)$/.test(name.slice(lastLabel))
}

/** Decodes every A-label, checks it by UTS 46 and encodes it again: only what comes back unchanged is a name. */
function survivesRoundTrip(name: string): boolean {
  return toAscii(name) === name
}

function toAscii(name: string): string | undefined {
  try {
    return toASCII(name, { checkBidi: true, checkJoiners: true }) ?? undefined
  } catch {
    return undefined
  }
}

function tooLong(): Parsed<never> {
  return faulty('length', 'a name is at most 253 characters long')
}
