/** Carries a loopback port to a unix socket, byte by byte, half-closes included: the way from a sandbox without a network to its gateway. */
import net from 'node:net'
import type { WorkerForward } from './settings.ts'

// Two descriptors each; beyond this a connection is closed at once.
const MAX_CONNECTIONS = 1_024
const BACKLOG = 511

/** Resolves when it listens. @throws Error when the port is taken */
export function startForward({ host, port, path }: WorkerForward): Promise<net.Server> {
  const server = net.createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, (client) =>
    carry(client, path),
  )
  server.maxConnections = MAX_CONNECTIONS
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.once('listening', () => {
      server.off('error', reject).on('error', () => undefined)
      resolve(server)
    })
    listen(server, host, port)
  })
}

/** What Node itself calls once it has looked an address up. */
interface LooksNothingUp {
  readonly _listen2?: (address: string, port: number, family: 4, backlog: number) => void
}

/** The resolver has nothing to say of loopback, but to ask it takes a tenth of Node's own start. */
function listen(server: net.Server & LooksNothingUp, host: string, port: number): void {
  if (host !== '127.0.0.1' || server._listen2 === undefined) server.listen({ host, port })
  else server._listen2(host, port, 4, BACKLOG)
}

function carry(client: net.Socket, path: string): void {
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
    upstream.pipe(client)
  })
}
