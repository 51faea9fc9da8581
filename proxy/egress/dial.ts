/** Opens the connections that were permitted, by address literal; no other file of the product opens one, and this one never asks DNS. */
import net from 'node:net'
import { isPermit, type IpAddress, type Permit } from '../../policies/index.ts'
import { HandleWire } from '../relay/handle-wire.ts'
import {
  type ConnectingHandle,
  createConnectRequest,
  createTcp,
  faultName,
  type HandleRequest,
  hasHandles,
} from '../relay/node-handles.ts'
import { SocketWire } from '../relay/socket-wire.ts'
import type { Wire } from '../relay/wire.ts'
import { raceStaggered } from './staggered.ts'

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

/** An open connection. */
export interface Dialled<C> {
  readonly ok: true
  readonly connection: C
  /** The one of the permit's addresses that answered. */
  readonly address: IpAddress
  readonly connectMs: number
}

/** Starts one attempt at an address literal; `settle` is called once at most. Returns what gives the attempt up. */
export type Opener<C> = (
  address: IpAddress,
  port: number,
  settle: (outcome: { readonly connection: C } | DialReason) => void,
) => () => void

/** From one attempt to the next. @see RFC 8305 section 5, which recommends 250 ms */
const ATTEMPT_DELAY_MS = 250
/** A name with dozens of silent addresses costs so many sockets and no more. */
const MAX_ATTEMPTS = 10

/**
 * Connects to one of the permit's addresses, in turn (families interleaved, 250 ms apart, at most ten), with one of the openers below.
 * @throws (rejects) the signal's reason when it aborts; `TypeError` for a permit without addresses, and for what is no permit
 * @see RFC 8305 section 4 for the order
 */
export function dial<C>(permit: Permit, open: Opener<C>, options: DialOptions): Promise<Dialled<C> | DialFailure> {
  // The type says so; this is for a caller without types.
  if (!isPermit(permit)) return Promise.reject(new TypeError('only a permit of `decideAddresses` can be dialled'))
  return connectAny(permit.addresses, permit.destination.port, open, options)
}

/**
 * Connects to a proxy of the operator's own, which no policy judges. Only `upstream.ts` may call it (a test sees to that).
 * @throws as {@link dial}
 */
export function dialOperatorProxy<C>(
  addresses: readonly IpAddress[],
  port: number,
  open: Opener<C>,
  options: DialOptions,
): Promise<Dialled<C> | DialFailure> {
  return connectAny(addresses, port, open, options)
}

/** An ordinary socket, not reading, which has a listener for `error`, so that a fault before the caller listens ends nothing else. */
export const openSocket: Opener<net.Socket> = (address, port, settle) => connectSocket(address, port, false, settle)

/** The same, but it stays open for writing when the other end has finished; whoever takes it knows how to end that. */
export const openHalfOpenSocket: Opener<net.Socket> = (address, port, settle) =>
  connectSocket(address, port, true, settle)

/** A wire for a side, half-open too: without a `net.Socket` where that can be done. */
export const openWire: Opener<Wire> = (address, port, settle) => {
  if (hasHandles) return connectHandle(address, port, settle)
  return connectSocket(address, port, true, (outcome) =>
    settle(typeof outcome === 'string' ? outcome : { connection: new SocketWire(outcome.connection) }),
  )
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

async function connectAny<C>(
  addresses: readonly IpAddress[],
  port: number,
  open: Opener<C>,
  options: DialOptions,
): Promise<Dialled<C> | DialFailure> {
  if (addresses.length === 0) throw new TypeError('nothing to dial: the permit holds no address')
  const startedMs = performance.now()
  const { winner, failures, timedOut } = await raceStaggered<IpAddress, Opened<C> | DialReason>(
    interleaveFamilies(addresses),
    (address, settle) =>
      open(address, port, (outcome) =>
        settle(typeof outcome === 'string' ? outcome : { address, connection: outcome.connection }),
      ),
    {
      delayMs: ATTEMPT_DELAY_MS,
      timeoutMs: options.timeoutMs,
      signal: options.signal,
      isWin: (outcome) => typeof outcome !== 'string',
    },
  )
  const connectMs = performance.now() - startedMs
  if (winner !== undefined && typeof winner !== 'string') return { ok: true, ...winner, connectMs }
  return { ok: false, reason: timedOut ? 'connect_timeout' : worthiest(failures), connectMs }
}

interface Opened<C> {
  readonly address: IpAddress
  readonly connection: C
}

const SETTLE = Symbol('settle')

/** A socket that is being connected, and what is to be told of it. */
interface AttemptedSocket extends net.Socket {
  [SETTLE]?: Parameters<Opener<net.Socket>>[2] | undefined
}

/** No closure of it stays with the socket. */
function connectSocket(
  address: IpAddress,
  port: number,
  allowHalfOpen: boolean,
  settle: Parameters<Opener<net.Socket>>[2],
): () => void {
  const socket: AttemptedSocket = net.connect({
    host: literal(address),
    port,
    lookup: refuseLookup,
    noDelay: true,
    allowHalfOpen,
  })
  socket[SETTLE] = settle
  // Stays: a fault before the caller listens ends nothing else.
  socket.on('error', onError)
  socket.on('connect', onConnect)
  return () => {
    socket[SETTLE] = undefined
    socket.destroy()
  }
}

function onConnect(this: AttemptedSocket): void {
  const settle = this[SETTLE]
  this[SETTLE] = undefined
  settle?.({ connection: this })
}

function onError(this: AttemptedSocket, error: NodeJS.ErrnoException): void {
  const settle = this[SETTLE]
  this[SETTLE] = undefined
  this.destroy()
  settle?.(reasonFor(error.code))
}

/** A connect that is under way. */
interface Attempt extends HandleRequest {
  handle?: ConnectingHandle
  settle?: Parameters<Opener<Wire>>[2] | undefined
}

/** A handle takes literals and nothing else. */
function connectHandle(address: IpAddress, port: number, settle: Parameters<Opener<Wire>>[2]): () => void {
  const text = literal(address)
  const handle = createTcp()
  handle.setNoDelay?.(true)
  const attempt: Attempt = createConnectRequest()
  attempt.oncomplete = onConnected
  attempt.handle = handle
  attempt.settle = settle
  const fault = address.family === 6 ? handle.connect6(attempt, text, port) : handle.connect(attempt, text, port)
  if (fault !== 0) onConnected.call(attempt, fault)
  return () => {
    if (attempt.settle === undefined) return
    attempt.settle = undefined
    handle.close()
  }
}

function onConnected(this: Attempt, status: number): void {
  const { settle, handle } = this
  this.settle = undefined
  // Given up, and closed by then.
  if (settle === undefined || handle === undefined) return
  if (status === 0) {
    settle({ connection: new HandleWire(handle) })
    return
  }
  handle.close()
  settle(reasonFor(faultName(status)))
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

function reasonFor(code: string | undefined): DialReason {
  switch (code) {
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
