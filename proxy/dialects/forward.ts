/**
 * Plain HTTP in absolute form: each request is decided on its own and handed to its origin, streaming both ways.
 * `node:http` reads and writes the messages; what may pass is said in `http-head.ts` and `http-fields.ts`, and who may in the functions that are handed in.
 */
import type net from 'node:net'

import type { Permit } from '../../policies/index.ts'
import type { Clock } from '../clock.ts'
import type { CloseReason } from '../reasons.ts'
import type { Authorized, ClientInfo, ConnectionRequest, Credentials, Refusal } from '../request.ts'

/** A connection to the origin, or to the upstream proxy in its place. */
export interface DialledPlain {
  readonly ok: true
  readonly socket: net.Socket
  /** The address that was dialled, as the permit spells it (`IpAddress.text`), with or without its port; goes to the audit. */
  readonly dialled: string
  readonly connectMs: number
  /** The socket ends at an upstream proxy that wants absolute-form requests; `authorization` is what it wants in `Proxy-Authorization`. */
  readonly upstreamProxy?: { readonly authorization?: string }
}

/** What is known of going out when a decision is recorded. */
export interface GoingOut {
  /** What policy let out, also when the outcome is a refusal because dialling failed. */
  readonly authorized?: Authorized
  readonly dialled?: string
  /** Absent when a connection that was already open is used again. */
  readonly connectMs?: number
}

/** A request that is on its way, for whoever cuts live connections. */
export interface Exchange {
  /** Origin to client, in bytes on the wire. */
  readonly bytesIn: number
  /** Client to origin, in bytes on the wire. */
  readonly bytesOut: number
  /** Ends it at once, both ways; idempotent. */
  readonly cut: (reason: CloseReason) => void
}

/** How an {@link Exchange} ended. */
export interface ExchangeResult {
  readonly closeReason: CloseReason
  readonly bytesIn: number
  readonly bytesOut: number
  /** On the monotonic clock. */
  readonly startedMs: number
}

/** What a forwarder is given. None of the functions may throw or reject; where one does, the request is refused. */
export interface ForwarderDeps {
  readonly clock: Clock
  /** Unique per gateway process. */
  readonly newRequestId: () => string
  /** Reads the value of `Proxy-Authorization`. */
  readonly readCredentials: (value: string | undefined) => Credentials
  /** Target, identity, limits and policy, up to the decision on the very addresses; writes no audit line. */
  readonly authorize: (request: ConnectionRequest) => Promise<Authorized | Refusal>
  readonly dialPlain: (permit: Permit) => Promise<DialledPlain | Refusal>
  /** Writes the line that says what was decided; `false` when it could not be written and the request must not go out. */
  readonly recordDecision: (
    request: ConnectionRequest,
    outcome: Authorized | Refusal,
    goingOut?: GoingOut,
  ) => Promise<boolean>
  /** Called once for each request whose decision was recorded as let out. */
  readonly recordClose: (request: ConnectionRequest, authorized: Authorized, result: ExchangeResult) => void
  /** Called when a request begins to flow; `recordClose` says that it no longer does. */
  readonly onExchange?: (request: ConnectionRequest, authorized: Authorized, exchange: Exchange) => void
  /** Told of a fault of the functions above, for the gateway's own log. */
  readonly onFault?: (error: unknown) => void
  /** How long a head may take; default 10,000. */
  readonly headTimeoutMs?: number
  /** How long a connection may stay without a byte either way while a request is on its way; default 300,000. */
  readonly idleTimeoutMs?: number
  /** How long a connection may stay open between requests; default 60,000. */
  readonly keepAliveTimeoutMs?: number
}
