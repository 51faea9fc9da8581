/** One connection to a syslog receiver that the operator named: opened when there is something to write, opened again after it broke. */
import net from 'node:net'
import { readFileSync } from 'node:fs'
import tls from 'node:tls'
import { DeliveryFault } from './sink.ts'

/** Where the receiver is. */
export interface SyslogAddress {
  readonly host: string
  readonly port: number
  /** Over TLS, with the name of the host checked; `caFile` (PEM) instead of the authorities of the system. */
  readonly tls: { readonly caFile?: string | undefined } | undefined
  /** For the connection to be open, and for each write to be taken by the system. */
  readonly timeoutMs: number
}

/** Whatever the receiver sends is dropped: the protocol has no answers. */
export class SyslogConnection {
  readonly #address: SyslogAddress
  #socket: net.Socket | undefined
  /** Rejects when the socket closes. */
  #closed: Promise<never> = Promise.race([])
  #hasBroken = false

  constructor(address: SyslogAddress) {
    this.#address = address
  }

  /** Whether the connection broke since the last call. */
  hasBroken(): boolean {
    const { destroyed = false, readyState } = this.#socket ?? {}
    const broken = this.#hasBroken || destroyed || (this.#socket !== undefined && readyState !== 'open')
    this.#hasBroken = false
    return broken
  }

  /**
   * Resolves once the system has taken all of it.
   * @throws DeliveryFault
   */
  async write(text: string, signal: AbortSignal): Promise<void> {
    const socket = this.#socket?.readyState === 'open' ? this.#socket : await this.#open(signal)
    const written = new Promise((resolve, reject) => {
      socket.write(text, 'latin1', (error) => (error ? reject(error) : resolve(undefined)))
    })
    await this.#within(socket, signal, Promise.race([written, this.#closed]))
  }

  close(): void {
    this.#socket?.destroy()
    this.#socket = undefined
  }

  async #open(signal: AbortSignal): Promise<net.Socket> {
    this.#socket?.destroy()
    const { host, port, tls: secure } = this.#address
    const socket =
      secure === undefined
        ? net.connect({ host, port })
        : tls.connect({ host, port, servername: net.isIP(host) === 0 ? host : '', ca: caOf(secure.caFile) })
    socket.setKeepAlive(true, 10_000)
    socket.resume()
    const closed = new Promise<never>((_resolve, reject) => {
      socket.on('error', reject)
      socket.once('close', () => reject(new Error('closed')))
    })
    closed.catch(() => {
      if (this.#socket === socket) this.#hasBroken = true
    })
    const opened = new Promise((resolve) => socket.once(secure === undefined ? 'connect' : 'secureConnect', resolve))
    await this.#within(socket, signal, Promise.race([opened, closed]))
    this.#socket = socket
    this.#closed = closed
    return socket
  }

  /** Whatever fails ends the connection: half a message in it would make the receiver read all that follows wrongly. */
  async #within(socket: net.Socket, signal: AbortSignal, work: Promise<unknown>): Promise<void> {
    const { timeoutMs } = this.#address
    const timeout = AbortSignal.timeout(timeoutMs)
    const end = (): void => void socket.destroy()
    const either = AbortSignal.any([signal, timeout])
    either.addEventListener('abort', end, { once: true })
    try {
      if (either.aborted) end()
      await work
    } catch (error) {
      socket.destroy()
      if (timeout.aborted) throw new DeliveryFault(`the receiver took nothing within ${timeoutMs} ms`)
      const code = error instanceof Error && 'code' in error ? ` (${String(error.code)})` : ''
      throw new DeliveryFault(`the connection failed${code}`)
    } finally {
      either.removeEventListener('abort', end)
    }
  }
}

function caOf(path: string | undefined): Buffer | undefined {
  if (path === undefined) return undefined
  try {
    return readFileSync(path)
  } catch {
    throw new DeliveryFault('the file of its certificate authority can not be read')
  }
}
