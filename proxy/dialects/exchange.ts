/**
 * One request that was let out, and its answer: streams both ways between a client and an origin, and ends exactly once.
 * What must never happen here: an answer that was cut short and looks whole, or a byte of one answer in another.
 * @see RFC 9110 section 15.2, RFC 9112 sections 6.3 and 9.3.1
 */
import type http from 'node:http'
import type net from 'node:net'
import type { Readable } from 'node:stream'

import type { Clock } from '../clock.ts'
import type { CloseReason } from '../reasons.ts'
import { interimBytes, passHead, requestOptions, type OutgoingParts } from './exchange-heads.ts'
import type { Exchange } from './forward.ts'
import { trailerFields } from './http-fields.ts'
import { breakOff, replyThenClose } from './linger.ts'
import { paced } from './paced.ts'
import { originFaultReply, replyBytes, type OriginFault } from './reply.ts'
import nodeHttp from '../node-http.ts'

/** How many 1xx answers are passed on before the last one; more are a fault of the origin. */
const MAX_INTERIM_ANSWERS = 16

/** What an exchange is made of. */
export interface ExchangeParts extends OutgoingParts {
  readonly res: http.ServerResponse
  readonly socket: net.Socket
  readonly requestId: string
  readonly clock: Clock
  /** The connection is to be closed after the answer. */
  readonly isLastAnswer: () => boolean
  /** Called once, when nothing of it flows any more; never before {@link beginExchange} has returned. */
  readonly onEnd: (result: ExchangeEnd) => void
}

/** How an exchange ended. */
export interface ExchangeEnd {
  readonly closeReason: CloseReason
  readonly bytesIn: number
  readonly bytesOut: number
  /** The connection of the client can carry no other answer. */
  readonly isLast: boolean
}

/** An exchange, for the connection that it runs on. */
export interface OwnExchange extends Exchange {
  /** Ends it because the client's bytes turned out to be no request: with `reply`, if the answer has not begun. */
  readonly refuse: (reply: Buffer) => void
}

/** Begins to stream. Throws, and has then sent nothing, if Node's writer does not take the request. */
export function beginExchange(parts: ExchangeParts): OwnExchange {
  return new RunningExchange(parts)
}

class RunningExchange implements OwnExchange {
  readonly #parts: ExchangeParts
  readonly #upReq: http.ClientRequest
  readonly #reused: boolean
  readonly #readBefore: number
  readonly #writtenBefore: number
  #interimAnswers = 0
  #answered = false
  #upRes: http.IncomingMessage | undefined
  #responseDone = false
  #requestDone = false
  #seenBytes = 0
  #seenMs: number
  /** Bytes of bodies that the pace was told of; it is told of the rest at the end. */
  #pacedBytes = 0
  #pacedBodies: Readable[] = []
  #waiting: NodeJS.Timeout | undefined
  #ended: { readonly bytesIn: number; readonly bytesOut: number } | undefined

  constructor(parts: ExchangeParts) {
    this.#parts = parts
    const { upstream } = parts
    this.#seenMs = parts.clock.monotonicMs()
    this.#reused = upstream.used
    this.#readBefore = upstream.socket.bytesRead
    this.#writtenBefore = upstream.socket.bytesWritten
    this.#upReq = nodeHttp.request(requestOptions(parts))
    this.#upReq.maxHeadersCount = 0
    this.#listenToOrigin()
    this.#listenToClient()
    // A new one pays the debts of the others first: else each would bring a head that nobody waits for.
    const waitMs = parts.authorized.place.pace?.(0) ?? 0
    if (waitMs === 0) this.#sendRequest()
    else this.#waiting = setTimeout(() => this.#sendRequest(), waitMs)
  }

  get bytesIn(): number {
    return this.#ended?.bytesIn ?? this.#parts.upstream.socket.bytesRead - this.#readBefore
  }

  get bytesOut(): number {
    return this.#ended?.bytesOut ?? this.#parts.upstream.socket.bytesWritten - this.#writtenBefore
  }

  get lastActivityMs(): number {
    const bytes = this.bytesIn + this.bytesOut
    if (bytes !== this.#seenBytes) {
      this.#seenBytes = bytes
      this.#seenMs = this.#parts.clock.monotonicMs()
    }
    return this.#seenMs
  }

  cut(reason: CloseReason): void {
    if (this.#ended !== undefined) return
    this.#end(reason)
    this.#dropUpstream()
    breakOff(this.#parts.socket)
  }

  refuse(reply: Buffer): void {
    if (this.#answered) this.cut('error')
    else if (this.#ended === undefined) this.#endWith('error', reply)
  }

  #sendRequest(): void {
    const { req, head } = this.#parts
    if (head.framing.kind === 'none') {
      this.#requestDone = true
      this.#upReq.end()
      req.resume()
    } else {
      const body = this.#paced(req)
      body.pipe(this.#upReq, { end: false })
      body.on('end', this.#onRequestEnd)
    }
  }

  #paced(source: Readable): Readable {
    const { pace } = this.#parts.authorized.place
    if (pace === undefined) return source
    const body = paced(source, (bytes) => {
      this.#pacedBytes += bytes
      return pace(bytes)
    })
    this.#pacedBodies.push(body)
    return body
  }

  #listenToOrigin(): void {
    this.#upReq.on('response', this.#onResponse)
    this.#upReq.on('information', this.#onInterim)
    this.#upReq.on('upgrade', () => this.#originFailed('http_protocol_error'))
    this.#upReq.on('error', (error: NodeJS.ErrnoException) => this.#onUpstreamError(error))
    this.#upReq.on('close', () => this.#onUpstreamClose())
  }

  #listenToClient(): void {
    const { req, res } = this.#parts
    req.on('error', () => this.#clientLeft())
    res.on('error', () => this.#clientLeft())
    res.on('close', () => {
      if (!res.writableFinished) this.#clientLeft()
    })
    res.on('finish', () => {
      this.#responseDone = true
      this.#endIfDone()
    })
  }

  readonly #onRequestEnd = (): void => {
    const trailers = trailerFields(this.#parts.req.rawTrailers)
    if (trailers.length > 0) this.#upReq.addTrailers(trailers)
    this.#upReq.end()
    this.#requestDone = true
    this.#endIfDone()
  }

  readonly #onInterim = ({ statusCode, rawHeaders }: http.InformationEvent): void => {
    const { req, res, head, socket } = this.#parts
    this.#interimAnswers += 1
    if (this.#interimAnswers > MAX_INTERIM_ANSWERS) {
      this.#originFailed('http_protocol_error')
      return
    }
    // RFC 9110 section 15.2: not to HTTP/1.0. A 100 that nobody waits for says nothing.
    if (req.httpVersion === '1.0' || res.headersSent || (statusCode === 100 && !head.expectsContinue)) return
    socket.write(interimBytes(statusCode, rawHeaders), 'latin1')
  }

  readonly #onResponse = (upRes: http.IncomingMessage): void => {
    const { req, res, isLastAnswer } = this.#parts
    if (this.#ended !== undefined) return
    if (!passHead(upRes, res, isLastAnswer())) {
      this.#originFailed('http_protocol_error')
      return
    }
    upRes.on('error', () => this.#brokeOff())
    this.#answered = true
    this.#upRes = upRes
    const body = req.method === 'HEAD' ? upRes.resume() : this.#paced(upRes)
    if (req.method !== 'HEAD') body.pipe(res, { end: false })
    body.on('end', () => this.#onResponseEnd(upRes))
    setImmediate(() => {
      if (!upRes.readableDidRead && !res.writableEnded && !res.destroyed) res.flushHeaders()
    })
  }

  #onResponseEnd(upRes: http.IncomingMessage): void {
    if (!upRes.complete) {
      this.#brokeOff()
      return
    }
    const { res } = this.#parts
    const trailers = trailerFields(upRes.rawTrailers)
    if (trailers.length > 0) res.addTrailers(trailers)
    res.end()
  }

  #onUpstreamError(error: NodeJS.ErrnoException): void {
    // Said before Node takes a reset for the end of an answer without a length. Once the answer is whole, it is about the rest of the request.
    if (this.#upRes?.complete === true) return
    this.#originFailed(error.code?.startsWith('HPE_') === true ? 'http_protocol_error' : 'connection_terminated')
  }

  /** After its answer an origin may close before it has read the whole request; then the rest of the request is of no use. */
  #onUpstreamClose(): void {
    this.#requestDone = true
    this.#endIfDone()
  }

  /** No answer, or none that can be passed on. */
  #originFailed(fault: OriginFault): void {
    if (this.#ended !== undefined) return
    // An origin may close an idle connection at any time. The client knows that of its own connection and tries again, if the request may be repeated.
    const isStale = this.#reused && this.bytesIn === 0
    if (this.#answered || isStale) {
      this.#brokeOff()
      return
    }
    const { req, requestId, authorized } = this.#parts
    const reply = replyBytes(originFaultReply(fault, requestId, authorized.destination), {
      head: req.method === 'HEAD',
    })
    this.#endWith(fault === 'connection_terminated' ? 'upstream_closed' : 'error', reply)
  }

  #endWith(reason: CloseReason, reply: Buffer): void {
    const { req, socket } = this.#parts
    this.#end(reason)
    this.#dropUpstream()
    req.unpipe()
    req.resume()
    replyThenClose(socket, reply)
  }

  /** The answer had begun: all that can be said now is that it is not whole. */
  #brokeOff(): void {
    if (this.#ended !== undefined || this.#parts.res.writableEnded) return
    this.cut('upstream_closed')
  }

  #clientLeft(): void {
    if (this.#ended !== undefined) return
    this.#end('client_closed')
    this.#dropUpstream()
    this.#parts.socket.destroy()
  }

  #dropUpstream(): void {
    this.#upReq.destroy()
    this.#parts.upstream.socket.destroy()
  }

  #endIfDone(): void {
    if (this.#responseDone && this.#requestDone) this.#end('upstream_closed', this.#parts.socket.writableEnded)
  }

  #end(reason: CloseReason, isLast = true): void {
    if (this.#ended !== undefined) return
    this.#ended = { bytesIn: this.bytesIn, bytesOut: this.bytesOut }
    clearTimeout(this.#waiting)
    for (const body of this.#pacedBodies) body.destroy()
    // Heads, chunk sizes and trailers carry as much as one likes to put into them.
    const untold = this.#ended.bytesIn + this.#ended.bytesOut - this.#pacedBytes
    if (untold > 0) this.#parts.authorized.place.pace?.(untold)
    this.#parts.onEnd({ closeReason: reason, ...this.#ended, isLast })
  }
}
