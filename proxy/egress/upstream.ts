/** Chains through the operator's upstream proxy: CONNECT, or absolute-form for plain HTTP where the upstream resolves names. Decides nothing. */
import type net from 'node:net'
import tls from 'node:tls'
import { authorityText, type Destination, type IpAddress, type Permit } from '../../policies/index.ts'
import { readBearerFile } from '../bearer-file.ts'
import { LATE, withDeadline, type Deadline } from './deadline.ts'
import {
  dialOperatorProxy,
  type DialFailure,
  type DialOptions,
  type DialReason,
  openHalfOpenSocket,
  type Opener,
  openSocket,
  openWire,
} from './dial.ts'
import type { Wire } from '../relay/wire.ts'
import type { Resolver } from './resolver.ts'
import { sideOfStream, type ReadableSide, type StreamSide } from './stream-side.ts'
import { UpstreamProxy } from './upstream-proxy.ts'
import { parseConnectReply } from './upstream-reply.ts'

/** Settings of {@link createUpstream}. */
export interface UpstreamOptions {
  /** `http://host:port` or `https://host:port`; user information in it counts as credentials. */
  readonly url: string
  /** `user:password`, such as the content of `credentialsFile`; wins over the URL's. */
  readonly credentials?: string | undefined
  /** A file with a bearer token, read for every use; wins over the credentials. */
  readonly tokenFile?: string | undefined
  /**
   * Who resolves names. `here` (the default): the upstream is asked for the very address that was judged. `upstream`: it is asked for the name, and
   * then nothing here knows where the connection ends up: private and metadata addresses are the upstream's to refuse.
   */
  readonly resolve?: 'here' | 'upstream' | undefined
  /** More authorities for an `https:` upstream, PEM, beside the default ones. */
  readonly ca?: string | undefined
  /** For the upstream's own name. */
  readonly resolver: Resolver
}

/** Nothing could be opened. `upstream` says in words what the upstream did, for the gateway's log; it holds no credentials. */
export interface UpstreamFailure extends DialFailure {
  readonly upstream: string
}

/** A connection through the upstream. */
export interface ThroughUpstream<C> {
  readonly ok: true
  readonly connection: C
  /** The address that the upstream was asked for; `undefined` when it resolves names. */
  readonly address: IpAddress | undefined
  readonly connectMs: number
}

/** How plain HTTP requests are written to what {@link Upstream.forward} opened. */
export type RequestForm =
  { readonly kind: 'origin' } | { readonly kind: 'absolute'; readonly proxyAuthorization: string | undefined }

/** The way out when `network.upstream` is set. */
export interface Upstream {
  readonly resolve: 'here' | 'upstream'
  /** `host:port`, without credentials. */
  readonly text: string
  /**
   * A tunnel by CONNECT to the permit's addresses in turn (three at most), or to its name. Bytes right behind the reply are the side's next `read()`.
   * @throws (rejects) the signal's reason when it aborts
   */
  connect<S extends ReadableSide>(
    permit: Permit,
    makeSide: SideMaker<S>,
    options: DialOptions,
  ): Promise<ThroughUpstream<S> | UpstreamFailure>
  /**
   * A socket for plain HTTP to the permit's destination. Where the upstream resolves names it wants absolute-form requests. Where they are resolved here
   * the socket is a tunnel to the judged address and takes origin-form: an absolute-form with an address in it would make the upstream rewrite `Host` to
   * that address (RFC 9112 section 3.2.2).
   * @throws (rejects) the signal's reason when it aborts
   */
  forward(
    permit: Permit,
    options: DialOptions,
  ): Promise<(ThroughUpstream<net.Socket> & { readonly form: RequestForm }) | UpstreamFailure>
}

/** Makes sides of what was opened: of a wire for an `http:` upstream, of a socket for an `https:` one. */
export interface SideMaker<S> {
  readonly ofWire: (wire: Wire) => S
  readonly ofSocket: (socket: net.Socket) => S
}

/** Several addresses are tried, but an upstream is slow to say no, and each try is a connection. */
const MAX_TARGETS = 3
/** A reply may be preceded by so many interim ones. @see RFC 9110 section 15.2 */
const MAX_INTERIM_REPLIES = 4

/** What a hop needs to know of where it goes: the judged address, or only the name. */
interface Target {
  readonly authority: string
  readonly address: IpAddress | undefined
}

/** The upstream is connected, or not. */
type Opened<S> = { readonly ok: true; readonly side: S } | Fault
type Reached<C> = { readonly ok: true; readonly connection: C } | Fault
interface Fault {
  readonly ok: false
  readonly reason: DialReason
  readonly upstream: string
  /** Whether another address of the same name may do better. */
  readonly another?: boolean
}

/** @throws TypeError for a URL, credentials or authorities that can't be used; the message holds neither user nor password */
export function createUpstream(options: UpstreamOptions): Upstream {
  const proxy = new UpstreamProxy(options.url, options.credentials)
  const { resolve = 'here', resolver } = options
  const context = proxy.secure ? secureContext(options.ca) : undefined

  return {
    resolve,
    text: proxy.text,
    connect: (permit, makeSide, dialOptions) =>
      withDeadline(dialOptions, (deadline) => tunnel(permit, deadline, (late) => openSide(late, makeSide))),
    forward: (permit, dialOptions) =>
      withDeadline(dialOptions, async (deadline) => {
        if (resolve === 'upstream') {
          const credentials = await authorization()
          if (typeof credentials === 'object') return credentials
          const opened = await openStream(deadline)
          if (!opened.ok) return opened
          const form: RequestForm = { kind: 'absolute', proxyAuthorization: credentials }
          return { ok: true, connection: opened.side.socket, address: addressOf(permit.destination), form }
        }
        const through = await tunnel(permit, deadline, openStream)
        return through.ok ? { ...through, connection: through.connection.socket, form: { kind: 'origin' } } : through
      }),
  }

  /** Asks for the permit's addresses in turn. */
  async function tunnel<S extends ReadableSide>(
    permit: Permit,
    deadline: Deadline,
    openHop: (deadline: Deadline) => Promise<Opened<S>>,
  ) {
    let last: Fault = { ok: false, reason: 'connect_unreachable', upstream: 'there is nothing to ask it for' }
    for (const target of targetsOf(permit)) {
      const hop = await openHop(deadline)
      if (!hop.ok) return hop
      const fault = await requestTunnel(hop.side, target, deadline).catch((error: unknown) => {
        hop.side.destroy()
        throw error
      })
      if (fault === undefined) return { ok: true as const, connection: hop.side, address: target.address }
      hop.side.destroy()
      last = fault
      if (fault.another !== true) break
    }
    return last
  }

  /** A connection to the upstream itself, for a tunnel. */
  async function openSide<S>(deadline: Deadline, { ofWire, ofSocket }: SideMaker<S>): Promise<Opened<S>> {
    if (context === undefined) return reached(await dialProxy(deadline, openWire), ofWire)
    return reached(await secured(await dialProxy(deadline, openHalfOpenSocket), deadline), ofSocket)
  }

  /** A connection to the upstream itself, for plain HTTP. */
  async function openStream(deadline: Deadline): Promise<Opened<StreamSide>> {
    return reached(await secured(await dialProxy(deadline, openSocket), deadline), sideOfStream)
  }

  async function dialProxy<C>(deadline: Deadline, open: Opener<C>): Promise<Reached<C>> {
    const addresses = await addressesOf(proxy, resolver, deadline)
    if (!('found' in addresses)) return addresses
    const dialled = await dialOperatorProxy(addresses.found, proxy.port, open, {
      timeoutMs: deadline.remainingMs(),
      signal: deadline.signal,
    })
    if (dialled.ok) return dialled
    return { ok: false, reason: dialled.reason, upstream: `${proxy.text} could not be connected to` }
  }

  /** TLS over it where the upstream is an `https:` one. */
  async function secured(dialled: Reached<net.Socket>, deadline: Deadline): Promise<Reached<net.Socket>> {
    if (!dialled.ok || context === undefined) return dialled
    const secured = await secure(dialled.connection, proxy, context, deadline)
    return secured instanceof tls.TLSSocket ? { ok: true, connection: secured } : secured
  }

  /** The value of `Proxy-Authorization`, if there is one. */
  async function authorization(): Promise<string | undefined | Fault> {
    if (options.tokenFile === undefined) return proxy.proxyAuthorization()
    try {
      return `Bearer ${await readBearerFile(options.tokenFile)}`
    } catch (error) {
      const what = error instanceof Error ? error.message : 'a fault'
      return { ok: false, reason: 'connect_unreachable', upstream: `the token for ${proxy.text}: ${what}` }
    }
  }

  async function requestTunnel(side: ReadableSide, target: Target, deadline: Deadline): Promise<Fault | undefined> {
    const credentials = await authorization()
    if (typeof credentials === 'object') return credentials
    const line = credentials === undefined ? '' : `Proxy-Authorization: ${credentials}\r\n`
    side.write(
      Buffer.from(`CONNECT ${target.authority} HTTP/1.1\r\nHost: ${target.authority}\r\n${line}\r\n`, 'latin1'),
    )
    const status = await readStatus(side, deadline)
    if (typeof status !== 'number') return { ok: false, upstream: `${proxy.text} ${status.did}`, reason: status.reason }
    if (status >= 200 && status < 300) return undefined
    return { ok: false, upstream: `${proxy.text} answered ${status}`, ...verdictOn(status) }
  }
}

function reached<C, S>(reached: Reached<C>, toSide: (connection: C) => S): Opened<S> {
  return reached.ok ? { ok: true, side: toSide(reached.connection) } : reached
}

async function readStatus(
  side: ReadableSide,
  deadline: Deadline,
): Promise<number | { readonly did: string; readonly reason: DialReason }> {
  let bytes: Buffer = Buffer.alloc(0)
  let interim = 0
  for (;;) {
    const reply = parseConnectReply(bytes)
    if (reply.state === 'malformed') return { did: 'sent no proper reply', reason: 'connect_unreachable' }
    if (reply.state === 'more') {
      const chunk = await deadline.before(side.read())
      if (chunk === LATE) return { did: 'did not reply in time', reason: 'connect_timeout' }
      if (chunk === null) return { did: 'closed without a reply', reason: 'connect_unreachable' }
      bytes = bytes.length === 0 ? chunk : Buffer.concat([bytes, chunk])
      continue
    }
    bytes = bytes.subarray(reply.length)
    if (reply.status >= 200) {
      if (reply.status < 300 && bytes.length > 0) side.unread(bytes)
      return reply.status
    }
    interim++
    if (reply.status === 101 || interim > MAX_INTERIM_REPLIES)
      return { did: 'sent no proper reply', reason: 'connect_unreachable' }
  }
}

/** What a refusal of the upstream means here. @see RFC 9110 section 15.6 */
function verdictOn(status: number): { readonly reason: DialReason; readonly another: boolean } {
  if (status === 504) return { reason: 'connect_timeout', another: true }
  if (status >= 500) return { reason: 'connect_unreachable', another: true }
  return { reason: 'connect_refused', another: false }
}

/** IPv4 first: whether an upstream has IPv6 can't be known, and its refusals are slow. */
function targetsOf(permit: Permit): readonly Target[] {
  const { destination, addresses } = permit
  if (addresses.length === 0) return [{ authority: authorityText(destination), address: undefined }]
  return [...addresses]
    .sort((one, other) => one.family - other.family)
    .slice(0, MAX_TARGETS)
    .map((address) => ({ address, authority: authorityText({ kind: 'address', address, port: destination.port }) }))
}

function addressOf(destination: Destination): IpAddress | undefined {
  return destination.kind === 'address' ? destination.address : undefined
}

async function addressesOf(
  proxy: UpstreamProxy,
  resolver: Resolver,
  deadline: Deadline,
): Promise<{ readonly found: readonly IpAddress[] } | Fault> {
  if (typeof proxy.host !== 'string') return { found: [proxy.host] }
  const resolved = await deadline.before(Promise.resolve(resolver.resolve(proxy.host, deadline.signal)))
  if (resolved !== LATE && resolved.ok) return { found: resolved.addresses }
  const reason = resolved === LATE || resolved.reason === 'dns_timeout' ? 'connect_timeout' : 'connect_unreachable'
  return { ok: false, reason, upstream: `${proxy.text} does not resolve` }
}

function secureContext(ca: string | undefined): tls.SecureContext {
  return tls.createSecureContext(ca === undefined ? {} : { ca: [...tls.getCACertificates('default'), ca] })
}

/** TLS over a socket that is open already; the certificate must hold for the upstream's own name. */
async function secure(
  socket: net.Socket,
  proxy: UpstreamProxy,
  secureContext: tls.SecureContext,
  deadline: Deadline,
): Promise<tls.TLSSocket | Fault> {
  const host = typeof proxy.host === 'string' ? proxy.host : proxy.host.text
  const named = typeof proxy.host === 'string' ? { servername: proxy.host } : {}
  const secured = tls.connect({
    socket,
    host,
    secureContext,
    ALPNProtocols: ['http/1.1'],
    rejectUnauthorized: true,
    ...named,
  })
  const shaken = new Promise<boolean>((resolve) => {
    secured.once('secureConnect', () => resolve(true))
    // Stays: a fault after the handshake is told by `close`.
    secured.on('error', () => resolve(false))
    secured.once('close', () => resolve(false))
  })
  const outcome = await deadline.before(shaken).catch((error: unknown) => {
    secured.destroy()
    throw error
  })
  if (outcome === true) return secured
  secured.destroy()
  if (outcome === LATE)
    return { ok: false, reason: 'connect_timeout', upstream: `${proxy.text} did not finish the TLS handshake` }
  return {
    ok: false,
    reason: 'connect_refused',
    upstream: `${proxy.text} has no certificate that is accepted here, or speaks no TLS`,
  }
}
