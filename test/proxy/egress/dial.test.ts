import fs from 'node:fs'
import net from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import { freePort } from '../../origins/free-port.ts'
import type { IpAddress, Permit } from '../../../policies/index.ts'
import { dial, interleaveFamilies, type Opener, openSocket, openWire } from '../../../proxy/egress/dial.ts'
import { Side } from '../../../proxy/relay/side.ts'
import type { Wire } from '../../../proxy/relay/wire.ts'
import { startBlackhole } from './blackhole.ts'
import { deferred } from './deferred.ts'
import { address, permit, unresolvedPermit } from './permits.ts'

const closing: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

/** Either way of opening must do the same; what differs comes after. */
const OPENERS: readonly (readonly [string, Opener<net.Socket | Wire>])[] = [
  ['a socket', openSocket],
  ['a wire', openWire],
]

describe.each(OPENERS)('a permit is dialled for %s', (_kind, opener) => {
  test('the address of the permit is the one connected to', async () => {
    const origin = await listen('127.0.0.1')
    const dialled = await open(permit(origin.port, '127.0.0.1'), opener)
    expect(dialled.address.text).toBe('127.0.0.1')
    expect(portOf(dialled.connection)).toBe(origin.port)
    expect(dialled.connectMs).toBeGreaterThan(0)
  })

  test('IPv6', async () => {
    const origin = await listen('::1')
    expect((await open(permit(origin.port, '::1'), opener)).address.text).toBe('::1')
  })

  test('an IPv4-mapped address is a literal too', async () => {
    const origin = await listen('127.0.0.1')
    expect((await open(permit(origin.port, '::ffff:127.0.0.1'), opener)).address.text).toBe('::ffff:127.0.0.1')
  })

  test('the next address is dialled when one refuses, at once', async () => {
    const origin = await listen('127.0.0.3')
    const dialled = await open(permit(origin.port, '127.0.0.1', '127.0.0.2', '127.0.0.3'), opener)
    expect(dialled.address.text).toBe('127.0.0.3')
    expect(dialled.connectMs).toBeLessThan(200)
  })

  test('an address that answers nothing costs 250 ms beside a good one, and leaves no descriptor', async () => {
    const hole = await startBlackhole('127.0.0.2')
    closing.push(hole.close)
    const origin = await listen('127.0.0.3', hole.port)
    const before = openDescriptors()
    const dialled = await open(permit(origin.port, '127.0.0.2', '127.0.0.3'), opener)
    expect(dialled.address.text).toBe('127.0.0.3')
    expect(dialled.connectMs).toBeGreaterThanOrEqual(240)
    expect(dialled.connectMs).toBeLessThan(2_000)
    dialled.connection.destroy()
    await eventually(() => openDescriptors() <= before)
  })

  test('the first address that answers is kept, and the next is left alone', async () => {
    const origin = await listen('127.0.0.2')
    const dialled = await open(permit(origin.port, '127.0.0.2', '127.0.0.3'), opener)
    expect(dialled.address.text).toBe('127.0.0.2')
  })
})

test('families take turns, IPv6 first, each in its own order', () => {
  const mixed = ['192.0.2.1', '192.0.2.2', '192.0.2.3', '2001:db8::1', '2001:db8::2'].map(address)
  expect(interleaveFamilies(mixed).map((one) => one.text)).toEqual([
    '2001:db8::1',
    '192.0.2.1',
    '2001:db8::2',
    '192.0.2.2',
    '192.0.2.3',
  ])
})

describe('a socket', () => {
  test('the socket keeps nothing of the attempt', async () => {
    const origin = await listen('127.0.0.1')
    const { connection: socket } = await open(permit(origin.port, '127.0.0.1'), openSocket)
    const attempts = Object.getOwnPropertySymbols(socket).filter(({ description }) => description === 'settle')
    expect(attempts.map((symbol) => (socket as unknown as Record<symbol, unknown>)[symbol])).toEqual([undefined])
  })

  test('it ends when the origin ends, and bytes that come early wait', async () => {
    const server = net.createServer((socket) => socket.end('hello'))
    const origin = await listenOn(server, '127.0.0.1')
    const { connection: socket } = await open(permit(origin.port, '127.0.0.1'), openSocket)
    const chunks: Buffer[] = []
    for await (const chunk of socket) chunks.push(chunk as Buffer)
    expect(Buffer.concat(chunks).toString()).toBe('hello')
    expect(socket.destroyed).toBe(true)
  })

  test('a fault between dialling and listening ends nothing else', async () => {
    const server = net.createServer()
    const accepted = new Promise<net.Socket>((resolve) => server.once('connection', resolve))
    const origin = await listenOn(server, '127.0.0.1')
    const { connection: socket } = await open(permit(origin.port, '127.0.0.1'), openSocket)
    ;(await accepted).resetAndDestroy()
    await new Promise((resolve) => socket.once('close', resolve))
    expect(socket.errored).toMatchObject({ code: 'ECONNRESET' })
  })
})

describe('a wire', () => {
  test('does not read before its side does, keeps what came early, and goes on when the origin has ended', async () => {
    const heard = deferred()
    let words = ''
    const server = net.createServer({ allowHalfOpen: true }, (socket) => {
      socket.end('first words')
      socket.on('data', (chunk) => {
        words += chunk.toString()
        if (words === 'last words') heard.resolve()
      })
    })
    const origin = await listenOn(server, '127.0.0.1')
    const { connection } = await open(permit(origin.port, '127.0.0.9', '127.0.0.1'), openWire)
    const side = new Side(connection)
    await new Promise((resolve) => setTimeout(resolve, 50))
    expect((await side.read())?.toString()).toBe('first words')
    expect(await side.read()).toBeNull()
    expect(side.closed).toBe(false)
    side.write(Buffer.from('last '))
    side.end(Buffer.from('words'))
    await heard.promise
    await expect.poll(() => side.closed).toBe(true)
  })

  test.each(['localhost', '127.1', '0x7f000001', '127.0.0.1.', '127.0.0.1%lo', '', '::1 '])(
    'what is no literal (`%s`) is not dialled, and asks no DNS',
    (text) => {
      for (const family of [4, 6] as const)
        expect(() =>
          openWire(
            Object.create(address('127.0.0.1') as object, {
              text: { value: text },
              family: { value: family },
            }) as IpAddress,
            80,
            () => undefined,
          ),
        ).toThrow('must be a literal')
    },
  )
})

describe.each(OPENERS)('nothing can be connected, for %s', (_kind, opener) => {
  test.each<[string, string[], string]>([
    ['nobody listens', ['127.0.0.1'], 'connect_refused'],
    ['nobody listens on any of them', ['127.0.0.1', '::1', '127.0.0.2'], 'connect_refused'],
    ['there is no way there', ['224.0.0.1'], 'connect_unreachable'],
    ['one refuses and there is no way to the other', ['224.0.0.1', '127.0.0.1'], 'connect_refused'],
  ])('%s', async (_sentence, addresses, reason) => {
    const port = await freePort()
    expect(await dial(permit(port, ...addresses), opener, { timeoutMs: 5_000 })).toMatchObject({ ok: false, reason })
  })

  test('nobody answers', async () => {
    const hole = await startBlackhole('127.0.0.2')
    closing.push(hole.close)
    const before = openDescriptors()
    const result = await dial(permit(hole.port, '127.0.0.2'), opener, { timeoutMs: 300 })
    expect(result).toMatchObject({ ok: false, reason: 'connect_timeout' })
    expect(result.connectMs).toBeGreaterThanOrEqual(290)
    expect(result.connectMs).toBeLessThan(2_000)
    await eventually(() => openDescriptors() <= before)
  })

  test('of sixty silent addresses at most ten are tried', async () => {
    const port = await freePort()
    let tried = 0
    const counting: typeof opener = (...attempt) => {
      tried++
      return opener(...attempt)
    }
    const silent = Array.from({ length: 60 }, (_, place) => `127.0.1.${place}`)
    const result = await dial(permit(port, ...silent), counting, { timeoutMs: 5_000 })
    expect(result).toMatchObject({ ok: false, reason: 'connect_refused' })
    expect(tried).toBe(10)
  })
})

describe.each(OPENERS)('giving up, for %s', (_kind, opener) => {
  test('an abort rejects with its reason and closes every attempt', async () => {
    const hole = await startBlackhole('127.0.0.2')
    closing.push(hole.close)
    const before = openDescriptors()
    const abort = new AbortController()
    const pending = dial(permit(hole.port, '127.0.0.2'), opener, { timeoutMs: 10_000, signal: abort.signal })
    abort.abort(new Error('the client is gone'))
    await expect(pending).rejects.toThrow('the client is gone')
    await eventually(() => openDescriptors() <= before)
  })

  test('an abort before dials nothing', async () => {
    const origin = await listen('127.0.0.1')
    const pending = dial(permit(origin.port, '127.0.0.1'), opener, {
      timeoutMs: 1_000,
      signal: AbortSignal.abort(new Error('gone')),
    })
    await expect(pending).rejects.toThrow('gone')
    expect(origin.connections()).toBe(0)
  })

  test('an abort after the connection is open leaves it open', async () => {
    const origin = await listen('127.0.0.1')
    const abort = new AbortController()
    const dialled = await dial(permit(origin.port, '127.0.0.1'), opener, { timeoutMs: 1_000, signal: abort.signal })
    abort.abort()
    expect(dialled.ok && dialled.connection.destroyed).toBe(false)
    if (dialled.ok) dialled.connection.destroy()
  })
})

describe('what is no permit', () => {
  test('an object that looks like one is refused when it runs, and does not typecheck', async () => {
    const forged = { destination: permit(80, '127.0.0.1').destination, addresses: [address('127.0.0.1')] }
    // @ts-expect-error a permit can't be forged
    // eslint-disable-next-line @typescript-eslint/no-unsafe-class-instance-assignment -- what must not compile is the point
    await expect(dial(forged, openSocket, { timeoutMs: 100 })).rejects.toThrow(TypeError)
    await expect(
      dial(Object.create(permit(80, '127.0.0.1')) as Permit, openSocket, { timeoutMs: 100 }),
    ).rejects.toThrow(TypeError)
  })

  test('a permit without addresses is for an upstream proxy alone', async () => {
    await expect(dial(unresolvedPermit('origin.example.test:80'), openSocket, { timeoutMs: 100 })).rejects.toThrow(
      TypeError,
    )
  })
})

test.each(OPENERS)('a thousand connections for %s leave no descriptor behind', async (_kind, opener) => {
  const origin = await listen('127.0.0.1')
  const before = openDescriptors()
  for (let batch = 0; batch < 20; batch++) {
    const all = await Promise.all(
      Array.from({ length: 50 }, () =>
        dial(permit(origin.port, '127.0.0.4', '127.0.0.1'), opener, { timeoutMs: 5_000 }),
      ),
    )
    for (const one of all) {
      if (!one.ok) throw new Error(one.reason)
      one.connection.destroy()
    }
  }
  await eventually(() => openDescriptors() <= before)
})

async function open<C extends net.Socket | Wire>(one: Permit, opener: Opener<C>) {
  const dialled = await dial(one, opener, { timeoutMs: 5_000 })
  if (!dialled.ok) throw new Error(dialled.reason)
  closing.push(() => void dialled.connection.destroy())
  return dialled
}

function portOf(connection: net.Socket | Wire): number | undefined {
  return 'peer' in connection ? connection.peer.port : connection.remotePort
}

function listen(host: string, port = 0) {
  return listenOn(
    net.createServer((socket) => socket.on('error', () => undefined).resume()),
    host,
    port,
  )
}

async function listenOn(server: net.Server, host: string, port = 0) {
  const sockets = new Set<net.Socket>()
  let connections = 0
  server.on('connection', (socket) => {
    connections++
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
  })
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, host, resolve)
  })
  closing.push(async () => {
    for (const socket of sockets) socket.destroy()
    await new Promise((resolve) => server.close(resolve))
  })
  return { port: (server.address() as net.AddressInfo).port, connections: () => connections }
}

/** A port on which nobody listens on any loopback address: it was bound a moment ago. */
function openDescriptors(): number {
  return fs.readdirSync('/proc/self/fd').length
}

async function eventually(holds: () => boolean): Promise<void> {
  for (let turn = 0; turn < 2_000 && !holds(); turn++) await new Promise((resolve) => setImmediate(resolve))
  expect(holds()).toBe(true)
}
