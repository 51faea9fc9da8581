/** One end of a connection, read by pull until a relay takes it over. */
import type net from 'node:net'
import type tls from 'node:tls'

/** A side that is made before its socket: `onread` goes to `net.connect`, then the socket is attached. */
export interface OutboundSide {
  readonly side: Side
  readonly onread: net.OnReadOpts
}

/** One end of a connection. Faults of the socket never throw: they close the side. */
export class Side {
  /** The accepted connection: reads go to the relay's own buffers where the handle can be moved (TCP, unix sockets), else through the socket's events (TLS). Give the socket up: it may be an empty shell afterwards. */
  static accept(_socket: net.Socket | tls.TLSSocket): Side {
    throw new Error('not built yet')
  }

  /** For a connection to be opened: `net.connect({ …, onread, noDelay: true, allowHalfOpen: true })`, then {@link attach} in the same turn. */
  static outbound(): OutboundSide {
    throw new Error('not built yet')
  }

  /** An open socket of somebody else's making (an upstream proxy over TLS), read through its events; any bytes it has buffered come first. */
  static adopt(_socket: net.Socket): Side {
    throw new Error('not built yet')
  }

  /** Gives an outbound side its socket, which may still be connecting; it does not read until told. */
  attach(_socket: net.Socket): void {
    throw new Error('not built yet')
  }

  /** The next bytes, a copy of the caller's own; `null` at the end of the stream, whether clean or not. One read at a time; the socket is not read otherwise. */
  read(): Promise<Buffer | null> {
    throw new Error('not built yet')
  }

  /** Puts bytes back: they are the next to be read, relayed or handed on. */
  unread(_bytes: Buffer): void {
    throw new Error('not built yet')
  }

  /** Sends bytes; the callback runs when the kernel has them, or with the fault. */
  write(_bytes: Buffer, _callback?: (fault?: Error | null) => void): void {
    throw new Error('not built yet')
  }

  /** Sends what is given and then the end of the stream; reading goes on. */
  end(_bytes?: Buffer): void {
    throw new Error('not built yet')
  }

  /** Closes at once; a pending read gets `null`. Idempotent. */
  destroy(): void {
    throw new Error('not built yet')
  }

  /** True from the moment that the socket is closed or being destroyed. */
  get closed(): boolean {
    throw new Error('not built yet')
  }

  /** Called once when the socket is closed; at once (in a later turn) if it already is. */
  onClose(_listener: () => void): void {
    throw new Error('not built yet')
  }

  /** Gives the side up for an ordinary socket that is not reading, with unread bytes pushed back: fit for `httpServer.emit('connection', socket)`. */
  toStream(): net.Socket {
    throw new Error('not built yet')
  }
}
