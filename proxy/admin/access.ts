/**
 * Who calls the control API, and may they? An admin token, a client certificate that the configuration names, or the admin socket, which only its owner
 * can open. Bad credentials have a budget for each address, good ones a rate.
 */
import { createHash } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import net from 'node:net'
import { TLSSocket } from 'node:tls'
import type { Clock } from '../clock.ts'
import type { Config } from '../config/schema.ts'
import type { ClientInfo } from '../request.ts'
import type { Revocations } from '../state/revocations.ts'
import { ADMIN_SCOPES, type AdminScope, type AdminVerifier } from '../tokens/admin-token.ts'
import { createFailureBudget } from '../tokens/failure-budget.ts'
import { AdminError } from './admin-error.ts'

/** Who called, for decisions and for the audit log. */
export interface Caller {
  /** The name in the token or of the certificate, `token <jti>` for a token without one, or `unix`. */
  readonly author: string
  readonly scopes: ReadonlySet<AdminScope>
  /** Of an admin token. */
  readonly tokenId: string | undefined
  /** Likewise; milliseconds since the epoch. */
  readonly expiresAtMs: number | undefined
  /** `address:port` of the caller, or `unix`. */
  readonly client: string
  /** Asked again while something long goes on. */
  readonly isGood: () => boolean
}

/** What access is judged by. */
export interface AccessOptions {
  readonly settings: () => Config['admin']
  readonly verifier: AdminVerifier
  readonly revocations: Pick<Revocations, 'isCurrent'>
  readonly clock: Clock
  /** The listener is a unix socket that only its owner can open. */
  readonly isOwnSocket: boolean
}

/** Judges callers. */
export interface Access {
  /** @throws AdminError `credentials_missing`, `credentials_invalid`, `rate_limited`, `busy` */
  readonly identify: (request: IncomingMessage) => Promise<Caller>
}

const NO_TOKEN = { tokenId: undefined, expiresAtMs: undefined }
const EVERYTHING: ReadonlySet<AdminScope> = new Set(ADMIN_SCOPES)

/** Makes it. */
export function createAccess({ settings, verifier, revocations, clock, isOwnSocket }: AccessOptions): Access {
  const failures = createFailureBudget(clock.monotonicMs)
  let perSecond = settings().requestsPerSecond
  let requests = requestBudget(clock, perSecond)

  async function identify(request: IncomingMessage): Promise<Caller> {
    const caller = await authenticate(request)
    if (perSecond !== settings().requestsPerSecond) {
      perSecond = settings().requestsPerSecond
      requests = requestBudget(clock, perSecond)
    }
    const key = createHash('sha256')
      .update(`${caller.author} ${caller.tokenId ?? ''}`)
      .digest('base64url')
    const spent = requests.exhausted(key)
    if (spent) throw limited(spent.retryAfterSeconds)
    requests.charge(key, 1)
    return caller
  }

  async function authenticate(request: IncomingMessage): Promise<Caller> {
    const { authorization } = request.headers
    const where = clientOf(request)
    if (authorization !== undefined) return bearer(authorization, where)
    if (isOfOtherPage(request)) return refuse('credentials_missing', 'a page of another origin needs a token')
    if (isOwnSocket) {
      if (isForName(request))
        return refuse('credentials_missing', 'the socket needs a token from whoever asks for a host by its name')
      return { author: 'unix', scopes: EVERYTHING, ...NO_TOKEN, client: 'unix', isGood: () => true }
    }
    return certified(request, where) ?? refuse('credentials_missing', 'this route needs credentials')
  }

  async function bearer(header: string, where: ClientInfo): Promise<Caller> {
    const spent = failures.exhausted(where.address)
    if (spent) throw limited(spent.retryAfterSeconds)
    if (!revocations.isCurrent()) throw new AdminError('busy', 'revocations can not be read, so no token is accepted')
    const token = /^Bearer ([A-Za-z0-9._~+/-]+=*)$/i.exec(header)?.[1]
    if (token === undefined) {
      failures.charge(where.address, BAD_HEADER_US)
      return refuse('credentials_invalid', 'only `Authorization: Bearer` and a token are understood')
    }
    const verdict = await verifier.verify(token, where)
    if (!verdict.ok) {
      failures.charge(where.address, verdict.costUs)
      return refuse('credentials_invalid', `the token is not accepted: ${verdict.reason}`)
    }
    const { name, tokenId, expiresAtMs, scopes, isGood } = verdict.bearer
    return { author: name ?? `token ${tokenId}`, scopes, tokenId, expiresAtMs, client: clientText(where), isGood }
  }

  function certified(request: IncomingMessage, where: ClientInfo): Caller | undefined {
    const { socket } = request
    if (!(socket instanceof TLSSocket) || !socket.authorized) return undefined
    const certificate = socket.getPeerX509Certificate()
    if (certificate === undefined) return undefined
    const thumbprint = createHash('sha256').update(certificate.raw).digest('base64url')
    const names = commonNames(certificate.subject)
    const find = () =>
      settings().clients.find(
        (client) =>
          client.certificate === thumbprint || (client.commonName !== undefined && names.includes(client.commonName)),
      )
    const client = find()
    if (client === undefined) return refuse('credentials_invalid', 'the certificate is not one of `admin.clients`')
    return {
      author: client.name,
      scopes: new Set(client.scopes),
      ...NO_TOKEN,
      client: clientText(where),
      isGood: () => find()?.name === client.name,
    }
  }

  return { identify }
}

/** @throws AdminError `scope_missing` */
export function requireScope(caller: Caller, scopes: readonly AdminScope[]): void {
  if (caller.scopes.has('admin') || scopes.some((scope) => caller.scopes.has(scope))) return
  const needed = [...scopes, 'admin'].filter((scope, at, all) => all.indexOf(scope) === at)
  throw new AdminError('scope_missing', `this needs the scope ${needed.map((scope) => `\`${scope}\``).join(' or ')}`)
}

/** Microseconds of work that a header without a token costs. */
const BAD_HEADER_US = 15

/** Requests take the place of microseconds: one each. */
function requestBudget(clock: Clock, perSecond: number): ReturnType<typeof createFailureBudget> {
  return createFailureBudget(clock.monotonicMs, {
    addressUsPerSecond: perSecond,
    addressBurstUs: 2 * perSecond,
    totalUsPerSecond: 20 * perSecond,
    totalBurstUs: 40 * perSecond,
    addresses: 1_000,
  })
}

function limited(retryAfterSeconds: number): AdminError {
  return new AdminError('rate_limited', 'too many requests', { retryAfterSeconds })
}

function refuse(code: 'credentials_missing' | 'credentials_invalid', message: string): never {
  throw new AdminError(code, message)
}

function clientOf({ socket }: IncomingMessage): ClientInfo {
  const { remoteAddress, remotePort } = socket
  const thumbprint = socket instanceof TLSSocket && socket.authorized ? socket.getPeerX509Certificate()?.raw : undefined
  return {
    address: remoteAddress ?? 'unix',
    port: remotePort ?? 0,
    ...(thumbprint && { certificateThumbprint: createHash('sha256').update(thumbprint).digest('base64url') }),
  }
}

/**
 * Whether the request is for a host name of the DNS. Through a forwarded port a browser reaches the socket, and with it any page whose name leads to this
 * machine by now; such a page can't ask under an address, or under a name without a dot.
 */
function isForName({ headers: { host = '' } }: IncomingMessage): boolean {
  const name = host.replace(/:\d*$/, '')
  return name.includes('.') && net.isIP(name) === 0
}

/**
 * Whether a page of another origin has a browser ask. What needs no token (a socket behind a forwarded port, a client certificate) the browser adds for any
 * page, which can't read the answer; but some requests do something. @see Fetch Metadata Request Headers, section 2
 */
function isOfOtherPage({ headers: { host = '', origin, 'sec-fetch-site': site = 'none' } }: IncomingMessage): boolean {
  if (site !== 'none' && site !== 'same-origin') return true
  return origin !== undefined && URL.parse(origin)?.host !== host.toLowerCase()
}

function clientText({ address, port }: ClientInfo): string {
  if (port === 0) return address
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`
}

/** Node gives a subject as lines; a value with a line end in it is escaped there, so no value can pass for a line of its own. */
function commonNames(subject: string | undefined): readonly string[] {
  return (subject ?? '').split('\n').flatMap((line) => (line.startsWith('CN=') ? [line.slice(3)] : []))
}
