/** Unix sockets that clients come in by. */
import fs from 'node:fs'
import net from 'node:net'
import { dirname } from 'node:path'
import { SallyportError } from '../../policies/error.ts'
import {
  acceptByHandle,
  closeServers,
  createPlainServer,
  type ListenCommon,
  listenFailed,
  type Listener,
  openServer,
} from './listener.ts'

/** A unix socket. */
export interface ListenUnixOptions extends ListenCommon {
  /** At most 103 bytes. A stale socket that nobody answers on is removed; anything else at that path is a fault. */
  readonly path: string
  /** Permission bits of the socket file. Default 0o600. */
  readonly mode?: number
}

/** What fits into `sockaddr_un` everywhere; a longer path would be cut off silently on some systems. */
const MAX_PATH_BYTES = 103

/**
 * Opens a unix socket. Its folder decides who may replace it: keep that to yourself.
 * @throws SallyportError `SALLYPORT_LISTEN_FAILED`, with one line that says why
 */
export async function listenUnix(options: ListenUnixOptions): Promise<Listener> {
  const { path } = options
  const where = `unix:${path}`
  if (path.includes('\0') || Buffer.byteLength(path) > MAX_PATH_BYTES) {
    throw new SallyportError(
      'SALLYPORT_LISTEN_FAILED',
      `can't listen on \`${where}\`: a socket's path has at most ${MAX_PATH_BYTES} bytes`,
    )
  }
  // libuv says "not permitted" for a folder that is not there.
  if (!fs.existsSync(dirname(path)))
    throw listenFailed(where, Object.assign(new Error('no such folder'), { code: 'ENOENT' }))
  await removeStale(path, where)
  const server = createPlainServer(options, 'unix')
  await openServer(server, where, { path }, options)
  acceptByHandle(server, options, 'unix')
  try {
    fs.chmodSync(path, options.mode ?? 0o600)
  } catch (error) {
    server.close()
    throw listenFailed(where, error as NodeJS.ErrnoException)
  }
  return { address: 'unix', port: 0, reload: () => undefined, close: () => closeServers([server]) }
}

/** Removes a socket that nobody answers on. @throws SallyportError `SALLYPORT_LISTEN_FAILED` for anything else that is there */
export async function removeStale(path: string, where: string): Promise<void> {
  const found = fs.lstatSync(path, { throwIfNoEntry: false })
  if (found === undefined) return
  if (!found.isSocket()) {
    throw new SallyportError(
      'SALLYPORT_LISTEN_FAILED',
      `can't listen on \`${where}\`: there is something else that is not a socket`,
    )
  }
  const answer = await knock(path)
  // Only a refusal says that nobody is there; whatever else went wrong is no reason to take the place.
  if (answer !== 'ECONNREFUSED')
    throw listenFailed(where, Object.assign(new Error('somebody is there'), { code: 'EADDRINUSE' }))
  fs.rmSync(path, { force: true })
}

/** Asks whether anybody listens: `answered`, or the code of the fault. */
function knock(path: string): Promise<string> {
  return new Promise((resolve) => {
    const socket = net.connect({ path })
    socket.once('connect', () => {
      socket.destroy()
      resolve('answered')
    })
    socket.once('error', (fault: NodeJS.ErrnoException) => resolve(fault.code ?? 'UNKNOWN'))
  })
}
