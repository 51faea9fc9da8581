/** How tunnels end, what is counted, and that every way out gives the borrowed buffers back once. */
import crypto from 'node:crypto'
import { once } from 'node:events'
import net from 'node:net'
import v8 from 'node:v8'
import vm from 'node:vm'
import { afterEach, describe, expect, test } from 'vitest'
import { HOT_LIMIT, hotBuffers } from '../../../proxy/relay/buffers.ts'
import { listenTcp } from '../../../proxy/relay/listen.ts'
import { relay, type RelayResult } from '../../../proxy/relay/relay.ts'
import { Side } from '../../../proxy/relay/side.ts'
import { SocketWire } from '../../../proxy/relay/socket-wire.ts'
import { ManualClock } from '../tunnels/manual-clock.ts'
import {
  connectSide,
  type Gateway,
  type GatewayOptions,
  occupyHotBuffers,
  readAll,
  readBytes,
  type Running,
  sendRandom,
  startGateway,
  startOrigin,
  type Transport,
  turnsOfTheLoop,
  until,
} from './harness.ts'

const MIB = 1024 * 1024
const closers: (() => Promise<void> | void)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
  expect(hotBuffers).toMatchObject({ lent: 0, strays: 0 })
})

interface Opened {
  readonly client: net.Socket
  readonly origin: net.Socket
  readonly running: Running
  readonly gateway: Gateway
}

/** One tunnel with both its outer ends in hand. */
async function open(transport: Transport = 'tcp', options: Partial<GatewayOptions> = {}): Promise<Opened> {
  const { promise, resolve } = Promise.withResolvers<net.Socket>()
  const origin = await startOrigin(resolve)
  closers.push(() => origin.close())
  const gateway = await startGateway(transport, { originPort: origin.port, ...options })
  closers.push(() => gateway.close())
  const client = gateway.connect()
  closers.push(() => void client.destroy())
  const running = await gateway.next()
  return { client, origin: await promise, running, gateway }
}

/** Blocks the tunnel downwards: the client does not read, and the relay holds what the kernel would not take. */
async function blockDown({ origin, running }: Opened): Promise<void> {
  const chunk = Buffer.alloc(MIB, 1)
  const fill = (): void => {
    while (!origin.destroyed && origin.write(chunk));
  }
  origin.on('drain', fill)
  fill()
  for (let before = -1, still = 0; still < 20;) {
    await turnsOfTheLoop(3)
    still = running.relay.bytesIn === before ? still + 1 : 0
    before = running.relay.bytesIn
  }
  origin.off('drain', fill)
}

/** Resolves with the error's code, or `clean` when the stream ended properly. */
function howItEnds(socket: net.Socket): Promise<string> {
  return new Promise((resolve) => {
    socket.once('end', () => resolve('clean'))
    socket.once('error', (fault: NodeJS.ErrnoException) => resolve(fault.code ?? 'UNKNOWN'))
    socket.once('close', () => resolve('closed'))
    socket.resume()
  })
}

describe('the end of a tunnel', () => {
  test.each(['tcp', 'unix', 'tls'] as const)(
    'over %s each end is forwarded on its own, and the other direction goes on',
    async (transport) => {
      const { client, origin, running } = await open(transport)
      client.end('question')
      expect((await readBytes(origin)).toString()).toBe('question')
      origin.write('a long ')
      origin.end('answer')
      expect((await readBytes(client)).toString()).toBe('a long answer')
      expect(await running.closed).toEqual({ closeReason: 'client_closed', bytesIn: 13, bytesOut: 8 })
    },
  )

  test('an origin that ends first is the reason', async () => {
    const { client, origin, running } = await open()
    origin.end('bye')
    client.resume()
    await once(client, 'end')
    client.end('and you')
    origin.resume()
    expect(await running.closed).toEqual({ closeReason: 'upstream_closed', bytesIn: 3, bytesOut: 7 })
  })

  test('an end behind a blocked direction comes after every byte, though the other direction has long ended', async () => {
    const opened = await open()
    const { client, origin, running } = opened
    client.end()
    origin.resume()
    await once(origin, 'end')
    await blockDown(opened)
    origin.end()
    const { length, hash } = await readAllOf(client)
    expect(length).toBe(origin.bytesWritten)
    expect(hash).toBe(sha256(Buffer.alloc(length, 1)))
    expect(await running.closed).toMatchObject({ closeReason: 'client_closed', bytesIn: length })
  })

  test('an origin that breaks off is never a clean end for the client', async () => {
    const { client, origin, running } = await open()
    origin.write('half of')
    await once(client, 'data')
    const end = howItEnds(client)
    origin.resetAndDestroy()
    expect(await end).toBe('ECONNRESET')
    expect(await running.closed).toMatchObject({ closeReason: 'upstream_closed', bytesIn: 7 })
  })

  test('a client that breaks off is never a clean end for the origin', async () => {
    const { client, origin, running } = await open()
    client.write('half of')
    await once(origin, 'data')
    const end = howItEnds(origin)
    client.resetAndDestroy()
    expect(await end).toBe('ECONNRESET')
    expect(await running.closed).toMatchObject({ closeReason: 'client_closed', bytesOut: 7 })
  })

  test('a client that had already left when the relay starts', async () => {
    const { promise, resolve } = Promise.withResolvers<Side>()
    const front = await listenTcp({ host: '127.0.0.1', port: 0, onSide: resolve })
    const origin = await startOrigin((socket) => socket.resume())
    closers.push(
      () => front.close(),
      () => origin.close(),
    )
    const socket = net.connect({ port: front.port, host: '127.0.0.1' })
    const client = await promise
    socket.write('x')
    await client.read()
    socket.resetAndDestroy()
    await client.read()
    await until(() => client.closed)
    const side = await connectSide(origin.port)
    const result = await new Promise<RelayResult>((onClose) => {
      relay(client, side, { clock: new ManualClock(), early: Buffer.from('early'), onClose })
    })
    expect(result.closeReason).toBe('client_closed')
    expect(side.closed).toBe(true)
  })
})

describe('cut', () => {
  test.each(['tcp', 'unix', 'tls'] as const)(
    'over %s ends both ends at once; the first reason stands',
    async (transport) => {
      const { client, origin, running, gateway } = await open(transport)
      client.write('x')
      await once(origin, 'data')
      const ends = Promise.all([howItEnds(client), howItEnds(origin)])
      running.relay.cut('token_expired')
      running.relay.cut('idle_timeout')
      await ends
      expect(await running.closed).toEqual({ closeReason: 'token_expired', bytesIn: 0, bytesOut: 1 })
      running.relay.cut('idle_timeout')
      await turnsOfTheLoop(3)
      expect(gateway.results).toHaveLength(1)
    },
  )

  test('is the reason also when one end had gone before', async () => {
    const { client, origin, running } = await open()
    client.end('x')
    origin.resume()
    await once(origin, 'end')
    running.relay.cut('drain_deadline')
    expect(await running.closed).toMatchObject({ closeReason: 'drain_deadline' })
  })
})

describe('with a big buffer in a pending write, each way to end gives it back once', () => {
  const ways: Record<string, (opened: Opened) => void> = {
    'a cut': ({ running }) => running.relay.cut('policy_changed'),
    'the client breaks off': ({ client }) => client.resetAndDestroy(),
    'the origin breaks off, which shows when the client reads on': ({ client, origin }) => {
      origin.resetAndDestroy()
      // Node 22 sees a reset behind unread bytes as an end.
      client.on('end', () => client.end())
      client.resume()
    },
    'both break off': ({ client, origin }) => {
      client.resetAndDestroy()
      origin.resetAndDestroy()
    },
    'the client side is destroyed': ({ running }) => running.client.destroy(),
    'the upstream side is destroyed': ({ running }) => running.upstream.destroy(),
    'the client goes while the origin goes on sending': ({ client, origin }) => {
      client.destroy()
      origin.on('drain', () => origin.write(Buffer.alloc(MIB)))
      origin.write(Buffer.alloc(MIB))
    },
  }
  test.each(Object.entries(ways))('%s', async (_way, end) => {
    const opened = await open()
    await blockDown(opened)
    expect(hotBuffers.lent).toBe(1)
    end(opened)
    await opened.running.closed
    expect(hotBuffers).toMatchObject({ lent: 0, strays: 0 })
  })

  test('a cut of many tunnels in the middle of reading, hot and cold', async () => {
    const opened = await Promise.all(Array.from({ length: 12 }, () => open()))
    for (const { client, origin } of opened) {
      void sendRandom(origin, 8 * MIB).catch(() => undefined)
      client.resume()
    }
    await until(() => hotBuffers.lent > 3)
    for (const { running } of opened) running.relay.cut('token_revoked')
    const results = await Promise.all(opened.map(({ running }) => running.closed))
    expect(new Set(results.map(({ closeReason }) => closeReason))).toEqual(new Set(['token_revoked']))
    expect(hotBuffers).toMatchObject({ lent: 0, strays: 0 })
  })
})

test('a busy tunnel that has fallen idle gives up its buffer to one that needs it, and reads on rightly', async () => {
  const idle = await open()
  const got: Buffer[] = []
  idle.client.on('data', (chunk: Buffer) => got.push(chunk))
  // Exactly what fills the reads: nothing shorter comes to cool it down. Tried until the reads fall that way.
  const sent: Buffer[] = []
  for (let tries = 0; hotBuffers.lent === 0 && tries < 200; tries++) {
    const chunk = Buffer.alloc((64 + 512) * 1024, tries)
    sent.push(chunk)
    idle.origin.write(chunk)
    await until(() => idle.running.relay.bytesIn === sent.length * chunk.length)
  }
  expect(hotBuffers.lent).toBe(1)
  const release = occupyHotBuffers(0, HOT_LIMIT)
  closers.push(release)
  expect(hotBuffers.lent).toBe(HOT_LIMIT)
  const holder = { surrender: () => false }
  // Once to ask whether it was idle, once more, later, to get it.
  let won: Buffer | undefined
  await until(() => (won = hotBuffers.borrow(holder)) !== undefined)
  won?.fill(0xee)
  const last = Buffer.alloc(300_000, 7)
  sent.push(last)
  idle.origin.end(last)
  await once(idle.client, 'end')
  expect(Buffer.concat(got).equals(Buffer.concat(sent))).toBe(true)
  expect(won?.every((byte) => byte === 0xee)).toBe(true)
  if (won) hotBuffers.giveBack(won, holder)
  release()
  idle.client.end()
  await idle.running.closed
})

test('activity is dated when it is looked at, on the given clock', async () => {
  const clock = new ManualClock()
  const { client, origin, running } = await open('tcp', { relay: { clock } })
  const startedMs = clock.monotonicMs()
  clock.advance(5000)
  expect(running.relay.lastActivityMs).toBe(startedMs)
  client.write('x')
  await once(origin, 'data')
  clock.advance(100)
  expect(running.relay.lastActivityMs).toBe(startedMs + 5100)
  clock.advance(60_000)
  expect(running.relay.lastActivityMs).toBe(startedMs + 5100)
})

test('early bytes of both ends go first, put-back ones next, and all are counted', async () => {
  const { promise, resolve } = Promise.withResolvers<Side>()
  const front = await listenTcp({ host: '127.0.0.1', port: 0, onSide: resolve })
  closers.push(() => front.close())
  const originSocket = Promise.withResolvers<net.Socket>()
  const origin = await startOrigin(originSocket.resolve)
  closers.push(() => origin.close())
  const socket = net.connect({ port: front.port, host: '127.0.0.1', allowHalfOpen: true })
  const client = await promise
  const out = net.connect({ port: origin.port, host: '127.0.0.1', allowHalfOpen: true })
  await once(out, 'connect')
  const upstream = new Side(new SocketWire(out))
  client.unread(Buffer.from('unread '))
  upstream.unread(Buffer.from('reply '))
  const closed = new Promise<RelayResult>((onClose) => {
    relay(client, upstream, {
      clock: new ManualClock(),
      early: Buffer.from('early '),
      earlyDown: Buffer.from('first '),
      onClose,
    })
  })
  const far = await originSocket.promise
  socket.end('late')
  far.end('last')
  const [up, down] = await Promise.all([text(far), text(socket)])
  expect(up).toBe('early unread late')
  expect(down).toBe('first reply last')
  expect(await closed).toMatchObject({ bytesOut: 17, bytesIn: 16 })
})

async function readAllOf(socket: net.Socket): Promise<{ length: number; hash: string }> {
  let length = 0
  socket.on('data', (chunk: Buffer) => (length += chunk.length))
  const hash = await readAll(socket)
  return { length, hash }
}

function sha256(bytes: Buffer): string {
  return crypto.createHash('sha256').update(bytes).digest('hex')
}

async function text(socket: net.Socket): Promise<string> {
  return (await readBytes(socket)).toString()
}

test('closed tunnels leave nothing behind', async () => {
  v8.setFlagsFromString('--expose-gc')
  const collect = vm.runInNewContext('gc') as () => void
  const origin = await startOrigin((socket) => socket.pipe(socket))
  closers.push(() => origin.close())
  const gateway = await startGateway('tcp', { originPort: origin.port })
  closers.push(() => gateway.close())
  const sides: WeakRef<Side>[] = []
  const batch = async (count: number): Promise<void> => {
    for (let done = 0; done < count; done += 50) {
      const clients = Array.from({ length: 50 }, () => gateway.connect())
      for (const client of clients) client.end(Buffer.alloc(1000))
      const runnings = await Promise.all(clients.map(() => gateway.next()))
      for (const { client, upstream } of runnings) sides.push(new WeakRef(client), new WeakRef(upstream))
      await Promise.all(clients.map((client) => howItEnds(client)))
      await until(() => runnings.every(({ client, upstream }) => client.closed && upstream.closed))
    }
    await turnsOfTheLoop(10)
  }
  await batch(200)
  await turnsOfTheLoop(50)
  collect()
  await turnsOfTheLoop(5)
  collect()
  // A few may still be in somebody's last event; a leak keeps all of them.
  const alive = sides.filter((side) => side.deref() !== undefined).length
  expect(sides).toHaveLength(400)
  expect(alive).toBeLessThan(100)
})
