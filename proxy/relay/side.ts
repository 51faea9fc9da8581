/**
 * One end of a connection: read by pull while its request is made out, then by whoever relays it.
 * Bytes come through `onread` into the relay's own buffers where the handle can be moved to such a socket (TCP, unix sockets), else through the socket's events (TLS).
 * Nothing here knows what the bytes mean.
 */
import net from 'node:net'
import tls from 'node:tls'
import { COLD_BYTES, coldBuffer, type HotHolder, hotBuffers } from './buffers.ts'
import { turns, type Visitor } from './turns.ts'

/** A side that is made before its socket: `onread` goes to `net.connect`, then the socket is attached. */
export interface OutboundSide {
  readonly side: Side
  readonly onread: net.OnReadOpts
}

/** Who gets a side's bytes and events once it is relayed. One object for all sides that it serves. */
export interface Receiver {
  /**
   * Bytes came. They may be kept until `false` is answered by {@link Side.proceed}; after `true` they are gone when this returns.
   * `false`: no more until `proceed`.
   */
  received(side: Side, bytes: Buffer): boolean
  /** The peer has sent its end. */
  ended(side: Side): void
  /** All that {@link Side.send} was given is in the kernel. Also comes when nobody waits for it. */
  drained(side: Side): void
  /** The socket is closed; its pending writes are void. `fault` is the system's code if it was one. */
  closed(side: Side, fault: string | undefined): void
}

/** A socket knows its side, so that one set of functions serves all sockets: no closure a connection, let alone a chunk. */
const SIDE = Symbol('side')
interface SideSocket extends net.Socket {
  [SIDE]?: Side
}

/** What of a socket's insides is used, from Node 20 to 26; where it is missing, the socket's events are. */
interface Handle {
  readonly useUserBuffer?: (buffer: Buffer) => void
}
interface HandleHolder {
  _handle?: Handle | null
}

const EMPTY = Buffer.alloc(0)

/** Idle connections that keep being asked for their buffer leave a few bytes with the handle each time; this bounds them. */
const MOST_SURRENDERS = 256

/** Where the socket whose read is being handled reads next: Node asks for it right after the callback, and does not say for which socket. */
let nextBuffer = coldBuffer

const ONREAD: net.OnReadOpts = {
  buffer: () => {
    const buffer = nextBuffer
    nextBuffer = coldBuffer
    return buffer
  },
  // Node's own idea of the buffer is not asked for: after a surrender it is out of date.
  callback(this: SideSocket, bytesRead: number): boolean {
    return this[SIDE]?.onRead(bytesRead) ?? false
  },
}

/** One end of a connection. Faults of the socket never throw: they close the side. */
export class Side implements HotHolder, Visitor {
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
  /** The receiver said stop; what it was given last may still be on its way out of {@link #hot}. */
  #stopped = false
  #queued = false
  /** Bytes of this visit. */
  #visited = 0
  /** The buffer that this socket reads into, if not the shared one. */
  #hot: Buffer | undefined
  /** Whether it was read into since the pool last asked for it. */
  #hotInUse = false
  #surrenders = 0

  /**
   * The side of an accepted connection. Give the socket up: it may be an empty shell afterwards.
   * Best with `pauseOnConnect` and `allowHalfOpen` on the server.
   */
  static accept(socket: net.Socket | tls.TLSSocket): Side {
    const handle = takeHandle(socket)
    if (handle === undefined) return Side.adopt(socket)
    const side = new Side()
    // As Node's own server makes the socket of an accepted handle; `manualStart`: it does not read yet.
    const options: net.SocketConstructorOpts & { readonly manualStart: boolean } = {
      handle: handle as unknown as net.BoundSocket,
      manualStart: true,
      allowHalfOpen: true,
      onread: ONREAD,
    }
    side.#own(new net.Socket(options), true)
    return side
  }

  /** The side of any other open socket, such as TLS to an upstream proxy; it is read through its events. */
  static adopt(socket: net.Socket): Side {
    const side = new Side()
    side.#own(socket, false)
    socket.pause()
    socket.on('data', onData)
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
  get remoteAddress(): string | undefined {
    return this.#socket?.remoteAddress
  }

  /** The peer's port, likewise. */
  get remotePort(): number | undefined {
    return this.#socket?.remotePort
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

  /** Closes at once; a pending read gets `null`. Idempotent. */
  destroy(): void {
    this.#socket?.destroy()
  }

  /** Closes at once and, where the transport can say so, tells the peer that what it has is not all (RST). Idempotent. */
  abort(): void {
    const socket = this.#socket
    if (socket === undefined || socket.destroyed) return
    // After an end that is still on its way libuv refuses to reset; other transports than TCP can't.
    if (
      socket.writableEnded ||
      socket.connecting ||
      socket.remoteFamily === undefined ||
      socket instanceof tls.TLSSocket
    )
      socket.destroy()
    else socket.resetAndDestroy()
  }

  /** Called once when the socket is closed; in a later turn if it already is. One listener at a time. */
  onClose(listener: () => void): void {
    if (this.#closed) process.nextTick(listener)
    else this.#closeListener = listener
  }

  /**
   * Gives the side up for an ordinary socket that is not reading, with unread bytes pushed back: fit for `httpServer.emit('connection', socket)`.
   * It has a listener for `error` that does nothing.
   */
  toStream(): net.Socket {
    const socket = this.#live()
    this.#handedOn = true
    socket.off('data', onData).off('end', onEnd).off('close', onClose)
    const unread = this.takeUnread()
    if (unread !== undefined && !this.#ended) socket.unshift(unread)
    // As if nobody had touched it: the first listener for data starts it.
    Object.assign(socket, { readableFlowing: null })
    return socket
  }

  /** From here on bytes and events go to the receiver; reading starts. What was put back must be taken before. */
  start(receiver: Receiver): void {
    this.#receiver = receiver
    this.#socket?.on('drain', onDrain)
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
    if (this.#ended || this.#closed) this.#cool()
    else if (!this.#queued) this.#restart()
  }

  /** {@link Visitor} */
  readOn(): void {
    this.#queued = false
    if (!this.#stopped) this.#restart()
  }

  /** {@link HotHolder} */
  surrender(): boolean {
    if (this.#hotInUse || this.#stopped || this.#queued) {
      this.#hotInUse = false
      return false
    }
    const handle = (this.#socket as HandleHolder | undefined)?._handle
    if (this.#hot === undefined || !handle?.useUserBuffer) return false
    handle.useUserBuffer(coldBuffer)
    this.#surrenders++
    this.#cool()
    return true
  }

  /** The socket has read into its buffer; says whether to read on. Called by {@link ONREAD} only. */
  onRead(bytesRead: number): boolean {
    const hot = this.#hot
    const buffer = hot ?? coldBuffer
    if (this.#handedOn) return this.#live().push(copyOf(buffer, bytesRead))
    if (this.#receiver === undefined) return this.#pull(copyOf(buffer, bytesRead))
    const more = this.#relay(hot === undefined ? copyOf(coldBuffer, bytesRead) : hot.subarray(0, bytesRead))
    if (hot === undefined) this.#heatUp(bytesRead)
    else if (this.#stopped) this.#hotInUse = true
    else if (bytesRead < COLD_BYTES) this.#cool()
    else this.#hotInUse = true
    if (bytesRead < COLD_BYTES) this.#visited = 0
    nextBuffer = this.#hot ?? coldBuffer
    return more
  }

  /** A chunk of the fallback; it is nobody else's, so that it needs no copy. */
  onChunk(chunk: Buffer): void {
    const more = this.#receiver === undefined ? this.#pull(chunk) : this.#relay(chunk)
    if (!more) this.#socket?.pause()
  }

  /** The socket's 'end'. */
  onEnd(): void {
    this.#ended = true
    if (!this.#stopped) this.#cool()
    this.#answer(null)
    this.#receiver?.ended(this)
  }

  /** The socket's 'drain'. */
  onDrain(): void {
    if (!this.closed) this.#receiver?.drained(this)
  }

  /** The socket's 'error'; 'close' follows. */
  onError(fault: NodeJS.ErrnoException): void {
    this.#fault ??= fault.code ?? 'UNKNOWN'
  }

  /** The socket's 'close': the handle neither reads nor writes any more. */
  onClosed(): void {
    this.#closed = true
    if (!this.#stopped) this.#cool()
    this.#answer(null)
    this.#closeListener?.()
    this.#receiver?.closed(this, this.#fault)
  }

  #own(socket: net.Socket, direct: boolean): void {
    this.#socket = socket
    this.#direct = direct
    ;(socket as SideSocket)[SIDE] = this
    socket.on('end', onEnd).on('error', onError).on('close', onClose)
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

  #relay(bytes: Buffer): boolean {
    this.#stopped = this.#receiver?.received(this, bytes) !== true
    if (this.#stopped) {
      this.#visited = 0
      return false
    }
    this.#visited += bytes.length
    if (this.#visited < turns.bytesAVisit) return true
    this.#visited = 0
    this.#queued = true
    turns.queue(this)
    return false
  }

  #heatUp(bytesRead: number): void {
    if (bytesRead < COLD_BYTES || this.#surrenders >= MOST_SURRENDERS || this.closed) return
    this.#hot = hotBuffers.borrow(this)
    this.#hotInUse = true
  }

  /** Gives the hot buffer back. Only where the handle won't read into it again, and no write holds it. */
  #cool(): void {
    const hot = this.#hot
    if (hot === undefined) return
    this.#hot = undefined
    hotBuffers.giveBack(hot, this)
  }
}

function copyOf(buffer: Buffer, bytes: number): Buffer {
  const copy = Buffer.allocUnsafe(bytes)
  buffer.copy(copy, 0, 0, bytes)
  return copy
}

/** Takes the handle out of a socket, so that another may have it; `undefined` where that can't be done. */
function takeHandle(socket: net.Socket): Handle | undefined {
  const holder = socket as HandleHolder
  const handle = holder._handle
  if (socket instanceof tls.TLSSocket || socket.destroyed || socket.readableLength > 0) return undefined
  if (!handle || typeof handle.useUserBuffer !== 'function') return undefined
  holder._handle = null
  return handle
}

function onData(this: SideSocket, chunk: Buffer): void {
  this[SIDE]?.onChunk(chunk)
}

function onEnd(this: SideSocket): void {
  this[SIDE]?.onEnd()
}

function onDrain(this: SideSocket): void {
  this[SIDE]?.onDrain()
}

function onError(this: SideSocket, fault: NodeJS.ErrnoException): void {
  this[SIDE]?.onError(fault)
}

function onClose(this: SideSocket): void {
  this[SIDE]?.onClosed()
}
