/** Carries one listener of this machine to another: a loopback port to a sandbox's socket of the gateway, or that socket to a gateway's port. */
import net from 'node:net'

/** A relay that listens on a port. */
export interface LoopbackRelay {
  readonly host: '127.0.0.1'
  readonly port: number
  /** Idempotent. */
  readonly close: () => Promise<void>
}

/** A relay that listens on a socket. */
export type SocketRelay = Pick<LoopbackRelay, 'close'>

/** Two descriptors each; beyond this a connection is closed at once. */
const MAX_CONNECTIONS = 1024

/** Any program of this machine can use the port, and so pass for the sandbox: what it may reach is what the sandbox may. */
export async function startLoopbackRelay(socketPath: string): Promise<LoopbackRelay> {
  const { server, close } = await startRelay({ host: '127.0.0.1', port: 0 }, () => ({ path: socketPath }))
  return { host: '127.0.0.1', port: (server.address() as net.AddressInfo).port, close }
}

/** Carries to wherever `target` says at the time; nowhere while it says nothing. */
export async function startSocketRelay(
  socketPath: string,
  target: () => net.NetConnectOpts | undefined,
): Promise<SocketRelay> {
  return startRelay({ path: socketPath }, target)
}

/** The same with a listener that another process opened and handed over. */
export async function startHandedRelay(
  listener: net.Server,
  target: () => net.NetConnectOpts | undefined,
): Promise<SocketRelay> {
  return startRelay(listener, target)
}

async function startRelay(
  listen: net.ListenOptions | net.Server,
  target: () => net.NetConnectOpts | undefined,
): Promise<{ readonly server: net.Server; readonly close: () => Promise<void> }> {
  const open = new Set<net.Socket>()
  const server = net.createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    const where = target()
    if (where === undefined) {
      client.destroy()
      return
    }
    const gateway = net.connect({ ...where, allowHalfOpen: true })
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
    server.listen(listen, () => {
      server.off('error', reject).on('error', () => undefined)
      resolve()
    })
  })
  let closed: Promise<void> | undefined
  return {
    server,
    close: () =>
      (closed ??= new Promise((resolve) => {
        server.close(() => resolve())
        for (const socket of open) socket.destroy()
      })),
  }
}
