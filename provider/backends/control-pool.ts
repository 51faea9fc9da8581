/** Connections that a sandbox keeps ready for its host, which takes one whenever it wants to ask the worker something. */
import type net from 'node:net'
import { SandboxError } from '../sandbox-error.ts'

/** Idle connections of one sandbox. */
export interface ControlPool {
  /** An idle connection has come in. */
  readonly add: (socket: net.Socket) => void
  /**
   * Takes one, and waits for one when there is none.
   *
   * @throws SandboxError `SALLYPORT_SANDBOX_CONNECTION_LOST` when none comes
   */
  readonly take: () => Promise<net.Socket>
  /** Resolves as soon as there is one. */
  readonly ready: Promise<undefined>
  readonly close: () => void
}

/** More than a well-behaved sandbox keeps; whoever is inside may open as many as it likes. */
const MAX_IDLE = 32
/** Callers that wait; each is a request of the host's own. */
const MAX_WAITING = 1024

/** An empty pool. `patienceMs`: how long to wait for a connection. */
export function createControlPool(patienceMs: number): ControlPool {
  const idle = new Map<net.Socket, () => void>()
  const waiting = new Set<(socket: net.Socket | undefined) => void>()
  const { promise: ready, resolve: becomeReady } = Promise.withResolvers<undefined>()
  let closed = false

  return {
    ready,
    add: (socket) => {
      socket.on('error', () => undefined)
      const [next] = waiting
      if (closed || (next === undefined && idle.size >= MAX_IDLE)) return void socket.destroy()
      becomeReady(undefined)
      if (next !== undefined) {
        next(socket)
        return
      }
      // Whoever speaks before it is asked, or hangs up, is of no use.
      const leave = (): void => {
        idle.delete(socket)
        socket.destroy()
      }
      idle.set(socket, leave)
      socket.on('readable', leave).once('close', leave)
    },
    take: async () => {
      for (const [socket, leave] of idle) {
        idle.delete(socket)
        socket.off('readable', leave).off('close', leave)
        if (socket.writable && socket.readable) return socket
      }
      if (closed || waiting.size >= MAX_WAITING) throw lost()
      return new Promise((resolve, reject) => {
        const settle = (socket: net.Socket | undefined): void => {
          clearTimeout(timer)
          waiting.delete(settle)
          if (socket === undefined) reject(lost())
          else resolve(socket)
        }
        const timer = setTimeout(() => settle(undefined), patienceMs)
        waiting.add(settle)
      })
    },
    close: () => {
      closed = true
      for (const leave of idle.values()) leave()
      for (const settle of waiting) settle(undefined)
    },
  }
}

function lost(): SandboxError {
  return new SandboxError(
    'SALLYPORT_SANDBOX_CONNECTION_LOST',
    'the sandbox does not answer: it has no connection open to its host',
  )
}
