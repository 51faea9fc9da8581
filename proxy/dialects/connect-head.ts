/**
 * What does the head of this CONNECT say? Bytes in, plain data out; it reads no policy and no credentials, and keeps nothing between calls.
 *
 * The grammar is that of RFC 9112 without its leniencies: lines end in CRLF, no folding, no blank before a colon, one space on each side of the target.
 * Whatever is accepted here is accepted by the parser of Node as well and read the same (the tests compare the two), so that nothing that sits behind or
 * in front of this gateway can read another request in the same bytes.
 *
 * @see RFC 9112 sections 2, 3 and 5, RFC 9110 section 9.3.6
 */
import { withoutBlanksAround } from '../blanks.ts'
import { ownText } from '../own-text.ts'

/** The largest head that is read, with the empty line that ends it. A token that lists 200 hosts takes 6 to 9 KiB, and a third more as Basic. */
export const MAX_HEAD_BYTES = 32 * 1024

/** What {@link parseConnectHead} found. */
export type ConnectHead =
  | { readonly state: 'more' }
  | {
      readonly state: 'done'
      /** Bytes of the head, the empty line included; what follows is early data. */
      readonly length: number
      /** The raw target in latin1; `parseAuthority` reads it. A tunnel keeps it, so it is no part of a longer text. */
      readonly target: string
      readonly version: '1.0' | '1.1'
      /** The value of `Proxy-Authorization` in latin1, without the blanks around it. */
      readonly proxyAuthorization: string | undefined
      /** Likewise of `traceparent`, a text of its own; empty, which is none, for more than one. */
      readonly traceparent: string | undefined
    }
  | {
      readonly state: 'refused'
      readonly reason: 'request_malformed' | 'target_malformed' | 'head_too_large'
      /** What was wrong, in words for the client; repeats nothing of the input. */
      readonly detail: string
      /** The raw target in latin1 where one could be told, for the audit line; user information in it is replaced by `***`. */
      readonly target: string | undefined
    }

/** `CONNECT`, one space, what is no space, one space, the version. */
const REQUEST_LINE = /^CONNECT ([^ ]*) HTTP\/1\.([01])\r\n/
/** What can stand in an authority: anything else is refused before `parseAuthority` sees it, so that no other parser reads the line differently. */
const TARGET = /^[A-Za-z0-9._\-:[\]]+$/
/** A token, a colon, and a value of visible characters, blanks and obs-text. RFC 9110 sections 5.5 and 5.6.2. */
const FIELD_LINE = /([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([\t\x20-\x7e\x80-\xff]*)\r\n/y
/** In the part of a head that has arrived: a line feed without its carriage return, or the reverse. A carriage return at the very end may still get one. */
const BROKEN_LINE_END = /[^\r]\n|\r[^\n]/
const HEAD_END = '\r\n\r\n'

/**
 * Reads a CONNECT head from the first bytes of a connection. Call it again with more bytes while it answers `more`.
 *
 * `seenBytes` is how many of these bytes an earlier call has answered `more` to (default 0). It changes no answer; it keeps the cost of a head that comes
 * byte by byte linear.
 */
export function parseConnectHead(bytes: Buffer, seenBytes = 0): ConnectHead {
  const end = bytes.indexOf(HEAD_END, Math.max(0, seenBytes - HEAD_END.length), 'latin1')
  if (end === -1) return unfinished(bytes, seenBytes)
  const length = end + HEAD_END.length
  if (length > MAX_HEAD_BYTES) return tooLarge(bytes)
  return parseWhole(bytes.toString('latin1', 0, length))
}

/** No empty line yet: can this still become a head? */
function unfinished(bytes: Buffer, seenBytes: number): ConnectHead {
  if (bytes.length >= MAX_HEAD_BYTES) return tooLarge(bytes)
  const brokenLine = BROKEN_LINE_END.test(bytes.toString('latin1', Math.max(0, seenBytes - 1)))
  return brokenLine ? parseWhole(bytes.toString('latin1')) : { state: 'more' }
}

/** `text` is the whole head, or as much of one as already shows that it can't be read. */
function parseWhole(text: string): ConnectHead {
  const line = REQUEST_LINE.exec(text)
  if (line === null) return malformed('the first line is not `CONNECT host:port HTTP/1.1` in CRLF', targetOf(text))
  const target = ownText(line[1] ?? '')
  if (!TARGET.test(target)) {
    return {
      state: 'refused',
      reason: 'target_malformed',
      detail: 'the target is not host:port',
      target: withoutUser(target),
    }
  }
  return parseFields(text, line[0].length, target, line[2] === '0' ? '1.0' : '1.1')
}

function parseFields(text: string, from: number, target: string, version: '1.0' | '1.1'): ConnectHead {
  let proxyAuthorization: string | undefined
  let traceparent: string | undefined
  let hasHost = false
  let position = from
  while (!text.startsWith('\r\n', position)) {
    FIELD_LINE.lastIndex = position
    const field = FIELD_LINE.exec(text)
    if (field === null) return malformed('a header line is not `name: value` in CRLF', target)
    position = FIELD_LINE.lastIndex
    switch (field[1]?.toLowerCase()) {
      case 'host':
        if (hasHost) return malformed('more than one Host header', target)
        hasHost = true
        break
      case 'proxy-authorization':
        if (proxyAuthorization !== undefined) return malformed('more than one Proxy-Authorization header', target)
        proxyAuthorization = withoutBlanksAround(field[2] ?? '')
        break
      case 'traceparent':
        traceparent = traceparent === undefined ? ownText(withoutBlanksAround(field[2] ?? '')) : ''
        break
      case 'content-length':
      case 'transfer-encoding':
        return malformed('CONNECT has no body', target)
    }
  }
  return { state: 'done', length: position + 2, target, version, proxyAuthorization, traceparent }
}

function tooLarge(bytes: Buffer): ConnectHead {
  const target = targetOf(bytes.toString('latin1', 0, 2048))
  return { state: 'refused', reason: 'head_too_large', detail: 'the head is larger than 32 KiB', target }
}

function malformed(detail: string, target: string | undefined): ConnectHead {
  return { state: 'refused', reason: 'request_malformed', detail, target }
}

/** What stands where a target should, of a head that can't be read; for the audit line only. */
function targetOf(text: string): string | undefined {
  const target = /^CONNECT ([^ \r\n]+)/.exec(text)?.[1]
  return target === undefined ? undefined : withoutUser(target)
}

/** A user and password in a target are credentials, whoever put them there by mistake. */
function withoutUser(target: string): string {
  return ownText(target.replace(/^.*@/s, '***@'))
}
