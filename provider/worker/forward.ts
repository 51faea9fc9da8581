/** Carries a loopback port to a unix socket, byte by byte, half-closes included: the way from a sandbox without a network to its gateway. */
import net from 'node:net'
import { listenAt } from './listen.ts'
import type { WorkerForward } from './settings.ts'

// Two descriptors each; beyond this a connection is closed at once.
const MAX_CONNECTIONS = 1_024

/** Resolves when it listens. `onCarry` is called when something has gone that way, at least once. @throws Error when the port is taken */
export async function startForward({ host, port, path }: WorkerForward, onCarry: () => void): Promise<net.Server> {
  const server = net.createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, (client) =>
    carry(client, path, onCarry),
  )
  server.maxConnections = MAX_CONNECTIONS
  await listenAt(server, { host, port })
  return server
}

function carry(client: net.Socket, path: string, onCarry: () => void): void {
  const upstream = net.connect({ path, allowHalfOpen: true })
  client.on('error', () => upstream.destroy())
  upstream.on('error', () => client.resetAndDestroy())
  // A side that is gone without an end takes the other with it.
  client.on('close', () => {
    if (!upstream.writableEnded || !client.readableEnded) upstream.destroy()
  })
  upstream.on('close', () => {
    if (!client.writableEnded || !upstream.readableEnded) client.destroy()
  })
  upstream.once('connect', () => {
    client.pipe(upstream)
    client.once('data', onCarry)
    upstream.pipe(client)
  })
}
