/** Any open `net.Socket` as a wire, read through its events: TLS, and plain sockets where there are no handles. One set of functions for all, no closure a connection. */
import type net from 'node:net'
import tls from 'node:tls'
import type { Wire, WireOwner } from './wire.ts'

const WIRE = Symbol('wire')
interface WiredSocket extends net.Socket {
  [WIRE]?: SocketWire | undefined
}

const EMPTY = Buffer.alloc(0)

/** The wire of a socket, which is its own from here on. Best made with `allowHalfOpen`, accepted ones with `pauseOnConnect`. */
export class SocketWire implements Wire {
  readonly #socket: WiredSocket
  #owner: WireOwner | undefined
  #flushed: (() => void) | undefined

  /** Stops its reading. */
  constructor(socket: net.Socket) {
    this.#socket = socket
    socket.pause()
  }

  get destroyed(): boolean {
    return this.#socket.destroyed
  }

  get peer(): { readonly address: string | undefined; readonly port: number | undefined } {
    return { address: this.#socket.remoteAddress, port: this.#socket.remotePort }
  }

  /** A closed socket stays in memory for long, and is let go in `onClose` for that: see `roster.ts`. */
  own(owner: WireOwner): void {
    this.#owner = owner
    this.#socket[WIRE] = this
    this.#socket.on('end', onEnd).on('drain', onDrain).on('error', onError).on('close', onClose).on('data', onData)
    // A listener for data starts it.
    this.#socket.pause()
  }

  read(): void {
    if (!this.#socket.destroyed) this.#socket.resume()
  }

  send(bytes: Buffer): boolean {
    const socket = this.#socket
    if (socket.writableEnded || socket.destroyed) return true
    socket.write(bytes)
    if (socket.writableLength === 0) return true
    // A remainder below the high-water mark raises no 'drain'.
    if (!socket.writableNeedDrain) socket.write(EMPTY, (this.#flushed ??= () => this.drained()))
    return false
  }

  end(): void {
    if (!this.#socket.destroyed) this.#socket.end()
  }

  /** Over TLS only an end is one. */
  finish(): void {
    this.end()
  }

  destroy(): void {
    this.#socket.destroy()
  }

  abort(): void {
    const socket = this.#socket
    if (socket.destroyed) return
    // After an end that is still on its way libuv refuses to reset; other transports than TCP can't.
    const isTcp = socket.remoteFamily !== undefined && !(socket instanceof tls.TLSSocket)
    if (isTcp && !socket.writableEnded) socket.resetAndDestroy()
    else socket.destroy()
  }

  readInto(): boolean {
    return false
  }

  toStream(): net.Socket {
    const socket = this.#socket
    socket.off('data', onData).off('end', onEnd).off('drain', onDrain).off('close', onClose).off('error', onError)
    socket[WIRE] = undefined
    // As if nobody had touched it: the first listener for data starts it.
    return Object.assign(socket, { readableFlowing: null }).on('error', () => undefined)
  }

  /** For the functions of the socket alone. */
  get owner(): WireOwner | undefined {
    return this.#owner
  }

  /** For the functions of the socket alone: empty writes of before may call back while later ones are pending. */
  drained(): void {
    if (!this.#socket.destroyed && this.#socket.writableLength === 0) this.#owner?.onDrain()
  }
}

function onData(this: WiredSocket, chunk: Buffer): void {
  if (this[WIRE]?.owner?.onChunk(chunk) !== true) this.pause()
}

function onEnd(this: WiredSocket): void {
  this[WIRE]?.owner?.onEnd()
}

function onDrain(this: WiredSocket): void {
  this[WIRE]?.drained()
}

function onError(this: WiredSocket, fault: NodeJS.ErrnoException): void {
  this[WIRE]?.owner?.onFault(fault.code ?? 'UNKNOWN')
}

function onClose(this: WiredSocket): void {
  const wire = this[WIRE]
  this[WIRE] = undefined
  wire?.owner?.onClosed()
}
