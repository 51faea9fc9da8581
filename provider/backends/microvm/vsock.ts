/** The host's side of a virtio-vsock device that is a unix socket, as Firecracker and vhost-device-vsock have it. */
import type net from 'node:net'
import { SandboxError } from '../../sandbox-error.ts'
import { connectControl } from '../control-socket.ts'

/** `OK 1073741824\n`, with any number. */
const MAX_ANSWER_BYTES = 32
const ANSWER_TIMEOUT_MS = 10_000

/**
 * Connects to `port` of the guest. A guest where nobody listens is a connection that closes without a word.
 *
 * @throws SandboxError `SALLYPORT_SANDBOX_CONNECTION_LOST`
 * @see https://github.com/firecracker-microvm/firecracker/blob/main/docs/vsock.md
 */
export async function connectVsock(socketPath: string, port: number): Promise<net.Socket> {
  const socket = await connectControl(socketPath)
  socket.write(`CONNECT ${port}\n`)
  await answered(socket)
  return socket
}

/** Reads up to the first line end, byte by byte from the buffer, and leaves the rest where it is. */
function answered(socket: net.Socket): Promise<void> {
  return new Promise((resolve, reject) => {
    let line = ''
    const settle = (fault?: string): void => {
      clearTimeout(timer)
      socket.off('readable', read).off('close', closed).off('error', closed)
      if (fault === undefined) {
        resolve()
        return
      }
      socket.on('error', () => undefined).destroy()
      reject(new SandboxError('SALLYPORT_SANDBOX_CONNECTION_LOST', `the sandbox does not answer: ${fault}`))
    }
    const closed = (): void => settle('nobody listens in the microVM')
    const timer = setTimeout(() => settle('its vsock device is silent'), ANSWER_TIMEOUT_MS)
    const read = (): void => {
      for (;;) {
        const byte = socket.read(1) as Buffer | null
        if (byte === null) {
          if (socket.readableEnded) closed()
          return
        }
        line += byte.toString('latin1')
        if (line.endsWith('\n')) {
          settle(/^OK \d+\n$/.test(line) ? undefined : 'its vsock device says something else than `OK`')
          return
        }
        if (line.length >= MAX_ANSWER_BYTES) {
          settle('its vsock device says too much')
          return
        }
      }
    }
    socket.on('readable', read).on('close', closed).on('error', closed).on('end', closed)
  })
}
