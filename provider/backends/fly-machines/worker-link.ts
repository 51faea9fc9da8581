/**
 * Byte streams to the worker of a machine, over its private network: not so many at a time that one sandbox takes all of the host's. They are not encrypted
 * once more: what carries them between machines, and from a host elsewhere, is WireGuard, with both ends in one tenant's network.
 */
import net from 'node:net'
import { WORKER_PORT } from './machine-request.ts'

const MAX_STREAMS = 128
const CONNECT_TIMEOUT_MS = 10_000

/** Opens one for each call; a call beyond the bound waits for another's end. `address` may throw for a machine that has none. */
export function workerLink(address: () => string): () => Promise<net.Socket> {
  let open = 0
  const waiting: (() => void)[] = []
  const leave = (): void => {
    open--
    waiting.shift()?.()
  }
  return async () => {
    while (open >= MAX_STREAMS) await new Promise<void>((resolve) => waiting.push(resolve))
    open++
    try {
      const socket = await connect(address())
      socket.once('close', leave)
      return socket
    } catch (error) {
      leave()
      throw error
    }
  }
}

function connect(host: string): Promise<net.Socket> {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ host, port: WORKER_PORT, noDelay: true, timeout: CONNECT_TIMEOUT_MS })
    const fail = (error: Error): void => {
      socket.destroy()
      reject(error)
    }
    socket.once('error', fail)
    socket.once('timeout', () => fail(Object.assign(new Error('no answer in time'), { code: 'ETIMEDOUT', syscall: 'connect' }))) // prettier-ignore
    socket.once('connect', () => {
      socket.off('error', fail).removeAllListeners('timeout').setTimeout(0)
      resolve(socket)
    })
  })
}
