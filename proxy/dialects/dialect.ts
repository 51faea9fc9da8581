/** Which protocol does this client speak? Answered from its first bytes; nothing is consumed. */

/** `more` is answered until the bytes decide; `unknown` is nothing that is served here (TLS, SOCKS4, rubbish). */
export type Sniffed = 'connect' | 'http' | 'socks5' | 'more' | 'unknown'

const SOCKS5_VERSION = 5
const CONNECT = Buffer.from('CONNECT ', 'latin1')

/**
 * Looks at the first bytes of a connection, or of what follows a 407 that kept it open. At most 8 bytes decide. Methods are case-sensitive: `connect`
 * is `http`, where the parser of Node refuses it.
 */
export function sniff(bytes: Buffer): Sniffed {
  const first = bytes[0]
  if (first === undefined) return 'more'
  if (first === SOCKS5_VERSION) return 'socks5'
  if (!isLetter(first)) return 'unknown'
  const known = Math.min(bytes.length, CONNECT.length)
  if (CONNECT.compare(bytes, 0, known, 0, known) !== 0) return 'http'
  return known === CONNECT.length ? 'connect' : 'more'
}

/** Every method that is registered begins with a letter. */
function isLetter(byte: number): boolean {
  const lower = byte | 0x20
  return lower >= 0x61 && lower <= 0x7a
}
