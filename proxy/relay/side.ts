/**
 * One end of a connection: read by pull while its request is made out, then by whoever relays it.
 * Bytes come through `onread` into the relay's own buffers where the handle can be moved to such a socket (TCP, unix sockets), else through the socket's events (TLS).
 * Nothing here knows what the bytes mean.
 */
import type net from 'node:net'
import tls from 'node:tls'
import type { Awaited, Wait } from '../deadlines.ts'
import type { Member } from '../roster.ts'
import { COLD_BYTES, coldBuffer, copyOf } from './buffers.ts'
import { type Borrower, HotLoan } from './hot-loan.ts'
import type { Receiver } from './receiver.ts'
import { turns, type Visitor } from './turns.ts'
import { disown, ONREAD, own, ownChunks, readNextInto, readThroughOnread, reroute, type SocketOwner } from './wiring.ts'

/** A side that is made before its socket: `onread` goes to `net.connect`, then the socket is attached. */
export interface OutboundSide {
  readonly side: Side
  readonly onread: net.OnReadOpts
}

const EMPTY = Buffer.alloc(0)

/** One end of a connection. Faults of the socket never throw: they close the side. */
export class Side implements SocketOwner, Borrower, Visitor, Awaited, Member {
  /** {@link Awaited} */
  wait: Wait | undefined
  /** {@link Member} of those that are served. */
  rosterPlace = -1
  #socket: net.Socket | undefined
  /** Whether reads go through {@link ONREAD}. */
  #direct = false
  #receiver: Receiver | undefined
  /** An ordinary stream again; the side only fills it. */
  #handedOn = false
  #unread: Buffer | undefined
  #reader: ((bytes: Buffer | null) => void) | undefined
  #closeListener: (() => void) | undefined
  #flushed: (() => void) | undefined
  #fault: string | undefined
  #ended = false
  #closed = false
  /** The receiver said stop; what it was given last may still be on its way out of the borrowed buffer. */
  #stopped = false
  #queued = false
  /** Bytes of this visit. */
  #visited = 0
  #loan: HotLoan | undefined

  /**
   * The side of an accepted connection. Give the socket up: it may be an empty shell afterwards.
   * Best with `pauseOnConnect` and `allowHalfOpen` on the server.
   */
  static accept(socket: net.Socket | tls.TLSSocket): Side {
    turns.arrived()
    if (!readThroughOnread(socket)) return Side.adopt(socket)
    const side = new Side()
    side.#own(socket, true)
    return side
  }

  /** The side of any other open socket, such as TLS to an upstream proxy; it is read through its events. */
  static adopt(socket: net.Socket): Side {
    const side = new Side()
    side.#own(socket, false)
    ownChunks(socket)
    return side
  }

  /** For a connection to be opened: `net.connect({ …, onread, noDelay: true, allowHalfOpen: true })`, then {@link attach} in the same turn. */
  static outbound(): OutboundSide {
    return { side: new Side(), onread: ONREAD }
  }

  /** Gives an outbound side its socket, which may still be connecting; it does not read until told. */
  attach(socket: net.Socket): void {
    if (this.#socket !== undefined) throw new TypeError('the side has a socket already')
    socket.pause()
    this.#own(socket, true)
  }

  /** True from the moment that the socket is being destroyed. */
  get closed(): boolean {
    return this.#closed || this.#socket?.destroyed === true
  }

  /** Whether the peer's end was read. */
  get ended(): boolean {
    return this.#ended
  }

  /** The peer's address as the system says it; `undefined` for unix sockets and for a peer that has left. */
  get peer(): { readonly address: string | undefined; readonly port: number | undefined } {
    return { address: this.#socket?.remoteAddress, port: this.#socket?.remotePort }
  }

  /** The next bytes, the caller's own copy; `null` at the end of the stream, clean or not. One read at a time; the socket is not read otherwise. */
  read(): Promise<Buffer | null> {
    if (this.#reader !== undefined) throw new TypeError('a read is pending already')
    const unread = this.takeUnread()
    if (unread !== undefined) return Promise.resolve(unread)
    if (this.#ended || this.closed) return Promise.resolve(null)
    return new Promise((resolve) => {
      this.#reader = resolve
      this.#restart()
    })
  }

  /** Puts bytes back: they are the next to be read, relayed or handed on. */
  unread(bytes: Buffer): void {
    if (bytes.length > 0) this.#unread = this.#unread === undefined ? bytes : Buffer.concat([bytes, this.#unread])
  }

  /** The bytes that were put back, if any; they are the caller's from here on. */
  takeUnread(): Buffer | undefined {
    const unread = this.#unread
    this.#unread = undefined
    return unread
  }

  /** Sends bytes; the callback runs when the kernel has them, or with the fault. */
  write(bytes: Buffer, callback?: (fault?: Error | null) => void): void {
    this.#live().write(bytes, callback)
  }

  /** Sends what is given and then the end of the stream; reading goes on. */
  end(bytes?: Buffer): void {
    if (this.closed) return
    if (bytes === undefined) this.#live().end()
    else this.#live().end(bytes)
  }

  /** Nothing more is to be sent. Where the peer has ended too and the kernel has all, closing says the same and is cheaper; over TLS only an end does. */
  finish(): void {
    const socket = this.#live()
    if (this.#direct && this.#ended && socket.writableLength === 0) socket.destroy()
    else this.end()
  }

  /** Closes at once; a pending read gets `null`. Idempotent. */
  destroy(): void {
    this.#socket?.destroy()
  }

  /** Closes at once and, where the transport can say so, tells the peer that what it has is not all (RST). Idempotent. */
  abort(): void {
    const socket = this.#socket
    if (socket === undefined || socket.destroyed) return
    // After an end that is still on its way libuv refuses to reset; other transports than TCP can't.
    const isTcp = socket.remoteFamily !== undefined && !(socket instanceof tls.TLSSocket)
    if (isTcp && !socket.connecting && !socket.writableEnded) socket.resetAndDestroy()
    else socket.destroy()
  }

  /** Called once when the socket is closed or handed on; in a later turn if it already is closed. One listener at a time. */
  onClose(listener: () => void): void {
    if (this.#closed) process.nextTick(listener)
    else this.#closeListener = listener
  }

  /**
   * Gives the side up for an ordinary socket that is not reading, with unread bytes pushed back: fit for `httpServer.emit('connection', socket)`, whose
   * owner closes it from here on.
   * It has a listener for `error` that does nothing.
   */
  toStream(): net.Socket {
    const socket = this.#live()
    this.#handedOn = true
    disown(socket)
    this.#closeListener?.()
    const unread = this.takeUnread()
    if (unread !== undefined && !this.#ended) socket.unshift(unread)
    // As if nobody had touched it: the first listener for data starts it.
    Object.assign(socket, { readableFlowing: null })
    return socket
  }

  /** From here on bytes and events go to the receiver; reading starts. What was put back must be taken before. */
  start(receiver: Receiver): void {
    this.#receiver = receiver
    if (this.#closed) process.nextTick(() => receiver.closed(this, this.#fault))
    else if (this.#ended) process.nextTick(() => receiver.ended(this))
    else this.#restart()
  }

  /** Sends bytes to the peer. `false`: not all of them are in the kernel yet, {@link Receiver.drained} follows. */
  send(bytes: Buffer): boolean {
    const socket = this.#live()
    socket.write(bytes)
    if (socket.writableLength === 0) return true
    // A remainder below the high-water mark raises no 'drain'.
    if (!socket.writableNeedDrain) socket.write(EMPTY, (this.#flushed ??= () => this.onDrain()))
    return false
  }

  /** What the receiver was given last is through, or void: reading goes on. */
  proceed(): void {
    if (!this.#stopped) return
    this.#stopped = false
    if (this.#ended || this.#closed) this.#loan?.giveBack()
    else if (!this.#queued) this.#restart()
  }

  /** {@link Visitor} */
  readOn(): void {
    this.#queued = false
    if (!this.#stopped) this.#restart()
  }

  /** {@link Borrower} */
  letGo(): boolean {
    if (this.#stopped || this.#queued || this.#socket === undefined) return false
    return reroute(this.#socket, coldBuffer)
  }

  /** {@link SocketOwner} */
  onRead(bytesRead: number): boolean {
    const hot = this.#loan?.buffer
    const buffer = hot ?? coldBuffer
    if (this.#handedOn) return this.#live().push(copyOf(buffer, bytesRead))
    if (this.#receiver === undefined) return this.#pull(copyOf(buffer, bytesRead))
    const more = this.#relay(hot === undefined ? copyOf(coldBuffer, bytesRead) : hot.subarray(0, bytesRead))
    const isFull = bytesRead >= COLD_BYTES
    if (!isFull) this.#visited = 0
    if (hot !== undefined && (isFull || this.#stopped) && more !== 'held') this.#loan?.used()
    else if (hot !== undefined) this.#loan?.giveBack()
    else if (isFull && more !== 'held' && !this.closed) (this.#loan ??= new HotLoan(this)).borrow()
    readNextInto(this.#loan?.buffer ?? coldBuffer)
    return more === true
  }

  /** {@link SocketOwner}; a chunk of its own needs no copy. */
  onChunk(chunk: Buffer): void {
    const more = this.#receiver === undefined ? this.#pull(chunk) : this.#relay(chunk)
    if (more !== true) this.#socket?.pause()
  }

  /** {@link SocketOwner} */
  onEnd(): void {
    this.#ended = true
    if (!this.#stopped) this.#loan?.giveBack()
    this.#answer(null)
    this.#receiver?.ended(this)
  }

  /** {@link SocketOwner} */
  onDrain(): void {
    // Empty writes of before may call back while later ones are pending, out of a borrowed buffer.
    if (!this.closed && this.#socket?.writableLength === 0) this.#receiver?.drained(this)
  }

  /** {@link SocketOwner} */
  onFault(fault: NodeJS.ErrnoException): void {
    this.#fault ??= fault.code ?? 'UNKNOWN'
  }

  /** {@link SocketOwner} */
  onClosed(): void {
    this.#closed = true
    if (!this.#stopped) this.#loan?.giveBack()
    this.#answer(null)
    this.#closeListener?.()
    this.#receiver?.closed(this, this.#fault)
  }

  #own(socket: net.Socket, direct: boolean): void {
    this.#socket = socket
    this.#direct = direct
    own(socket, this)
  }

  #live(): net.Socket {
    if (this.#socket === undefined) throw new TypeError('the side has no socket yet')
    return this.#socket
  }

  #restart(): void {
    const socket = this.#live()
    if (this.#ended || socket.destroyed) return
    // `read(0)` starts the handle, without the event and the tick that `resume()` takes.
    if (this.#direct) socket.read(0)
    else socket.resume()
  }

  #pull(bytes: Buffer): boolean {
    if (this.#reader === undefined)
      this.#unread = this.#unread === undefined ? bytes : Buffer.concat([this.#unread, bytes])
    else this.#answer(bytes)
    return false
  }

  #answer(bytes: Buffer | null): void {
    const reader = this.#reader
    this.#reader = undefined
    reader?.(bytes)
  }

  #relay(bytes: Buffer): boolean | 'held' {
    const more = this.#receiver?.received(this, bytes) ?? false
    this.#stopped = more !== true
    if (this.#stopped) {
      this.#visited = 0
      return more
    }
    this.#visited += bytes.length
    if (this.#visited < turns.bytesAVisit) return true
    this.#visited = 0
    this.#queued = true
    turns.queue(this)
    return false
  }
}
