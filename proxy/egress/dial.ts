/** Opens the connections that were permitted, by address literal; no other file of the product opens one, and this one never asks DNS. */
import net from 'node:net'
import type { IpAddress, Permit } from '../../policies/index.ts'

/** A side of the relay that is made before its socket: `onread` goes to `net.connect`, then the socket is attached. */
export interface NewSide<S extends AttachableSide> {
  readonly side: S
  readonly onread: net.OnReadOpts
}

/** What `dial` needs of a relay side. */
export interface AttachableSide {
  attach(socket: net.Socket): void
}

/** How to dial. */
export interface DialOptions {
  /** For all attempts together, in milliseconds. */
  readonly timeoutMs: number
  /** Gives up; the promise then rejects with the signal's reason. */
  readonly signal?: AbortSignal
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

/**
 * Connects to one of the permit's addresses, in turn (RFC 8305: families interleaved, 250 ms apart).
 * @throws the signal's reason when it aborts; `TypeError` for a permit without addresses
 */
export function dial(permit: Permit, options: DialOptions): Promise<Dialled<undefined> | DialFailure>
export function dial<S extends AttachableSide>(
  permit: Permit,
  options: DialOptions & { readonly makeSide: () => NewSide<S> },
): Promise<Dialled<S> | DialFailure>
export function dial(_permit: Permit, _options: DialOptions): Promise<never> {
  return Promise.reject(new Error('not built yet'))
}
