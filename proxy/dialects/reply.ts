/**
 * How is an outcome told to an HTTP client? The one place where a refusal becomes bytes: status, reason phrase, headers and one line of JSON.
 * Nothing here decides anything, and nothing here is told a token, a resolved address or another tenant's data.
 * @see RFC 9110 sections 11.7.1 and 15, RFC 9209, RFC 6750 section 3
 */
import type { Destination } from '../../policies/index.ts'
import { describeReason, reasonPhrase } from '../reasons.ts'
import type { Refusal } from '../request.ts'

/** The name of this intermediary in `Proxy-Status` and `Via`. */
export const PSEUDONYM = 'sallyport'

/** After so many bare challenges on one connection it is closed: a client that asks again and again without credentials is not kept for ever. */
export const MAX_CHALLENGES = 10

/** The answer to a CONNECT that was let out. It has no header: a length or an encoding would be read as the start of the tunnel by some clients. */
export const CONNECT_OK: Buffer = Buffer.from('HTTP/1.1 200 Connection Established\r\n\r\n', 'latin1')

/** An answer of the gateway's own, before it is bytes. */
export interface Reply {
  readonly status: number
  /** Reason phrase. */
  readonly phrase: string
  /** Names and values by turns; without `Connection`. */
  readonly fields: readonly string[]
  /** One line of JSON, its line feed included. */
  readonly body: string
}

/** How an origin failed after policy had let the request out. No denial: it has no `x-deny-reason`. RFC 9209 sections 2.3.8 to 2.3.23. */
export type OriginFault = 'http_protocol_error' | 'connection_terminated'

/** How a reply goes out. */
export interface ReplyOptions {
  /** `keep-alive` instead of `close`; default false. */
  readonly keepOpen?: boolean
  /** The request was a HEAD: the length is told, the body is not sent; default false. */
  readonly head?: boolean
}

const ALLOW = 'CONNECT, GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS'
const ORIGIN_ADVICE =
  'Policy allows this destination and the gateway reached it, but its answer could not be read as HTTP or broke off. This is a fault of the origin; trying later may help.'

/** The bytes that tell `refusal` to an HTTP client. */
export function httpRefusal(refusal: Refusal, options: ReplyOptions & { readonly requestId: string }): Buffer {
  return replyBytes(refusalReply(refusal, options.requestId), options)
}

/** What to tell about `refusal`, for whoever writes the bytes. */
export function refusalReply(refusal: Refusal, requestId: string): Reply {
  const { status, proxyStatus, advice } = describeReason(refusal.reason)
  const details = refusal.detail ?? refusal.reason.replaceAll('_', ' ')
  return reply(
    status,
    reasonPhrase(refusal.reason),
    { error: refusal.reason, requestId, advice, destination: refusal.destination, detail: refusal.detail },
    [
      'x-deny-reason',
      refusal.reason,
      'proxy-status',
      `${PSEUDONYM}; error=${proxyStatus}; details="${quotable(details)}"`,
      ...challenges(refusal),
      ...(status === 405 ? ['allow', ALLOW] : []),
      ...(status === 429 || status === 503 ? ['retry-after', String(refusal.retryAfterSeconds ?? 1)] : []),
    ],
  )
}

/** What to tell about an origin that failed. */
export function originFaultReply(fault: OriginFault, requestId: string, destination: Destination): Reply {
  return reply(502, 'Bad Gateway', { error: fault, requestId, destination, advice: ORIGIN_ADVICE }, [
    'proxy-status',
    `${PSEUDONYM}; error=${fault}`,
  ])
}

/** A reply as bytes. */
export function replyBytes(reply: Reply, options: ReplyOptions = {}): Buffer {
  const lines = [`HTTP/1.1 ${reply.status} ${reply.phrase}`]
  for (let index = 0; index < reply.fields.length; index += 2) {
    lines.push(`${reply.fields[index] ?? ''}: ${reply.fields[index + 1] ?? ''}`)
  }
  lines.push(
    `connection: ${options.keepOpen === true ? 'keep-alive' : 'close'}`,
    '',
    options.head === true ? '' : reply.body,
  )
  return Buffer.from(lines.join('\r\n'), 'latin1')
}

interface BodyParts {
  readonly error: string
  readonly requestId: string
  readonly advice: string
  readonly destination?: Destination | undefined
  readonly detail?: string | undefined
}

function reply(status: number, phrase: string, parts: BodyParts, fields: readonly string[]): Reply {
  const body = bodyLine(parts)
  const bodyFields = [
    'content-type',
    'application/json',
    'content-length',
    String(body.length),
    'cache-control',
    'no-store',
    'x-content-type-options',
    'nosniff',
  ]
  return { status, phrase, fields: [...fields, ...bodyFields], body }
}

/** ASCII only, so that its length in characters is its length in bytes. */
function bodyLine({ error, destination, requestId, detail, advice }: BodyParts): string {
  const json = JSON.stringify({ error, ...hostAndPort(destination), request_id: requestId, detail, advice })
  return json.replace(/[^\x20-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`) + '\n'
}

/** The host as the client asked for it, in canonical form; never what it resolved to. */
function hostAndPort(destination: Destination | undefined): { readonly host?: string; readonly port?: number } {
  if (destination === undefined) return {}
  const host = destination.kind === 'name' ? destination.host : destination.address.text
  return { host, port: destination.port }
}

/** A client that sent nothing is told how to; one whose token was refused is told that another try with it is of no use. */
function challenges({ reason }: Refusal): readonly string[] {
  if (!reason.startsWith('token_')) return []
  const bearer = reason === 'token_missing' ? 'Bearer' : 'Bearer error="invalid_token"'
  return ['proxy-authenticate', `Basic realm="${PSEUDONYM}"`, 'proxy-authenticate', bearer]
}

/** The inside of a quoted string: printable ASCII, at most 200 characters. RFC 9651 section 3.3.3. */
function quotable(text: string): string {
  return text
    .slice(0, 200)
    .replace(/[^\x20-\x7e]/g, '?')
    .replace(/["\\]/g, '\\$&')
}
