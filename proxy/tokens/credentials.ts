/**
 * Which credentials a client presented, in whatever way its dialect carries them. Never judges a token and never repeats one.
 * @see RFC 9110 section 11.7.2, RFC 7617 (Basic), RFC 6750 section 2.1 (Bearer), RFC 1929 (SOCKS5 user and password)
 */
import { withoutBlanksAround } from '../blanks.ts'
import type { Credentials } from '../request.ts'

/**
 * Longest token in bytes. A head may have 32 KiB, so nothing longer arrives in one piece; anything that calls without a head in between is
 * held to the same.
 */
export const MAX_TOKEN_BYTES = 32 * 1024

/** Basic in base64 is a third longer than what it holds, plus a user name of up to 255 bytes. */
const MAX_VALUE_BYTES = Math.ceil(((MAX_TOKEN_BYTES + 256) * 4) / 3) + 16

const TOKEN68 = /^[A-Za-z0-9._~+/-]+=*$/
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/
const BASE64URL = /^[A-Za-z0-9_-]*={0,2}$/

/**
 * Reads the value of `Proxy-Authorization` (latin1, as it came; `undefined` for no such header). Basic is read in either base64 alphabet, padded
 * or not; the user name is free, and one `jwt_` before the token is dropped. A token may be anything so far, see {@link isToken68}.
 */
export function readProxyAuthorization(value: string | undefined): Credentials {
  if (value === undefined) return { kind: 'none' }
  if (value.length > MAX_VALUE_BYTES) return malformed('the credentials are too long')
  const trimmed = withoutBlanksAround(value)
  const gap = trimmed.indexOf(' ')
  const scheme = (gap < 0 ? trimmed : trimmed.slice(0, gap)).toLowerCase()
  const rest = gap < 0 ? '' : trimmed.slice(gap).replace(/^ +/, '')
  if (scheme !== 'bearer' && scheme !== 'basic') return malformed('only the schemes Bearer and Basic are understood')
  if (rest === '') return malformed('the scheme has no credentials after it')
  if (scheme === 'basic') return readBasic(rest)
  return token(rest)
}

/** Whether a text that was presented as a token has the characters of one. Not asked for a token that is known: it has been. RFC 9110 section 11.2. */
export function isToken68(text: string): boolean {
  return TOKEN68.test(text)
}

/** Reads the user name and password of SOCKS5; the password is the token or a handle, the user name is free. */
export function readSocksPassword(_user: Buffer, password: Buffer): Credentials {
  return readPassword(password.toString('latin1'))
}

function readBasic(encoded: string): Credentials {
  const pad = encoded.indexOf('=')
  const digits = pad < 0 ? encoded.length : pad
  const lawful = BASE64.test(encoded) || BASE64URL.test(encoded)
  if (!lawful || digits % 4 === 1 || (pad >= 0 && encoded.length % 4 !== 0)) {
    return malformed('the Basic credentials are not base64')
  }
  const decoded = Buffer.from(encoded, 'base64').toString('latin1')
  const colon = decoded.indexOf(':')
  if (colon < 0) return malformed('the Basic credentials have no colon between user and password')
  return readPassword(decoded.slice(colon + 1))
}

function readPassword(password: string): Credentials {
  const text = password.startsWith('jwt_') ? password.slice(4) : password
  if (text === '') return malformed('the password is empty')
  return token(text)
}

function token(text: string): Credentials {
  return text.length <= MAX_TOKEN_BYTES ? { kind: 'token', token: text } : malformed('the token is too long')
}

function malformed(detail: string): Credentials {
  return { kind: 'malformed', detail }
}
