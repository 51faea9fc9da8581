/**
 * Which header fields pass? Lists in, lists out, names and values by turns as they came; what frames the message is always written here and never copied.
 * @see RFC 9110 sections 6.5.1, 7.6.1 and 7.6.3
 */
import type { Destination } from '../../policies/index.ts'
import type { Framing, HttpHead } from './http-head.ts'
import { PSEUDONYM } from './reply.ts'

/** What is meant for the next hop only, what `Connection` can't be trusted to name, and what the gateway writes itself. */
const NEVER_COPIED: ReadonlySet<string> = new Set([
  'connection',
  'content-length',
  'host',
  'http2-settings',
  'keep-alive',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'x-deny-reason',
  // Becomes HTTP_PROXY in CGI programs behind the origin.
  'proxy',
])

/** Beside {@link NEVER_COPIED}: what a trailer must not say. RFC 9110 section 6.5.1. */
const NEVER_IN_TRAILERS: ReadonlySet<string> = new Set([
  'authorization',
  'cache-control',
  'content-encoding',
  'content-range',
  'content-type',
  'expect',
  'location',
  'max-forwards',
  'set-cookie',
  'via',
  'www-authenticate',
])

/** Where a request goes to, and how. */
export interface RequestRoute {
  readonly method: string
  readonly httpVersion: string
  readonly destination: Destination
  /** For an upstream proxy that wants credentials of its own. */
  readonly upstreamAuthorization?: string | undefined
}

/** The header list to send to the origin. */
export function requestFields(rawHeaders: readonly string[], head: HttpHead, route: RequestRoute): string[] {
  const fields = ['Host', hostField(route.destination)]
  const named = namedInConnection(rawHeaders)
  let via = `${route.httpVersion} ${PSEUDONYM}`
  eachField(rawHeaders, (name, value, lowerName) => {
    if (lowerName === 'via') via = `${value}, ${via}`
    else if (!passes(lowerName, named) || lowerName === 'expect') return
    else if (lowerName === 'max-forwards' && route.method === 'OPTIONS') fields.push(name, String(Number(value) - 1))
    else fields.push(name, value)
  })
  fields.push(...framingFields(head.framing, route.method))
  if (head.expectsContinue) fields.push('Expect', '100-continue')
  if (route.upstreamAuthorization !== undefined) fields.push('Proxy-Authorization', route.upstreamAuthorization)
  fields.push('Via', via, 'Connection', 'keep-alive')
  return fields
}

/** The parts of a response that {@link responseFields} looks at; `http.IncomingMessage` has them. */
export interface RawResponse {
  readonly statusCode: number
  readonly httpVersion: string
  readonly rawHeaders: readonly string[]
}

/** The header list to send to the client, `Content-Length` included where there is one; `Transfer-Encoding` and `Connection` are left to the writer. */
export function responseFields(response: RawResponse, framing: Framing): string[] {
  const fields: string[] = []
  const named = namedInConnection(response.rawHeaders)
  eachField(response.rawHeaders, (name, value, lowerName) => {
    if (passes(lowerName, named)) fields.push(name, value)
  })
  // A 204 has no length. RFC 9110 section 8.6.
  if (framing.kind === 'length' && response.statusCode !== 204) fields.push('Content-Length', String(framing.bytes))
  fields.push('Via', `${response.httpVersion} ${PSEUDONYM}`)
  return fields
}

/** The fields of a 1xx answer: what passes of them, without `Via`. */
export function interimFields(rawHeaders: readonly string[]): string[] {
  const fields: string[] = []
  const named = namedInConnection(rawHeaders)
  eachField(rawHeaders, (name, value, lowerName) => {
    if (passes(lowerName, named)) fields.push(name, value)
  })
  return fields
}

/** The trailers that pass, as pairs. */
export function trailerFields(rawTrailers: readonly string[]): [string, string][] {
  const fields: [string, string][] = []
  eachField(rawTrailers, (name, value, lowerName) => {
    if (passes(lowerName, NEVER_IN_TRAILERS)) fields.push([name, value])
  })
  return fields
}

/** `Host` is made of what was decided on, never of what the client wrote beside it. RFC 9112 section 3.2.2. */
export function hostField(destination: Destination): string {
  const host = destination.kind === 'name' ? destination.host : destination.address.text
  const bracketed = host.includes(':') ? `[${host}]` : host
  return destination.port === 80 ? bracketed : `${bracketed}:${destination.port}`
}

/** A method that usually has a body says so when it has none, or the origin would wait. RFC 9110 section 8.6. */
function framingFields(framing: Framing, method: string): readonly string[] {
  if (framing.kind === 'chunked') return ['Transfer-Encoding', 'chunked']
  if (framing.kind === 'length') return ['Content-Length', String(framing.bytes)]
  return ['GET', 'HEAD', 'DELETE', 'OPTIONS'].includes(method) ? [] : ['Content-Length', '0']
}

function passes(lowerName: string, dropped: ReadonlySet<string>): boolean {
  return !NEVER_COPIED.has(lowerName) && !dropped.has(lowerName) && !lowerName.startsWith('proxy-')
}

function namedInConnection(rawHeaders: readonly string[]): ReadonlySet<string> {
  const named = new Set<string>()
  eachField(rawHeaders, (_name, value, lowerName) => {
    if (lowerName !== 'connection') return
    for (const option of value.split(',')) named.add(option.trim().toLowerCase())
  })
  return named
}

function eachField(raw: readonly string[], visit: (name: string, value: string, lowerName: string) => void): void {
  for (let index = 0; index + 1 < raw.length; index += 2) {
    const name = raw[index] ?? ''
    visit(name, raw[index + 1] ?? '', name.toLowerCase())
  }
}
