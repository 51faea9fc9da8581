/**
 * Plain HTTP in absolute form: each request is decided on its own and handed to its origin, streaming both ways.
 * `node:http` reads and writes the messages; what may pass is said in `http-head.ts` and `http-fields.ts`, and who may in the functions that are handed in.
 */
import type http from 'node:http'
import type net from 'node:net'

import type { Clock } from '../clock.ts'
import { inSlices, type Waits } from '../in-slices.ts'
import type { CloseReason } from '../reasons.ts'
import type { Authorized, ClientInfo, ConnectionRequest, Credentials, Refusal } from '../request.ts'
import { ClientConnection } from './client-connection.ts'
import { MAX_HEAD_BYTES } from './connect-head.ts'
import { UpstreamAgent } from './upstream-connection.ts'
import nodeHttp from '../node-http.ts'

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
  /** On the monotonic clock; as coarse as it is asked for, since it moves on when the counts are seen to have changed. */
  readonly lastActivityMs: number
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
  /** Opens a socket under the permit, and only under it; refuses when the permission was lost in the meantime. */
  readonly dialPlain: (request: ConnectionRequest, authorized: Authorized) => Promise<DialledPlain | Refusal>
  /** Writes the line that says what was decided; `false` when it could not be written and the request must not go out. */
  readonly recordDecision: (
    request: ConnectionRequest,
    outcome: Authorized | Refusal,
    goingOut?: GoingOut,
  ) => Promise<boolean>
  /** Called once for each request whose decision was recorded as let out. */
  readonly recordClose: (request: ConnectionRequest, authorized: Authorized, result: ExchangeResult) => void
  /** Called when a request begins to flow; what it gives is called when it no longer does, before `recordClose`. */
  readonly onExchange?: (request: ConnectionRequest, authorized: Authorized, exchange: Exchange) => () => void
  /** Told of a fault of the functions above, for the gateway's own log. */
  readonly onFault?: (error: unknown) => void
  /** How long a head may take; default 10,000. */
  readonly headTimeoutMs?: number
  /** How long a connection may stay without a byte either way while a request is on its way; default 300,000. */
  readonly idleTimeoutMs?: number
  /** How long a connection may stay open between requests; default 60,000. */
  readonly keepAliveTimeoutMs?: number
}

/** Whether what was let out may go on. */
export type Holds = (permission: Authorized) => boolean | Promise<boolean>

/** Serves plain HTTP on connections that others accept. */
export interface Forwarder {
  /** The server that reads the requests. It listens nowhere. */
  readonly server: http.Server
  /** Takes over a connection from its first unread byte. */
  readonly serve: (socket: net.Socket, client: ClientInfo) => void
  /**
   * Closes the connections to origins that are idle and whose last user's permission does not hold any more; a fault of `holds` closes too. Resolves when all
   * were looked at; `over`: those too for which `holds` gave a promise. Never rejects.
   */
  readonly recheckIdle: (holds: Holds) => Promise<{ readonly over: Promise<void> }>
  /** Other times for heads and idleness, from now on and for connections that are open. */
  readonly setTimeouts: (times: { readonly headTimeoutMs: number; readonly idleTimeoutMs: number }) => void
  /** Connections that are open, each of which may yet have a line to write. */
  readonly open: () => number
  /** Closes idle connections now and every other one after the answer that it waits for. */
  readonly drain: () => void
  /** Breaks off what is left; idempotent. */
  readonly close: () => void
}

/** How often idle connections to origins are looked at for expired permissions. */
const EXPIRY_LOOK_MS = 500

/** Creates a forwarder; it opens and accepts nothing by itself. */
export function createForwarder(deps: ForwarderDeps): Forwarder {
  const agent = new UpstreamAgent()
  const connections = new Map<net.Socket, ClientConnection>()
  let draining = false
  const server = createServer(deps)
  const recheckIdle: Forwarder['recheckIdle'] = async (holds) => {
    const waiting: Promise<void>[] = []
    await inSlices(recheckSteps([...connections.values()], holds, waiting))
    return { over: Promise.all(waiting).then(() => undefined) }
  }
  const expiry = setInterval(() => {
    const nowMs = deps.clock.wallMs()
    void recheckIdle(({ expiresAtMs }) => nowMs < expiresAtMs)
  }, EXPIRY_LOOK_MS).unref()
  const enqueue = (req: http.IncomingMessage, res: http.ServerResponse): void =>
    connections.get(req.socket)?.enqueue(req, res)
  server.on('request', enqueue)
  server.on('checkContinue', enqueue)
  server.on('checkExpectation', enqueue)
  server.on('connect', (req: http.IncomingMessage, socket: net.Socket) => {
    // Node has let go of this socket, its error listener included.
    socket.on('error', () => socket.destroy())
    connections.get(socket)?.refuseConnect(req)
  })
  server.on('clientError', (error: NodeJS.ErrnoException, socket: net.Socket) => {
    const connection = connections.get(socket)
    if (connection === undefined) socket.destroy()
    else connection.refuseUnreadable(error)
  })
  server.on('timeout', (socket: net.Socket) => connections.get(socket)?.idle())
  return {
    server,
    serve: (socket, client) => {
      const connection = new ClientConnection(socket, client, deps, agent)
      connections.set(socket, connection)
      socket.once('end', () => connection.clientEnded())
      socket.once('close', () => {
        connections.delete(socket)
        connection.closed()
      })
      server.emit('connection', socket)
      if (draining) connection.drain()
    },
    recheckIdle,
    setTimeouts: ({ headTimeoutMs, idleTimeoutMs }) => {
      server.headersTimeout = headTimeoutMs
      const idleBeforeMs = server.timeout
      server.timeout = idleTimeoutMs
      // Node gives a socket that waits for its next request another timeout; that stays.
      for (const socket of connections.keys()) if (socket.timeout === idleBeforeMs) socket.setTimeout(idleTimeoutMs)
    },
    open: () => connections.size,
    drain: () => {
      draining = true
      for (const connection of connections.values()) connection.drain()
    },
    close: () => {
      clearInterval(expiry)
      for (const connection of connections.values()) connection.breakOff()
      agent.destroy()
      server.close()
    },
  }
}

function* recheckSteps(connections: Iterable<ClientConnection>, holds: Holds, waiting: Promise<void>[]): Waits<void> {
  for (const connection of connections) {
    const waits = connection.recheckIdle(holds)
    if (waits !== undefined) waiting.push(waits)
    yield undefined
  }
}

/** The limits of `node:http`, each one on purpose. */
function createServer(deps: ForwarderDeps): http.Server {
  const server = nodeHttp.createServer({
    // The head, request line included; past it, 431.
    maxHeaderSize: MAX_HEAD_BYTES,
    insecureHTTPParser: false,
    // Looked for in `http-head.ts`, since Node's own answer would not be in our format.
    requireHostHeader: false,
    headersTimeout: deps.headTimeoutMs ?? 10_000,
    // None: an upload may take long. `timeout` below ends one that stands still.
    requestTimeout: 0,
    keepAliveTimeout: deps.keepAliveTimeoutMs ?? 60_000,
    connectionsCheckingInterval: Math.min(1_000, deps.headTimeoutMs ?? 1_000),
    noDelay: true,
  })
  // Node drops what is past its limit without a word, so that a `Content-Length` could be missed. 32 KiB are limit enough.
  server.maxHeadersCount = 0
  server.timeout = deps.idleTimeoutMs ?? 300_000
  // Who ends behind his request hears of a refusal; what is on its way ends with him (`clientEnded`). `@types/node` does not know of it.
  Object.assign(server, { httpAllowHalfOpen: true })
  // Node starts the check of `headersTimeout` when a server begins to listen, which this one never does.
  server.emit('listening')
  return server
}
