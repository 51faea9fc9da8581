/**
 * One client connection that speaks plain HTTP: its requests are decided and served one after the other, each on its own.
 * A refusal ends the connection, except for a bare challenge that nothing followed.
 */
import type http from 'node:http'
import type net from 'node:net'

import { progressOf } from '../connection.ts'
import type { Reason } from '../reasons.ts'
import type { Authorized, ClientInfo, ConnectionRequest, Credentials, Refusal } from '../request.ts'
import { beginExchange, type OwnExchange } from './exchange.ts'
import type { DialledPlain, ForwarderDeps, GoingOut, Holds } from './forward.ts'
import { readHttpHead, type HttpHead } from './http-head.ts'
import { parseAbsoluteTarget, type AbsoluteTarget } from './http-target.ts'
import { discardBody, replyThenClose } from './linger.ts'
import { httpRefusal, MAX_CHALLENGES, refusalReply } from './reply.ts'
import { mayReuse, ownConnection, type UpstreamAgent, type UpstreamConnection } from './upstream-connection.ts'

/** How many requests may wait for their turn on one connection; apt sends up to 10 at once. */
const MAX_PIPELINED = 64
const NO_CREDENTIALS: Credentials = { kind: 'none' }
const NOTHING_FLOWED = { bytesIn: 0, bytesOut: 0 }

interface Incoming {
  readonly req: http.IncomingMessage
  readonly res: http.ServerResponse
  readonly request: ConnectionRequest
  readonly startedMs: number
}

/** The life of a connection from its first request in absolute form. */
export class ClientConnection {
  readonly #socket: net.Socket
  readonly #client: ClientInfo
  readonly #deps: ForwarderDeps
  readonly #agent: UpstreamAgent
  #turn: Promise<void> = Promise.resolve()
  #waiting = 0
  #latest: http.IncomingMessage | undefined
  /** Nothing that comes after this is read as a request. */
  #ending = false
  #draining = false
  #clientEnded = false
  #challenges = 0
  /** Something about this connection was written down. */
  #recorded = false
  #upstream: UpstreamConnection | undefined
  #exchange: OwnExchange | undefined

  /** Does nothing until the server has read a request. */
  constructor(socket: net.Socket, client: ClientInfo, deps: ForwarderDeps, agent: UpstreamAgent) {
    this.#socket = socket
    this.#client = client
    this.#deps = deps
    this.#agent = agent
  }

  /** Serves a request after those before it. */
  enqueue(req: http.IncomingMessage, res: http.ServerResponse): void {
    if (this.#ending) return void req.resume()
    this.#latest = req
    this.#waiting += 1
    if (this.#waiting > MAX_PIPELINED) {
      this.#ending = true
      void this.#record(this.#unread(req.url), refusal('request_malformed', 'too many requests at once'))
      return void this.#socket.destroy()
    }
    this.#inTurn(() => this.#serve(req, res).finally(() => (this.#waiting -= 1)))
  }

  /** CONNECT after other requests: the tunnel would begin in the middle of a connection that has been read as requests. */
  refuseConnect(req: http.IncomingMessage): void {
    if (this.#ending) return void this.#socket.destroy()
    this.#inTurn(() =>
      this.#refuseRaw(this.#unread(req.url), 'method_not_allowed', 'CONNECT needs a connection of its own'),
    )
  }

  /** The bytes are no HTTP. If that is inside the body of a request on its way, that request is broken off. */
  refuseUnreadable(error: NodeJS.ErrnoException): void {
    if (this.#ending) return
    if (error.code === 'ECONNRESET' || error.code === 'EPIPE' || this.#socket.destroyed)
      return void this.#socket.destroy()
    const [reason, detail] = unreadable(error.code)
    if (this.#latest?.complete === false && this.#waiting > 0) void this.#refuseInsideBody(reason, detail)
    else this.#inTurn(() => this.#refuseRaw(this.#unread(), reason, detail))
  }

  /** No byte for the whole idle timeout. */
  idle(): void {
    if (this.#exchange !== undefined) this.#exchange.cut('idle_timeout')
    else this.#socket.destroy()
  }

  /** Closes the connection to the origin if it is idle and its last user would not get it any more; one in use is cut by whoever watches exchanges. */
  recheckIdle(holds: Holds): undefined | Promise<void> {
    const upstream = this.#idleUpstream()
    const permission = upstream?.permission
    if (upstream === undefined || permission === undefined) return undefined
    const closeUnless = (stays: boolean): void => {
      if (!stays && upstream === this.#idleUpstream() && upstream.permission === permission) upstream.socket.destroy()
    }
    try {
      const stays = holds(permission)
      if (stays instanceof Promise) return stays.catch(() => false).then(closeUnless)
      closeUnless(stays)
    } catch {
      closeUnless(false)
    }
    return undefined
  }

  /** Lets the request on its way finish and takes no other. */
  drain(): void {
    this.#draining = true
    if (this.#waiting === 0) this.#socket.destroy()
  }

  /** At the end of the grace. */
  breakOff(): void {
    if (this.#exchange !== undefined) this.#exchange.cut('drain_deadline')
    else this.#socket.destroy()
  }

  /** The client sends nothing more. It may have left: nothing goes out for it any more, and what went out ends. A refusal can still be said. */
  clientEnded(): void {
    this.#clientEnded = true
    this.#exchange?.cut('client_closed')
  }

  /** The socket is closed. Half a request is all that came of a connection without a line: a reset tells nobody else. */
  closed(): void {
    this.#ending = true
    if (this.#latest === undefined && !this.#recorded) void this.#record(this.#unread(), refusal('request_malformed'))
    this.#upstream?.socket.destroy()
  }

  #idleUpstream(): UpstreamConnection | undefined {
    return this.#exchange === undefined && this.#upstream?.used ? this.#upstream : undefined
  }

  #inTurn(step: () => Promise<void>): void {
    this.#turn = this.#turn.then(step).catch((error: unknown) => {
      this.#deps.onFault?.(error)
      this.#ending = true
      this.#socket.destroy()
    })
  }

  async #serve(req: http.IncomingMessage, res: http.ServerResponse): Promise<void> {
    if (this.#ending || this.#socket.destroyed) return void req.resume()
    const startedMs = this.#deps.clock.monotonicMs()
    const head = readHttpHead({ method: req.method ?? '', httpVersion: req.httpVersion, rawHeaders: req.rawHeaders })
    const target = parseAbsoluteTarget(req.method ?? '', req.url ?? '')
    const request = this.#request(head, target)
    const incoming = { req, res, request, startedMs }
    if (this.#draining) return this.#refuse(incoming, refusal('draining'))
    if (!head.ok) return this.#refuse(incoming, refusal(head.reason, head.detail))
    if (!target.ok) return this.#refuse(incoming, refusal(target.reason, target.detail))
    const outcome = await this.#deps.authorize(request).catch((error: unknown) => this.#fault(error))
    if (!outcome.ok) return this.#refuse(incoming, outcome)
    try {
      await this.#goOut(incoming, head, target.path, outcome)
    } finally {
      outcome.place.release()
    }
  }

  async #goOut(incoming: Incoming, head: HttpHead, path: string, authorized: Authorized): Promise<void> {
    const { upstream, goingOut, failed } = await this.#upstreamFor(incoming.request, authorized)
    if (upstream === undefined) return this.#refuse(incoming, failed, goingOut)
    const recorded = await this.#record(incoming.request, authorized, goingOut)
    if (!recorded) {
      upstream.socket.destroy()
      return this.#reply(incoming, { ...progressOf(authorized), ...refusal('audit_unavailable') })
    }
    await this.#exchangeOver(upstream, incoming, head, path, authorized)
    if (!incoming.req.complete && !this.#socket.destroyed) await discardBody(incoming.req, this.#socket)
  }

  /** The connection that is open, if this request may use it; else a new one. */
  async #upstreamFor(
    request: ConnectionRequest,
    authorized: Authorized,
  ): Promise<
    | { upstream: UpstreamConnection; goingOut: GoingOut; failed?: never }
    | { upstream?: never; goingOut: GoingOut; failed: Refusal }
  > {
    const open = this.#upstream
    if (open !== undefined && mayReuse(open, authorized)) {
      open.permission = authorized
      return { upstream: open, goingOut: { authorized, dialled: open.dialled } }
    }
    open?.socket.destroy()
    this.#upstream = undefined
    const dialled: DialledPlain | Refusal = await this.#deps
      .dialPlain(request, authorized)
      .catch((error: unknown) => this.#fault(error))
    if (!dialled.ok) return { goingOut: { authorized }, failed: { ...progressOf(authorized), ...dialled } }
    const upstream = ownConnection(authorized, dialled)
    // Between requests nobody else listens; `node:http` hears of errors while one is on its way.
    upstream.socket.on('error', () => upstream.socket.destroy())
    if (this.#clientEnded || this.#socket.destroyed) upstream.socket.destroy()
    this.#upstream = upstream
    return { upstream, goingOut: { authorized, dialled: dialled.dialled, connectMs: dialled.connectMs } }
  }

  /** Resolves when the exchange has ended, however it did. */
  async #exchangeOver(
    upstream: UpstreamConnection,
    { req, res, request, startedMs }: Incoming,
    head: HttpHead,
    path: string,
    authorized: Authorized,
  ): Promise<void> {
    const { recordClose, onExchange, clock } = this.#deps
    if (this.#clientEnded || this.#socket.destroyed || this.#ending) {
      recordClose(request, authorized, { ...NOTHING_FLOWED, closeReason: 'client_closed', startedMs })
      if (this.#clientEnded) this.#socket.destroy()
      return
    }
    let onOver: (() => void) | undefined
    await new Promise<void>((resolve) => {
      this.#exchange = beginExchange({
        req,
        res,
        head,
        path,
        authorized,
        upstream,
        clock,
        socket: this.#socket,
        requestId: request.requestId,
        agent: this.#agent,
        isLastAnswer: () => this.#draining,
        onEnd: ({ isLast, ...result }) => {
          this.#exchange = undefined
          if (isLast) this.#ending = true
          onOver?.()
          recordClose(request, authorized, { ...result, startedMs })
          resolve()
        },
      })
      onOver = onExchange?.(request, authorized, this.#exchange)
    }).catch((error: unknown) => {
      // One that began ends with the socket, and says so itself.
      if (this.#exchange === undefined)
        recordClose(request, authorized, { ...NOTHING_FLOWED, closeReason: 'error', startedMs })
      throw error
    })
  }

  #request(head: ReturnType<typeof readHttpHead>, target: AbsoluteTarget): ConnectionRequest {
    const credentials = head.ok ? this.#deps.readCredentials(head.proxyAuthorization) : NO_CREDENTIALS
    const traceparent = head.ok ? head.traceparent : undefined
    return { ...this.#unread(), target: target.ok ? target.target : target.requested, credentials, traceparent }
  }

  /** A request of which no more than the target could be read. */
  #unread(url?: string): ConnectionRequest {
    const target = url === undefined ? '' : url.replace(/^.*@/s, '***@')
    const requestId = this.#deps.newRequestId()
    return { requestId, dialect: 'http', target, credentials: NO_CREDENTIALS, client: this.#client }
  }

  #record(request: ConnectionRequest, outcome: Authorized | Refusal, goingOut?: GoingOut): Promise<boolean> {
    this.#recorded = true
    return this.#deps.recordDecision(request, outcome, goingOut).catch((error: unknown) => {
      this.#deps.onFault?.(error)
      return false
    })
  }

  async #refuse(incoming: Incoming, outcome: Refusal, goingOut?: GoingOut): Promise<void> {
    await this.#record(incoming.request, outcome, goingOut)
    await this.#reply(incoming, outcome)
  }

  /** A bare challenge leaves the connection open for the retry, if the client wants that and has sent nothing else in the meantime. */
  async #reply({ req, res, request }: Incoming, outcome: Refusal): Promise<void> {
    const nothingFollowed = this.#waiting === 1 && req.complete && !this.#ending
    const { requestId } = request
    const mayAskAgain = outcome.reason === 'token_missing' && this.#challenges++ < MAX_CHALLENGES
    if (!mayAskAgain || !nothingFollowed || !res.shouldKeepAlive) {
      this.#ending = true
      req.resume()
      replyThenClose(this.#socket, httpRefusal(outcome, { requestId, head: req.method === 'HEAD' }))
      return
    }
    const { status, phrase, fields, body } = refusalReply(outcome, requestId)
    res.writeHead(status, phrase, [...fields])
    await new Promise<void>((resolve) => {
      res.once('close', resolve)
      res.end(body)
    })
  }

  /** For what no response object of Node's can answer. */
  async #refuseRaw(request: ConnectionRequest, reason: Reason, detail: string): Promise<void> {
    if (this.#ending) return
    this.#ending = true
    const outcome = refusal(reason, detail)
    await this.#record(request, outcome)
    replyThenClose(this.#socket, httpRefusal(outcome, { requestId: request.requestId }))
  }

  /** A body that is broken off while its request is decided or on its way. */
  async #refuseInsideBody(reason: Reason, detail: string): Promise<void> {
    this.#ending = true
    const request = this.#unread()
    const outcome = refusal(reason, detail)
    const reply = httpRefusal(outcome, { requestId: request.requestId })
    await this.#record(request, outcome)
    // A request that is not the latest, or that has been answered, can't be told apart from this one by the client.
    if (this.#waiting > 1) this.#socket.destroy()
    else if (this.#exchange !== undefined) this.#exchange.refuse(reply)
    else replyThenClose(this.#socket, reply)
  }

  /** A fault while deciding or dialling is a refusal. */
  #fault(error: unknown): Refusal {
    this.#deps.onFault?.(error)
    return refusal('policy_unavailable')
  }
}

function refusal(reason: Reason, detail?: string): Refusal {
  return detail === undefined ? { ok: false, reason } : { ok: false, reason, detail }
}

function unreadable(code: string | undefined): readonly [Reason, string] {
  if (code === 'HPE_HEADER_OVERFLOW') return ['head_too_large', 'the head is larger than 32 KiB']
  if (code === 'HPE_INVALID_URL') return ['target_malformed', 'the target is not an absolute http:// URL']
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return ['request_malformed', 'the head did not come in time']
  return ['request_malformed', 'the request is not HTTP as RFC 9112 has it']
}
