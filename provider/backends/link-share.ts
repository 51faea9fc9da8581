/**
 * One process holds the host's end of a sandbox's link; others of the same user go through it, and one of them takes over when it is gone.
 *
 * The socket lies in the sandbox's folder on the host, which the sandbox does not see.
 */
import { rm } from 'node:fs/promises'
import net from 'node:net'
import path from 'node:path'
import { joinSockets, type LinkHost } from './link-host.ts'

/** The host's end of a link, whoever holds it. */
export interface SharedLink {
  readonly connect: () => Promise<net.Socket>
  readonly close: () => Promise<void>
}

/** Lets others in. */
export async function shareLink(runtimeFolder: string, host: LinkHost): Promise<SharedLink> {
  const socketPath = pathOf(runtimeFolder)
  const sockets = new Set<net.Socket>()
  const server = net.createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) => {
    sockets.add(socket)
    socket.on('error', () => undefined).once('close', () => sockets.delete(socket))
    host.pool.take().then(
      (inner) => joinSockets(socket, inner),
      () => socket.destroy(),
    )
  })
  await rm(socketPath, { force: true })
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen({ path: socketPath }, () => {
      server.off('error', reject).on('error', () => undefined)
      resolve()
    })
  })
  let closing: Promise<void> | undefined
  const close = async (): Promise<void> => {
    const closed = new Promise<void>((resolve) => void server.close(() => resolve()))
    for (const socket of sockets) socket.destroy()
    await Promise.all([closed, host.close()])
  }
  return { connect: host.pool.take, close: () => (closing ??= close()) }
}

/** Goes through whoever holds the link. Nothing is opened before the first connection, and `takeOver` is called only when nobody holds it. */
export function reachLink(runtimeFolder: string, takeOver: () => Promise<LinkHost>): SharedLink {
  let own: Promise<SharedLink> | undefined
  return {
    connect: async () => {
      if (own === undefined) {
        const through = await connect(pathOf(runtimeFolder))
        if (through !== undefined) return through
        own ??= takeOver().then((host) => shareLink(runtimeFolder, host))
        own.catch(() => (own = undefined))
      }
      return (await own).connect()
    },
    close: async () => {
      await (await own?.catch(() => undefined))?.close()
    },
  }
}

/** Undefined when nobody listens. */
function connect(socketPath: string): Promise<net.Socket | undefined> {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ path: socketPath, allowHalfOpen: true })
    const fail = (error: NodeJS.ErrnoException): void =>
      error.code === 'ECONNREFUSED' || error.code === 'ENOENT' ? resolve(undefined) : reject(error)
    socket.once('error', fail)
    socket.once('connect', () => {
      socket.off('error', fail)
      resolve(socket)
    })
  })
}

/** Short, since a socket's path is. */
function pathOf(runtimeFolder: string): string {
  return path.join(runtimeFolder, 'link.sock')
}
