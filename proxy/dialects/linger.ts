/**
 * Says something last and closes, without losing it: closing while the client still sends makes the kernel reset the connection, and the client may then
 * never see the answer. So the rest is read and thrown away for a moment.
 * @see RFC 9112 section 9.6
 */
import type http from 'node:http'
import type net from 'node:net'

/** How long the client may go on sending after the last answer. */
const LINGER_MS = 2_000
/** How long the rest of a body is read once nobody wants it. */
const DISCARD_MS = 10_000

/** Sends `bytes`, ends the connection and throws away what still comes, for 2 s at most. Whatever else reads from the socket must throw it away as well. */
export function replyThenClose(socket: net.Socket, bytes: Buffer): void {
  // A client that is gone is no fault of the gateway.
  socket.on('error', () => socket.destroy())
  if (socket.destroyed) return
  const timer = setTimeout(() => socket.destroy(), LINGER_MS)
  socket.once('close', () => clearTimeout(timer))
  socket.once('end', () => socket.destroy())
  socket.end(bytes)
  socket.resume()
}

/** Ends a connection so that the client can't take what it got for a whole answer: with a reset where the transport has one. */
export function breakOff(socket: net.Socket): void {
  try {
    socket.resetAndDestroy()
  } catch {
    // TLS and some streams have no reset; there, the missing close_notify or last chunk says the same.
    socket.destroy()
  }
}

/** Reads the rest of a body that nobody wants, for a while; then the connection is given up. */
export async function discardBody(req: http.IncomingMessage, socket: net.Socket): Promise<void> {
  await new Promise<void>((resolve) => {
    const timer = setTimeout(() => breakOff(socket), DISCARD_MS)
    req.once('close', () => {
      clearTimeout(timer)
      resolve()
    })
    req.unpipe()
    req.resume()
  })
}
