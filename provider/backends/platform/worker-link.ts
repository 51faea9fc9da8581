/** Byte streams to a worker at an address: one for each request, since the worker ends it with its reply, and not so many at a time that one sandbox takes all of the host's. */
import net from 'node:net'

const MAX_STREAMS = 128
const CONNECT_TIMEOUT_MS = 10_000

/** Opens one for each call; a call beyond the bound waits for another's end. `address` gives a literal; it may throw for a machine that has none. */
export function workerLink(address: () => string, port: number): () => Promise<net.Socket> {
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
      const socket = await connect(address(), port)
      socket.once('close', leave)
      return socket
    } catch (error) {
      leave()
      throw error
    }
  }
}

function connect(host: string, port: number): Promise<net.Socket> {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ host, port, noDelay: true })
    const fail = (error: Error): void => {
      clearTimeout(timer)
      socket.destroy()
      reject(error)
    }
    const timer = setTimeout(
      () => fail(Object.assign(new Error('no answer in time'), { code: 'ETIMEDOUT', syscall: 'connect' })),
      CONNECT_TIMEOUT_MS,
    )
    socket.once('error', fail).once('connect', () => {
      clearTimeout(timer)
      socket.off('error', fail)
      resolve(socket)
    })
  })
}
