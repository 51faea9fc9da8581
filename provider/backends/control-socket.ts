/**
 * Opens a worker's unix socket from the host, in a folder that the sandbox can write to.
 *
 * What is at the path may have been put there by whoever is inside. A symlink to another program's socket would have the host send its requests there,
 * so links are not followed: the file is opened by itself, looked at, and connected to by its descriptor.
 */
import { closeSync, constants, fstatSync, openSync } from 'node:fs'
import { chmod, open } from 'node:fs/promises'
import net from 'node:net'
import { SandboxError } from '../sandbox-error.ts'

/** `O_PATH` of Linux: names a file without opening what is behind it. Node does not list it. */
const O_PATH = 0o10000000

/**
 * Connects to the socket at `path`, of any length. Linux; elsewhere plainly by path.
 *
 * @throws SandboxError `SALLYPORT_SANDBOX_CONNECTION_LOST` when there is none, or something else in its place
 */
export async function connectControl(path: string): Promise<net.Socket> {
  if (process.platform !== 'linux') return connect(path)
  // Each request does this, and none of it waits for anything: three trips to the thread pool would cost more.
  const file = openPlace(path)
  try {
    if (!fstatSync(file).isSocket()) throw lost('the sandbox put something else in the place of its control socket')
    return await connect(`/proc/self/fd/${file}`)
  } finally {
    closeSync(file)
  }
}

function openPlace(path: string): number {
  try {
    return openSync(path, O_PATH | constants.O_NOFOLLOW)
  } catch (cause) {
    throw lost('the sandbox does not answer: its control socket is gone', cause)
  }
}

/**
 * Lets every user connect to a socket of this process, in a folder that somebody else may write to: what has taken its place by then keeps its mode.
 *
 * @throws Error when something else is there
 */
export async function openToAll(path: string): Promise<void> {
  if (process.platform !== 'linux') return chmod(path, 0o666)
  const file = await open(path, O_PATH | constants.O_NOFOLLOW)
  try {
    const stats = await file.stat()
    if (!stats.isSocket() || stats.uid !== process.getuid?.())
      throw new Error('something else is in the place of a socket')
    await chmod(`/proc/self/fd/${file.fd}`, 0o666)
  } finally {
    await file.close()
  }
}

function connect(path: string): Promise<net.Socket> {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ path, allowHalfOpen: true })
    const fail = (cause: Error): void => reject(lost('the sandbox does not answer on its control socket', cause))
    socket.once('error', fail)
    socket.once('connect', () => {
      socket.off('error', fail)
      resolve(socket)
    })
  })
}

function lost(message: string, cause?: unknown): SandboxError {
  // Nothing has been asked of it yet.
  return new SandboxError('SALLYPORT_SANDBOX_CONNECTION_LOST', message, { cause, outcome: 'known' })
}
