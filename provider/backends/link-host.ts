/** The host's end of a sandbox that can only connect outwards: by a unix socket, or by TCP through a relay that shows a secret. */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import { chmod, rm } from 'node:fs/promises'
import net from 'node:net'
import { createControlPool, type ControlPool } from './control-pool.ts'

/** Listens for one sandbox. */
export interface LinkHost {
  readonly pool: ControlPool
  /** Of a TCP listener. */
  readonly port: number
  readonly close: () => Promise<void>
}

/** What a relay says first: the secret, and what the connection is for. */
export function helloOf(secret: string, purpose: 'control' | 'egress'): string {
  return `${secret} ${purpose}\n`
}

/** A secret for {@link helloOf}. */
export function createSecret(): string {
  return randomBytes(32).toString('hex')
}

const PATIENCE_MS = 15_000
const HELLO_MS = 5_000
const MAX_HELLO_BYTES = 128
/** Connections of one sandbox at a time, so that it can not take the host's descriptors. */
const MAX_CONNECTIONS = 1_024

/** Control connections alone: whoever can open the socket file is the sandbox. */
export async function listenUnixLink(path: string): Promise<LinkHost> {
  const pool = createControlPool(PATIENCE_MS)
  await rm(path, { force: true })
  const server = net.createServer({ allowHalfOpen: true }, pool.add)
  await listen(server, { path })
  // Whoever runs inside is somebody else; the folder above is the user's alone.
  await chmod(path, 0o666)
  return { pool, port: 0, close: () => close(server, pool) }
}

/** Control and egress; the latter is carried to the gateway's socket. `port` 0 takes a free one. */
export async function listenTcpLink(options: {
  readonly host: string
  readonly port: number
  readonly secret: string
  readonly gatewaySocket: string
}): Promise<LinkHost> {
  const { host, port, secret, gatewaySocket } = options
  const pool = createControlPool(PATIENCE_MS)
  const server = net.createServer({ allowHalfOpen: true }, (socket) => {
    readHello(socket, (line) => {
      if (isSame(line, helloOf(secret, 'control'))) pool.add(socket)
      else if (isSame(line, helloOf(secret, 'egress'))) carry(socket, gatewaySocket)
      else socket.destroy()
    })
  })
  await listen(server, { host, port })
  const address = server.address()
  return {
    pool,
    port: typeof address === 'object' && address !== null ? address.port : port,
    close: () => close(server, pool),
  }
}

/** Reads up to the first line end, byte by byte from the buffer, and leaves the rest where it is. */
function readHello(socket: net.Socket, onLine: (line: string) => void): void {
  let line = ''
  const timer = setTimeout(() => socket.destroy(), HELLO_MS)
  socket.on('error', () => undefined)
  socket.once('close', () => clearTimeout(timer))
  const read = (): void => {
    for (;;) {
      const byte = socket.read(1) as Buffer | null
      if (byte === null) return
      line += byte.toString('latin1')
      if (line.endsWith('\n')) {
        clearTimeout(timer)
        socket.off('readable', read)
        onLine(line)
        return
      }
      if (line.length >= MAX_HELLO_BYTES) return void socket.destroy()
    }
  }
  socket.on('readable', read)
}

function isSame(given: string, expected: string): boolean {
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest()
  return timingSafeEqual(digest(given), digest(expected))
}

function carry(from: net.Socket, gatewaySocket: string): void {
  joinSockets(from, net.connect({ path: gatewaySocket, allowHalfOpen: true }))
}

/** Carries bytes both ways, half-closes included, until both have ended. */
export function joinSockets(one: net.Socket, other: net.Socket): void {
  for (const [from, to] of [
    [one, other],
    [other, one],
  ] as const) {
    from.on('error', () => to.destroy())
    from.once('close', () => {
      // One that ended in order leaves the other to send what it still has.
      if (!from.readableEnded) to.destroy()
    })
    from.pipe(to)
  }
}

function listen(server: net.Server, where: net.ListenOptions): Promise<void> {
  server.maxConnections = MAX_CONNECTIONS
  const sockets = new Set<net.Socket>()
  open.set(server, sockets)
  server.on('connection', (socket) => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
  })
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(where, () => {
      server.off('error', reject).on('error', () => undefined)
      resolve()
    })
  })
}

const open = new WeakMap<net.Server, Set<net.Socket>>()

function close(server: net.Server, pool: ControlPool): Promise<void> {
  pool.close()
  for (const socket of open.get(server) ?? []) socket.destroy()
  return new Promise((resolve) => void server.close(() => resolve()))
}
