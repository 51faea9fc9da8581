/**
 * Can this request be forwarded, and how is it framed? Looks at the raw header list of one request, in which nothing has been joined or dropped.
 * What is ambiguous is refused: two readers must not see two requests.
 * @see RFC 9110 sections 7.2, 7.6.2 and 10.1.1, RFC 9112 sections 3.2, 6 and 11.2
 */

/** How the length of a body is told. */
export type Framing =
  { readonly kind: 'none' } | { readonly kind: 'length'; readonly bytes: number } | { readonly kind: 'chunked' }

/** What a request head says beside its target. */
export interface HttpHead {
  readonly ok: true
  readonly framing: Framing
  readonly proxyAuthorization: string | undefined
  /** The client waits for `100 Continue`. */
  readonly expectsContinue: boolean
  /** The value of the one `traceparent`; empty, which is none, for more than one. It passes on as it came either way. */
  readonly traceparent: string | undefined
}

/** A head that is refused. */
export interface HttpHeadRefused {
  readonly ok: false
  readonly reason: 'request_malformed' | 'method_not_allowed'
  readonly detail: string
}

/** The parts of a request that {@link readHttpHead} looks at; `http.IncomingMessage` has them. */
export interface RawHead {
  readonly method: string
  readonly httpVersion: string
  /** Names and values by turns. */
  readonly rawHeaders: readonly string[]
}

/** Headers of which a second one makes the request ambiguous. */
const SINGLE = ['host', 'proxy-authorization', 'content-length', 'transfer-encoding', 'expect', 'max-forwards'] as const
type Single = (typeof SINGLE)[number]

/** Reads the head of one request in absolute form. */
export function readHttpHead({ method, httpVersion, rawHeaders }: RawHead): HttpHead | HttpHeadRefused {
  if (httpVersion !== '1.1' && httpVersion !== '1.0') return malformed('the version is not HTTP/1.0 or HTTP/1.1')
  const values = new Map<Single, string>()
  let traceparent: string | undefined
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const lowerName = rawHeaders[index]?.toLowerCase()
    if (lowerName === 'traceparent') traceparent = traceparent === undefined ? (rawHeaders[index + 1] ?? '') : ''
    const name = SINGLE.find((single) => single === lowerName)
    if (name === undefined) continue
    if (values.has(name)) return malformed(`more than one ${name} header`)
    values.set(name, rawHeaders[index + 1] ?? '')
  }
  if (httpVersion === '1.1' && !values.has('host')) return malformed('no Host header')
  const unserved = unservedMethod(method, values.get('max-forwards'))
  if (unserved !== undefined) return { ok: false, reason: 'method_not_allowed', detail: unserved }
  const framing = readFraming(values.get('content-length'), values.get('transfer-encoding'))
  if (framing === undefined) return malformed('the length of the body is not told in one way that is served')
  if (framing.kind === 'chunked' && httpVersion === '1.0') return malformed('HTTP/1.0 has no Transfer-Encoding')
  const expect = httpVersion === '1.1' ? values.get('expect') : undefined
  if (expect !== undefined && expect.toLowerCase() !== '100-continue') return malformed('unknown expectation')
  const proxyAuthorization = values.get('proxy-authorization')
  return { ok: true, framing, proxyAuthorization, expectsContinue: expect !== undefined, traceparent }
}

/** Reads how a body is framed; `undefined` when that is ambiguous or not served. Only `chunked` alone is served as an encoding. */
export function readFraming(
  contentLength: string | undefined,
  transferEncoding: string | undefined,
): Framing | undefined {
  if (transferEncoding !== undefined) {
    return contentLength === undefined && transferEncoding.toLowerCase() === 'chunked' ? { kind: 'chunked' } : undefined
  }
  if (contentLength === undefined) return { kind: 'none' }
  return /^[0-9]{1,15}$/.test(contentLength) ? { kind: 'length', bytes: Number(contentLength) } : undefined
}

/** TRACE shows credentials to whoever asks; the answer to `Max-Forwards: 0` would have to be the gateway's own. RFC 9110 sections 9.3.8 and 7.6.2. */
function unservedMethod(method: string, maxForwards: string | undefined): string | undefined {
  if (method === 'TRACE') return 'TRACE is not served'
  if (method === 'CONNECT') return 'CONNECT is not served on a connection that was used for other requests'
  if (method === 'PRI') return 'HTTP/2 is not served'
  if (method === 'OPTIONS' && maxForwards !== undefined && !/^0*[1-9][0-9]{0,8}$/.test(maxForwards)) {
    return 'the gateway does not answer OPTIONS itself'
  }
  return undefined
}

function malformed(detail: string): HttpHeadRefused {
  return { ok: false, reason: 'request_malformed', detail }
}
