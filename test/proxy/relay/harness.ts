/** A relay between two real sockets, over every transport a client may come in by. */
import crypto from 'node:crypto'
import { once } from 'node:events'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import tls from 'node:tls'
import { openWire } from '../../../proxy/egress/dial.ts'
import { systemClock } from '../../../proxy/clock.ts'
import { hotBuffers } from '../../../proxy/relay/buffers.ts'
import { type Listener, listenTcp, listenUnix } from '../../../proxy/relay/listen.ts'
import { type Relay, relay, type RelayOptions, type RelayResult } from '../../../proxy/relay/relay.ts'
import { Side } from '../../../proxy/relay/side.ts'
import { createAuthority } from '../../origins/certificates.ts'
import { address } from '../egress/permits.ts'

export type Transport = 'tcp' | 'unix' | 'tls'

/** One tunnel of a {@link Gateway}. */
export interface Running {
  readonly relay: Relay
  readonly client: Side
  readonly upstream: Side
  readonly closed: Promise<RelayResult>
}

export interface Gateway {
  readonly transport: Transport
  connect(): net.Socket
  /** The next tunnel that is started. */
  next(): Promise<Running>
  readonly results: RelayResult[]
  close(): Promise<void>
}

export interface GatewayOptions {
  readonly originPort: number
  readonly originHost?: string
  /** The client sends a line first; what comes behind it in the same read is early data. */
  readonly readsLine?: boolean
  readonly relay?: Partial<RelayOptions>
}

let material: { readonly cert: string; readonly key: string; readonly ca: string } | undefined

/** One certificate for all tests of a file. */
export function tlsMaterial(): { readonly cert: string; readonly key: string; readonly ca: string } {
  if (material === undefined) {
    const authority = createAuthority()
    material = { ...authority.issue('localhost', { addresses: ['127.0.0.1'] }), ca: authority.cert }
  }
  return material
}

/** Every connection is relayed to the one origin. */
export async function startGateway(transport: Transport, options: GatewayOptions): Promise<Gateway> {
  const results: RelayResult[] = []
  const waiting: ((running: Running) => void)[] = []
  const started: Running[] = []
  const sides = new Set<Side>()
  const onSide = (client: Side): void => {
    sides.add(client)
    void serve(client)
  }
  const serve = async (client: Side): Promise<void> => {
    let early: Buffer | undefined
    if (options.readsLine) {
      const first = await client.read()
      if (first === null) {
        client.destroy()
        return
      }
      early = first.subarray(first.indexOf('\n') + 1)
      client.write(Buffer.from('ok\n'))
    }
    const side = await connectSide(options.originPort, options.originHost)
    sides.add(side)
    const { promise: closed, resolve } = Promise.withResolvers<RelayResult>()
    const running = relay(client, side, {
      clock: systemClock,
      ...(early && { early }),
      ...options.relay,
      onClose: (result) => {
        results.push(result)
        sides.delete(client)
        sides.delete(side)
        resolve(result)
      },
    })
    const tunnel = { relay: running, client, upstream: side, closed }
    const waiter = waiting.shift()
    if (waiter) waiter(tunnel)
    else started.push(tunnel)
  }
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'relay-'))
  const socketPath = path.join(folder, 'gw')
  const { ca, ...pem } = transport === 'tls' ? tlsMaterial() : { ca: '' }
  const listener: Listener =
    transport === 'unix'
      ? await listenUnix({ path: socketPath, onSide })
      : await listenTcp({ host: '127.0.0.1', port: 0, listeners: 2, onSide, ...('cert' in pem && { tls: pem }) })
  return {
    transport,
    results,
    connect: () => {
      const address = transport === 'unix' ? { path: socketPath } : { port: listener.port, host: '127.0.0.1' }
      return transport === 'tls' ? connectTls(listener.port, ca) : connectPlain(address)
    },
    next: () => {
      const tunnel = started.shift()
      return tunnel ? Promise.resolve(tunnel) : new Promise((resolve) => waiting.push(resolve))
    },
    close: async () => {
      await listener.close()
      const open = [...sides].filter((side) => !side.closed)
      await Promise.all(
        open.map((side) => {
          side.destroy()
          return new Promise<void>((resolve) => waitForClose(side, resolve))
        }),
      )
      fs.rmSync(folder, { recursive: true, force: true })
    },
  }
}

/** A side whose other end is a server of the test. */
export function connectSide(port: number, host = '127.0.0.1'): Promise<Side> {
  return new Promise((resolve, reject) => {
    openWire(address(host), port, (outcome) => {
      if (typeof outcome === 'string') reject(new Error(outcome))
      else resolve(new Side(outcome.connection))
    })
  })
}

/** A half-open client whose faults are seen as its closing. */
export function connectPlain(
  address: { readonly port: number; readonly host: string } | { readonly path: string },
): net.Socket {
  return net.connect({ ...address, allowHalfOpen: true }).on('error', () => undefined)
}

/** The same over TLS. */
export function connectTls(port: number, ca: string, more: tls.ConnectionOptions = {}): tls.TLSSocket {
  const options: tls.ConnectionOptions & { readonly allowHalfOpen: boolean } = {
    port,
    host: '127.0.0.1',
    ca,
    allowHalfOpen: true,
    ...more,
  }
  return tls.connect(options).on('error', () => undefined)
}

/** Resolves when the socket is closed, by whatever means; answers the peer's end. */
export function closing(socket: net.Socket): Promise<void> {
  return new Promise((resolve) => {
    socket.once('close', () => resolve())
    socket.once('end', () => socket.end())
    socket.resume()
  })
}

function waitForClose(side: Side, done: () => void): void {
  if (side.closed) setImmediate(done)
  else setImmediate(() => waitForClose(side, done))
}

export interface Origin {
  readonly port: number
  close(): Promise<void>
}

/** A server on loopback whose connections are half-open ones. */
export async function startOrigin(
  onConnection: (socket: net.Socket) => void,
  options: net.ServerOpts = {},
): Promise<Origin> {
  const sockets = new Set<net.Socket>()
  const server = net.createServer({ allowHalfOpen: true, ...options }, (socket) => {
    sockets.add(socket)
    socket.on('error', () => undefined)
    socket.on('close', () => sockets.delete(socket))
    onConnection(socket)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    port: (server.address() as net.AddressInfo).port,
    close: async () => {
      for (const socket of sockets) socket.destroy()
      server.close()
      await once(server, 'close')
    },
  }
}

/** So many turns of the event loop; a slow reader without a clock. */
export async function turnsOfTheLoop(count: number): Promise<void> {
  for (let turn = 0; turn < count; turn++) await new Promise((resolve) => setImmediate(resolve))
}

/** Waits, turn by turn, for something that other sockets' events bring about. */
export async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await turnsOfTheLoop(1)
}

/** Writes so many random bytes in odd chunks, then the end; gives their hash. Says at the 8th chunk that it is under way. */
export async function sendRandom(socket: net.Socket, bytes: number, largest = 200_000): Promise<string> {
  const hash = crypto.createHash('sha256')
  for (let left = bytes; left > 0;) {
    const chunk = crypto.randomBytes(Math.min(left, 1 + crypto.randomInt(largest)))
    hash.update(chunk)
    left -= chunk.length
    if (!socket.write(chunk)) await once(socket, 'drain')
  }
  socket.end()
  return hash.digest('hex')
}

/** Reads to the end, now and then stalling for some turns; gives the hash. By events: a loop over the socket would close it on some versions of Node. */
export function readAll(socket: net.Socket, stalls = 0): Promise<string> {
  const hash = crypto.createHash('sha256')
  return toTheEnd(socket, (chunk) => {
    hash.update(chunk)
    if (stalls === 0 || Math.random() > 0.1) return
    socket.pause()
    void turnsOfTheLoop(stalls).then(() => socket.resume())
  }).then(() => hash.digest('hex'))
}

/** Reads to the end; gives all of it. */
export async function readBytes(socket: net.Socket): Promise<Buffer> {
  const chunks: Buffer[] = []
  await toTheEnd(socket, (chunk) => chunks.push(chunk))
  return Buffer.concat(chunks)
}

function toTheEnd(socket: net.Socket, onChunk: (chunk: Buffer) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.on('data', onChunk)
    socket.once('end', () => resolve())
    socket.once('close', () => reject(new Error('closed before its end')))
  })
}

/** Lends all big buffers but a few, so that a test can have an empty pool; gives them back when told. */
export function occupyHotBuffers(leave: number, limit: number): () => void {
  const holder = { surrender: () => false }
  const held: Buffer[] = []
  while (hotBuffers.lent < limit - leave) {
    const buffer = hotBuffers.borrow(holder)
    if (buffer === undefined) break
    held.push(buffer)
  }
  return () => {
    for (const buffer of held.splice(0)) hotBuffers.giveBack(buffer, holder)
  }
}
