/** The heads of one exchange, as `node:http` wants them: the request for the origin, and the origin's answer for the client. */
import type http from 'node:http'

import type { Authorized } from '../request.ts'
import { MAX_HEAD_BYTES } from './connect-head.ts'
import { interimFields, requestFields, responseFields } from './http-fields.ts'
import { readFraming, type Framing, type HttpHead } from './http-head.ts'
import type { UpstreamAgent, UpstreamConnection } from './upstream-connection.ts'
import nodeHttp from '../node-http.ts'

/** What a request to an origin is made of. */
export interface OutgoingParts {
  readonly req: http.IncomingMessage
  readonly head: HttpHead
  /** What to send as the request-target: origin-form or `*`. */
  readonly path: string
  readonly authorized: Authorized
  readonly upstream: UpstreamConnection
  readonly agent: UpstreamAgent
}

/** Everything that `node:http` is told about a request to an origin; nothing of it is left to a default that could add or change a header. */
export function requestOptions(parts: OutgoingParts): http.RequestOptions {
  const { req, head, path, authorized, upstream, agent } = parts
  const { method = 'GET', httpVersion, rawHeaders } = req
  const route = { method, httpVersion, destination: authorized.destination }
  const upstreamAuthorization = upstream.upstreamProxy?.authorization
  return {
    ...agent.optionsFor(upstream),
    method,
    path: upstream.upstreamProxy === undefined ? path : absolutePath(upstream.hostField, path),
    headers: requestFields(rawHeaders, head, { ...route, upstreamAuthorization }),
    maxHeaderSize: MAX_HEAD_BYTES,
    insecureHTTPParser: false,
    setHost: false,
  }
}

/** Gives the head of an answer to the client's response; `false` if it can't be passed on. */
export function passHead(upRes: http.IncomingMessage, res: http.ServerResponse, isLastAnswer: boolean): boolean {
  const framing = framingOf(upRes)
  // A 407 would be taken for the gateway's own.
  if (framing === undefined || upRes.httpVersionMajor !== 1 || upRes.statusCode === 407) return false
  const { statusCode = 502, statusMessage = '', httpVersion, rawHeaders } = upRes
  if (isLastAnswer) res.shouldKeepAlive = false
  try {
    res.writeHead(statusCode, statusMessage, responseFields({ statusCode, httpVersion, rawHeaders }, framing))
    return true
  } catch {
    // Node's writer is stricter than its reader in a few characters.
    return false
  }
}

/** A 1xx answer as bytes for the client. */
export function interimBytes(statusCode: number, rawHeaders: readonly string[]): string {
  const fields = interimFields(rawHeaders)
  const lines = [`HTTP/1.1 ${statusCode} ${nodeHttp.STATUS_CODES[statusCode] ?? ''}`]
  for (let index = 0; index < fields.length; index += 2) {
    lines.push(`${fields[index] ?? ''}: ${fields[index + 1] ?? ''}`)
  }
  return `${lines.join('\r\n')}\r\n\r\n`
}

/** `OPTIONS *` of an origin is written without a path when a proxy is asked. RFC 9112 section 3.2.4. */
function absolutePath(host: string, path: string): string {
  return `http://${host}${path === '*' ? '' : path}`
}

function framingOf({ rawHeaders }: http.IncomingMessage): Framing | undefined {
  const lengths = valuesOf(rawHeaders, 'content-length')
  const encodings = valuesOf(rawHeaders, 'transfer-encoding')
  return lengths.length > 1 || encodings.length > 1 ? undefined : readFraming(lengths[0], encodings[0])
}

function valuesOf(rawHeaders: readonly string[], wanted: string): string[] {
  return rawHeaders.filter((_value, index) => index % 2 === 1 && rawHeaders[index - 1]?.toLowerCase() === wanted)
}
