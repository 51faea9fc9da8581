/** File names are bytes. In JSON and JavaScript a byte that is not UTF-8 stands as a lone surrogate U+DC80…U+DCFF, as PEP 383 does it. */
import { isUtf8 } from 'node:buffer'

/** A path as its bytes, one character a byte (latin1): what is sliced, joined and compared inside. */
export type RawPath = string

/** The readable form; {@link rawPath} gives the same bytes back. */
export function pathText(raw: RawPath): string {
  const bytes = Buffer.from(raw, 'latin1')
  if (isUtf8(bytes)) return bytes.toString('utf8')
  let text = ''
  for (let at = 0; at < bytes.length;) {
    const length = [1, 2, 3, 4].find((size) => at + size <= bytes.length && isUtf8(bytes.subarray(at, at + size)))
    text +=
      length === undefined ? String.fromCharCode(0xdc00 + (bytes[at] ?? 0)) : bytes.toString('utf8', at, at + length)
    at += length ?? 1
  }
  return text
}

/** The bytes of a readable path; undefined when it holds NUL or a surrogate that stands for no byte. */
export function rawPath(text: string): RawPath | undefined {
  if (text.includes('\0')) return undefined
  if (text.isWellFormed()) return Buffer.from(text, 'utf8').toString('latin1')
  let raw = ''
  for (const character of text) {
    const code = character.codePointAt(0) ?? 0
    if (code >= 0xdc80 && code <= 0xdcff) raw += String.fromCharCode(code - 0xdc00)
    else if (code >= 0xd800 && code <= 0xdfff) return undefined
    else raw += code < 0x80 ? character : Buffer.from(character, 'utf8').toString('latin1')
  }
  return raw
}

/** For a query: every byte that is not plain is percent-encoded. */
export function rawToQuery(raw: RawPath): string {
  return raw.replace(
    /[^A-Za-z0-9/._-]/g,
    (byte) => `%${byte.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`,
  )
}

/** One field of a query, percent-decoded to bytes; `+` is a plus. */
export function queryField(url: string, name: string): RawPath | undefined {
  const start = url.indexOf('?')
  if (start < 0) return undefined
  const field = url
    .slice(start + 1)
    .split('&')
    .find((part) => part.startsWith(`${name}=`))
  return field
    ?.slice(name.length + 1)
    .replace(/%([0-9A-Fa-f]{2})/g, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)))
}
