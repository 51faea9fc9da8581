/** How the gateway gets out: directly, or through the operator's upstream proxy. The rest of the gateway sees no difference. */
import fs from 'node:fs'
import type net from 'node:net'
import { SallyportError } from '../../policies/error.ts'
import type { Permit } from '../../policies/index.ts'
import type { CacheCounts } from '../cache-counts.ts'
import type { Clock } from '../clock.ts'
import type { Config } from '../config/schema.ts'
import type { Dialled } from '../connection.ts'
import type { DialledPlain } from '../dialects/forward.ts'
import { Side } from '../relay/side.ts'
import { SocketWire } from '../relay/socket-wire.ts'
import type { Refusal } from '../request.ts'
import { dial, type DialFailure, type DialOptions, openSocket, openWire } from './dial.ts'
import { parseFixedHosts } from './fixed-hosts.ts'
import { createResolver, type Resolver } from './resolver.ts'
import { createUpstream, type SideMaker, type Upstream, type UpstreamFailure } from './upstream.ts'

/** The way out of one configuration. */
export interface WayOut {
  /** `undefined` where the upstream resolves names: then no address is known here. */
  readonly resolver: Resolver | undefined
  /** Opens what a tunnel relays to. */
  readonly dialTunnel: (permit: Permit) => Promise<Dialled<{ readonly upstream: Side; readonly connectMs: number }>>
  /** Opens a socket for plain HTTP requests. */
  readonly dialPlain: (permit: Permit) => Promise<DialledPlain | Refusal>
  /** Gives up what is being resolved and dialled: refused with `draining`. Idempotent. */
  readonly close: () => void
}

/**
 * `onUpstreamFailure` is told, in words, what an upstream proxy did instead of connecting; `cacheCounts` are those of the resolver.
 * @throws SallyportError `SALLYPORT_CONFIG_INVALID`, `SALLYPORT_KEY_UNREADABLE` for an upstream whose URL or credentials can't be used
 */
export function createWayOut(
  config: Config,
  clock: Clock,
  onUpstreamFailure: (failure: string) => void,
  cacheCounts?: CacheCounts,
): WayOut {
  const { network, timeouts } = config
  const hosts = parseFixedHosts(network.hosts)
  if (!hosts.ok)
    throw new SallyportError(
      'SALLYPORT_CONFIG_INVALID',
      hosts.faults.map((fault) => `network.hosts: ${fault}`).join('\n'),
    )
  const resolver = createResolver({
    servers: network.resolvers,
    hosts: hosts.value,
    timeoutMs: timeouts.dnsSeconds * 1000,
    clock,
    cacheCounts,
  })
  const closing = new AbortController()
  const options = { timeoutMs: timeouts.connectSeconds * 1000, signal: closing.signal }
  /** An abort is a refusal and no fault. */
  const unlessClosed = <R>(dialling: Promise<R>): Promise<R | { readonly ok: false; readonly reason: 'draining' }> =>
    dialling.catch((error: unknown) => {
      if (closing.signal.aborted) return { ok: false, reason: 'draining' } as const
      throw error
    })
  const way = network.upstream
    ? throughUpstream(openUpstream(network.upstream, resolver), resolver, options, onUpstreamFailure)
    : direct(resolver, options)
  return {
    resolver: way.resolver,
    dialTunnel: (permit) => unlessClosed(way.dialTunnel(permit)),
    dialPlain: (permit) => unlessClosed(way.dialPlain(permit)),
    close: () => {
      closing.abort()
      resolver.close()
    },
  }
}

function direct(resolver: Resolver, options: DialOptions): Omit<WayOut, 'close'> {
  return {
    resolver,
    dialTunnel: async (permit) => tunnelOutcome(await dial(permit, openWire, options), SIDES.ofWire),
    dialPlain: async (permit) => plainOutcome(await dial(permit, openSocket, options)),
  }
}

function throughUpstream(
  upstream: Upstream,
  resolver: Resolver,
  options: DialOptions,
  onFailure: (failure: string) => void,
): Omit<WayOut, 'close'> {
  const told = <R extends { readonly ok: true } | UpstreamFailure>(outcome: R): R => {
    if (!outcome.ok) onFailure(outcome.upstream)
    return outcome
  }
  return {
    resolver: upstream.resolve === 'here' ? resolver : undefined,
    dialTunnel: async (permit) => tunnelOutcome(told(await upstream.connect(permit, SIDES, options)), (side) => side),
    dialPlain: async (permit) => {
      const outcome = told(await upstream.forward(permit, options))
      if (!outcome.ok || outcome.form.kind === 'origin') return plainOutcome(outcome)
      const { proxyAuthorization } = outcome.form
      return {
        ...plainOutcome(outcome),
        upstreamProxy: proxyAuthorization === undefined ? {} : { authorization: proxyAuthorization },
      }
    },
  }
}

const SIDES: SideMaker<Side> = {
  ofWire: (wire) => new Side(wire),
  ofSocket: (socket) => new Side(new SocketWire(socket)),
}

interface Connected<C> {
  readonly ok: true
  readonly connection: C
  readonly address: { readonly text: string } | undefined
  readonly connectMs: number
}

function tunnelOutcome<C>(outcome: Connected<C> | DialFailure, toSide: (connection: C) => Side) {
  if (!outcome.ok) return failure(outcome)
  const { connection, connectMs } = outcome
  return { ok: true, upstream: toSide(connection), address: dialledText(outcome), connectMs } as const
}

function plainOutcome(outcome: Connected<net.Socket>): DialledPlain
function plainOutcome(outcome: Connected<net.Socket> | DialFailure): DialledPlain | Refusal
function plainOutcome(outcome: Connected<net.Socket> | DialFailure): DialledPlain | Refusal {
  if (!outcome.ok) return failure(outcome)
  return { ok: true, socket: outcome.connection, dialled: dialledText(outcome), connectMs: outcome.connectMs }
}

function failure({ reason, connectMs }: DialFailure) {
  return { ok: false, reason, connectMs } as const
}

/** Where the upstream resolves the name, the address is its affair. */
function dialledText({ address }: Pick<Connected<unknown>, 'address'>): string {
  return address?.text ?? 'upstream'
}

function openUpstream(settings: NonNullable<Config['network']['upstream']>, resolver: Resolver): Upstream {
  try {
    const { url, credentialsFile, tokenFile, resolve } = settings
    const credentials =
      credentialsFile === undefined ? undefined : fs.readFileSync(credentialsFile, 'utf8').replace(/\r?\n$/, '')
    return createUpstream({ url, resolve, resolver, tokenFile, ...(credentials !== undefined && { credentials }) })
  } catch (error) {
    if (error instanceof TypeError)
      throw new SallyportError('SALLYPORT_CONFIG_INVALID', `network.upstream: ${error.message}`)
    throw new SallyportError(
      'SALLYPORT_KEY_UNREADABLE',
      `network.upstream: can't read \`${settings.credentialsFile ?? ''}\``,
      { cause: error },
    )
  }
}
