/** Opens the connections that were permitted, by address literal; no other file of the product opens one, and this one never asks DNS. */
import net from 'node:net'
import { isPermit, type IpAddress, type Permit } from '../../policies/index.ts'
import { raceStaggered } from './staggered.ts'

/** What `dial` needs of a relay side. */
export interface AttachableSide {
  /** Called as soon as the socket is connected, before it reads. */
  attach(socket: net.Socket): void
}

/** A side of the relay that is made before its socket: `onread` goes to `net.connect`, then the socket is attached. */
export interface NewSide<S extends AttachableSide> {
  readonly side: S
  readonly onread: net.OnReadOpts
}

/** How to dial. */
export interface DialOptions {
  /** For all attempts together, in milliseconds. */
  readonly timeoutMs: number
  /** Gives up; the promise then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined
}

/** Why nothing could be connected; each is also a reason of the wire. */
export type DialReason = 'connect_refused' | 'connect_unreachable' | 'connect_timeout'

/** The outcome when nothing could be connected. */
export interface DialFailure {
  readonly ok: false
  readonly reason: DialReason
  /** Whole time spent, in milliseconds. */
  readonly connectMs: number
}

/** An open connection. The socket has a listener for `error`, so that a fault before the caller listens ends nothing else. */
export interface Dialled<S> {
  readonly ok: true
  readonly socket: net.Socket
  readonly side: S
  /** The one of the permit's addresses that answered. */
  readonly address: IpAddress
  readonly connectMs: number
}

/** From one attempt to the next. @see RFC 8305 section 5, which recommends 250 ms */
const ATTEMPT_DELAY_MS = 250
/** A name with dozens of silent addresses costs so many sockets and no more. */
const MAX_ATTEMPTS = 10

/**
 * Connects to one of the permit's addresses, in turn (families interleaved, 250 ms apart, at most ten).
 * With `makeSide` the socket reads through the side's `onread`, and stays open for writing when the other end has finished.
 * @throws (rejects) the signal's reason when it aborts; `TypeError` for a permit without addresses, and for what is no permit
 * @see RFC 8305 section 4 for the order
 */
export function dial<S extends AttachableSide>(
  permit: Permit,
  options: DialOptions & { readonly makeSide: () => NewSide<S> },
): Promise<Dialled<S> | DialFailure>
export function dial(permit: Permit, options: DialOptions): Promise<Dialled<undefined> | DialFailure>
export function dial<S extends AttachableSide>(
  permit: Permit,
  options: ConnectOptions<S>,
): Promise<Dialled<S | undefined> | DialFailure> {
  // The type says so; this is for a caller without types.
  if (!isPermit(permit)) return Promise.reject(new TypeError('only a permit of `decideAddresses` can be dialled'))
  return connectAny(permit.addresses, permit.destination.port, options)
}

/**
 * Connects to a proxy of the operator's own, which no policy judges. Only `upstream.ts` may call it (a test sees to that).
 * @throws as {@link dial}
 */
export function dialOperatorProxy<S extends AttachableSide>(
  addresses: readonly IpAddress[],
  port: number,
  options: ConnectOptions<S>,
): Promise<Dialled<S | undefined> | DialFailure> {
  return connectAny(addresses, port, options)
}

/** IPv6 and IPv4 in turn, IPv6 first, each in the order in which they were answered; as many as are tried. */
export function interleaveFamilies(addresses: readonly IpAddress[]): readonly IpAddress[] {
  if (addresses.length < 2) return addresses
  const six = addresses.filter((address) => address.family === 6)
  const four = addresses.filter((address) => address.family === 4)
  const longer = Math.max(six.length, four.length)
  return Array.from({ length: longer }, (_, place) => [six[place], four[place]])
    .flat()
    .filter((address) => address !== undefined)
    .slice(0, MAX_ATTEMPTS)
}

interface ConnectOptions<S extends AttachableSide> extends DialOptions {
  readonly makeSide?: (() => NewSide<S>) | undefined
  /** Whether writing goes on when the other end has finished; only a relay side knows how to end that, so it is the default with one. */
  readonly allowHalfOpen?: boolean | undefined
}

type Outcome<S> =
  { readonly ok: true; readonly socket: net.Socket; readonly side: S; readonly address: IpAddress } | DialReason

async function connectAny<S extends AttachableSide>(
  addresses: readonly IpAddress[],
  port: number,
  options: ConnectOptions<S>,
): Promise<Dialled<S | undefined> | DialFailure> {
  if (addresses.length === 0) throw new TypeError('nothing to dial: the permit holds no address')
  const startedMs = performance.now()
  const { winner, failures, timedOut } = await raceStaggered<IpAddress, Outcome<S | undefined>>(
    interleaveFamilies(addresses),
    (address, settle) => connectOne(address, port, options, settle),
    {
      delayMs: ATTEMPT_DELAY_MS,
      timeoutMs: options.timeoutMs,
      signal: options.signal,
      isWin: (outcome) => typeof outcome !== 'string',
    },
  )
  const connectMs = performance.now() - startedMs
  if (winner !== undefined && typeof winner !== 'string') {
    const { socket, side, address } = winner
    return { ok: true, socket, side, address, connectMs }
  }
  return { ok: false, reason: timedOut ? 'connect_timeout' : worthiest(failures), connectMs }
}

const ATTEMPT = Symbol('attempt')

/** A socket that is being connected, and what is to be told of it. */
interface AttemptedSocket extends net.Socket {
  [ATTEMPT]?: { connected(socket: net.Socket): void; failed(reason: DialReason): void } | undefined
}

/** No closure of it stays with the socket, which may stay in memory for long: see `own` in `relay/wiring.ts`. */
function connectOne<S extends AttachableSide>(
  address: IpAddress,
  port: number,
  { makeSide, allowHalfOpen }: ConnectOptions<S>,
  settle: (outcome: Outcome<S | undefined>) => void,
): () => void {
  const made = makeSide?.()
  const socket: AttemptedSocket = net.connect({
    host: literal(address),
    port,
    lookup: refuseLookup,
    noDelay: true,
    allowHalfOpen: allowHalfOpen ?? made !== undefined,
    onread: made?.onread,
  })
  socket[ATTEMPT] = {
    connected: (connected) => {
      // In this very turn: what the origin says first is read right after it.
      made?.side.attach(connected)
      settle({ ok: true, socket: connected, side: made?.side, address })
    },
    failed: settle,
  }
  // Stays: a fault before the caller listens ends nothing else.
  socket.on('error', onError)
  socket.on('connect', onConnect)
  return () => {
    socket[ATTEMPT] = undefined
    socket.destroy()
  }
}

function onConnect(this: AttemptedSocket): void {
  const attempt = this[ATTEMPT]
  this[ATTEMPT] = undefined
  attempt?.connected(this)
}

function onError(this: AttemptedSocket, error: NodeJS.ErrnoException): void {
  const attempt = this[ATTEMPT]
  this[ATTEMPT] = undefined
  this.destroy()
  attempt?.failed(reasonFor(error))
}

/** The text of an address, which must be one that `net` takes as it is: it looks anything else up. */
function literal(address: IpAddress): string {
  if (net.isIP(address.text) !== address.family) throw new TypeError('an address to dial must be a literal')
  return address.text
}

/** Reached only if {@link literal} were wrong. */
function refuseLookup(): never {
  throw new TypeError('dialling never asks DNS')
}

function reasonFor(error: NodeJS.ErrnoException): DialReason {
  switch (error.code) {
    case 'ECONNREFUSED':
    case 'ECONNRESET':
      return 'connect_refused'
    case 'ETIMEDOUT':
      return 'connect_timeout'
    default:
      return 'connect_unreachable'
  }
}

/** Of several failures the one that says most: somebody answered, nobody answered, there is no way there. */
function worthiest(failures: readonly (DialReason | object)[]): DialReason {
  const order: readonly DialReason[] = ['connect_refused', 'connect_timeout', 'connect_unreachable']
  return order.find((reason) => failures.includes(reason)) ?? 'connect_unreachable'
}
