/** Reads the head of an upstream proxy's answer to CONNECT. Bytes in, data out; strict, since what follows the head belongs to the tunnel. */

/** What the bytes so far are; `length` is that of the head, the rest belongs to whoever comes next. */
export type ConnectReply =
  | { readonly state: 'more' }
  | { readonly state: 'done'; readonly status: number; readonly length: number }
  | { readonly state: 'malformed' }

/** Proxies add a handful of headers; curl and Node stop at the same order of size. */
export const MAX_REPLY_HEAD_BYTES = 16_384

const STATUS_LINE = /^HTTP\/1\.[01] ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?$/
const HEADER_LINE = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*$/

/**
 * Reads a reply head from the start of `bytes`. Only CRLF ends a line; headers are checked for their shape and otherwise ignored, also
 * `Content-Length` and `Transfer-Encoding`, which mean nothing in a 2xx to CONNECT.
 * @see RFC 9112 sections 2.2 and 4; RFC 9110 section 9.3.6
 */
export function parseConnectReply(bytes: Buffer): ConnectReply {
  const end = bytes.indexOf('\r\n\r\n')
  if (end < 0) {
    if (bytes.length > MAX_REPLY_HEAD_BYTES || !mayBeginReply(bytes)) return { state: 'malformed' }
    return { state: 'more' }
  }
  if (end + 4 > MAX_REPLY_HEAD_BYTES) return { state: 'malformed' }
  const [statusLine = '', ...headers] = bytes.toString('latin1', 0, end).split('\r\n')
  const status = STATUS_LINE.exec(statusLine)?.[1]
  if (status === undefined || !headers.every((line) => HEADER_LINE.test(line))) return { state: 'malformed' }
  return { state: 'done', status: Number(status), length: end + 4 }
}

/** Rubbish is told from the first bytes, so that nobody waits for an end that never comes. */
function mayBeginReply(bytes: Buffer): boolean {
  const expected = 'HTTP/1.'
  const shown = bytes.toString('latin1', 0, expected.length)
  return expected.startsWith(shown)
}
