/** Carries a loopback port of this machine to a sandbox's socket of the gateway, where there is no other way for what runs inside. */
import net from 'node:net'

/** A relay that listens. */
export interface LoopbackRelay {
  readonly host: '127.0.0.1'
  readonly port: number
  /** Idempotent. */
  readonly close: () => Promise<void>
}

/** Two descriptors each; beyond this a connection is closed at once. */
const MAX_CONNECTIONS = 1024

/** Any program of this machine can use the port, and so pass for the sandbox: what it may reach is what the sandbox may. */
export async function startLoopbackRelay(socketPath: string): Promise<LoopbackRelay> {
  const open = new Set<net.Socket>()
  const server = net.createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    const gateway = net.connect({ path: socketPath, allowHalfOpen: true })
    for (const [one, other] of [[client, gateway], [gateway, client]] as const) {
      open.add(one)
      one.pipe(other)
      one.on('error', () => other.destroy())
      one.on('close', () => {
        open.delete(one)
        // A side that is gone without an end takes the other with it.
        if (!one.readableEnded || !other.writableEnded) other.destroy()
      })
    } // prettier-ignore
  })
  server.maxConnections = MAX_CONNECTIONS
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(0, '127.0.0.1', () => {
      server.off('error', reject).on('error', () => undefined)
      resolve()
    })
  })
  let closed: Promise<void> | undefined
  return {
    host: '127.0.0.1',
    port: (server.address() as net.AddressInfo).port,
    close: () =>
      (closed ??= new Promise((resolve) => {
        server.close(() => resolve())
        for (const socket of open) socket.destroy()
      })),
  }
}
