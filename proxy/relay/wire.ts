/** What a side needs of its transport: `handle-wire.ts` is the lean one, `socket-wire.ts` the one for TLS and all else. */
import type net from 'node:net'

/** One end of an open connection, without a meaning to its bytes. Faults never throw: they are told to the owner, and close it. */
export interface Wire {
  /** True from the moment that it is being closed, or was given up. */
  readonly destroyed: boolean
  /** The peer's address as the system says it; empty for unix sockets and for a peer that has left. */
  readonly peer: { readonly address?: string | undefined; readonly port?: number | undefined }
  /** From here on events go to the owner. Once. Reads nothing yet. */
  own(owner: WireOwner): void
  /** Reads from now on, until the owner says otherwise. Does nothing after the end. */
  read(): void
  /** Sends bytes. `false`: not all of them are in the kernel yet, {@link WireOwner.onDrain} follows. Does nothing after the end. */
  send(bytes: Buffer): boolean
  /** Sends the end of the stream; reading goes on. Idempotent. */
  end(): void
  /** Nothing more is to be sent: an end, or just a close where the peer has ended too and that says the same. */
  finish(): void
  /** Closes at once. Idempotent. */
  destroy(): void
  /** Closes at once and, where the transport can say so, tells the peer that what it has is not all (RST). Idempotent. */
  abort(): void
  /** Reads go into this buffer from now on. `false`: this wire reads into memory of its own. */
  readInto(buffer: Buffer): boolean
  /** Gives itself up for an ordinary socket that is not reading; its owner is told nothing any more. The socket has a listener for `error` that does nothing. */
  toStream(): net.Socket
}

/** Whose a wire is. */
export interface WireOwner {
  /** So many bytes were read into the buffer that was set last, at first the shared one; says whether to read on. */
  onRead(bytesRead: number): boolean
  /** A chunk of a wire that reads into memory of its own; it is nobody else's. Says whether to read on. */
  onChunk(chunk: Buffer): boolean
  /** The peer's end was read. */
  onEnd(): void
  /** All that was sent is in the kernel. */
  onDrain(): void
  /** A fault, by the system's name; {@link onClosed} follows. */
  onFault(fault: string): void
  /** It neither reads nor writes any more. */
  onClosed(): void
}
