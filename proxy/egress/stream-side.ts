/** Reads an ordinary socket piece by piece, for a short exchange at its start; what is left over goes back into the socket. */
import type net from 'node:net'

/** What the exchange with an upstream proxy needs of a side. */
export interface ReadableSide {
  /** The next bytes; `null` at the end, whether it came in order or not. */
  read(): Promise<Buffer | null>
  /** Puts bytes back, in front of all that is still to be read. */
  unread(bytes: Buffer): void
  write(bytes: Buffer): unknown
  destroy(): void
}

/** A side that leaves the socket as it was. */
export interface StreamSide extends ReadableSide {
  readonly socket: net.Socket
}

/** A side over a socket that nobody else reads yet. */
export function sideOfStream(socket: net.Socket): StreamSide {
  return {
    socket,
    read: () => readOnce(socket),
    unread: (bytes) => socket.unshift(bytes),
    write: (bytes) => socket.write(bytes),
    destroy: () => socket.destroy(),
  }
}

function readOnce(socket: net.Socket): Promise<Buffer | null> {
  return new Promise((resolve) => {
    const events = ['readable', 'end', 'close', 'error'] as const
    for (const event of events) socket.on(event, look)
    look()

    function look(): void {
      const bytes = socket.read() as Buffer | null
      if (bytes === null && !socket.readableEnded && !socket.destroyed) return
      for (const event of events) socket.off(event, look)
      resolve(bytes)
    }
  })
}
