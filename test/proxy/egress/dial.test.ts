import fs from 'node:fs'
import net from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import type { Permit } from '../../../policies/index.ts'
import { dial, interleaveFamilies } from '../../../proxy/egress/dial.ts'
import { startBlackhole } from './blackhole.ts'
import { deferred } from './deferred.ts'
import { address, permit, unresolvedPermit } from './permits.ts'

const closing: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

describe('a permit is dialled', () => {
  test('the address of the permit is the one connected to', async () => {
    const origin = await listen('127.0.0.1')
    const dialled = await open(permit(origin.port, '127.0.0.1'))
    expect(dialled.address.text).toBe('127.0.0.1')
    expect(dialled.socket.remotePort).toBe(origin.port)
    expect(dialled.connectMs).toBeGreaterThan(0)
  })

  test('the socket keeps nothing of the attempt', async () => {
    const origin = await listen('127.0.0.1')
    const { socket } = await open(permit(origin.port, '127.0.0.1'))
    const attempts = Object.getOwnPropertySymbols(socket).filter(({ description }) => description === 'attempt')
    expect(attempts.map((symbol) => (socket as unknown as Record<symbol, unknown>)[symbol])).toEqual([undefined])
  })

  test('IPv6', async () => {
    const origin = await listen('::1')
    expect((await open(permit(origin.port, '::1'))).address.text).toBe('::1')
  })

  test('an IPv4-mapped address is a literal too', async () => {
    const origin = await listen('127.0.0.1')
    expect((await open(permit(origin.port, '::ffff:127.0.0.1'))).address.text).toBe('::ffff:127.0.0.1')
  })

  test('the next address is dialled when one refuses, at once', async () => {
    const origin = await listen('127.0.0.3')
    const dialled = await open(permit(origin.port, '127.0.0.1', '127.0.0.2', '127.0.0.3'))
    expect(dialled.address.text).toBe('127.0.0.3')
    expect(dialled.connectMs).toBeLessThan(200)
  })

  test('an address that answers nothing costs 250 ms beside a good one, and leaves no descriptor', async () => {
    const hole = await startBlackhole('127.0.0.2')
    closing.push(hole.close)
    const origin = await listen('127.0.0.3', hole.port)
    const before = openDescriptors()
    const dialled = await open(permit(origin.port, '127.0.0.2', '127.0.0.3'))
    expect(dialled.address.text).toBe('127.0.0.3')
    expect(dialled.connectMs).toBeGreaterThanOrEqual(240)
    expect(dialled.connectMs).toBeLessThan(2_000)
    await destroyed(dialled.socket)
    await eventually(() => openDescriptors() <= before)
  })

  test('the first address that answers is kept, and the next is left alone', async () => {
    const origin = await listen('127.0.0.2')
    const dialled = await open(permit(origin.port, '127.0.0.2', '127.0.0.3'))
    expect(dialled.address.text).toBe('127.0.0.2')
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

  test('without a side the socket ends when the origin ends, and bytes that come early wait', async () => {
    const server = net.createServer((socket) => socket.end('hello'))
    const origin = await listenOn(server, '127.0.0.1')
    const { socket } = await open(permit(origin.port, '127.0.0.1'))
    const chunks: Buffer[] = []
    for await (const chunk of socket) chunks.push(chunk as Buffer)
    expect(Buffer.concat(chunks).toString()).toBe('hello')
    expect(socket.destroyed).toBe(true)
  })

  test('a fault between dialling and listening ends nothing else', async () => {
    const server = net.createServer()
    const accepted = new Promise<net.Socket>((resolve) => server.once('connection', resolve))
    const origin = await listenOn(server, '127.0.0.1')
    const { socket } = await open(permit(origin.port, '127.0.0.1'))
    ;(await accepted).resetAndDestroy()
    await new Promise((resolve) => socket.once('close', resolve))
    expect(socket.errored).toMatchObject({ code: 'ECONNRESET' })
  })
})

describe('a side made before its socket', () => {
  test('gets the socket before the first byte, and reads through its own buffer', async () => {
    const server = net.createServer((socket) => socket.write('first words'))
    const origin = await listenOn(server, '127.0.0.1')
    const events: string[] = []
    const read = deferred()
    const made: { side: { attach: (socket: net.Socket) => void }; onread: net.OnReadOpts }[] = []
    const dialled = await dial(permit(origin.port, '127.0.0.9', '127.0.0.1'), {
      timeoutMs: 5_000,
      makeSide: () => {
        const place = made.length
        const one = {
          side: { attach: () => void events.push(`${place} attached`) },
          onread: {
            buffer: Buffer.alloc(1_024),
            callback: (length: number, buffer: Uint8Array) => {
              events.push(`${place} read ${Buffer.from(buffer.subarray(0, length)).toString()}`)
              read.resolve()
              return true
            },
          },
        }
        made.push(one)
        return one
      },
    })
    // In the turn of the connection itself, not later: by then bytes may have come.
    expect(events[0]).toBe('1 attached')
    await read.promise
    if (!dialled.ok) throw new Error(dialled.reason)
    closing.push(() => dialled.socket.destroy())
    expect(events).toEqual(['1 attached', '1 read first words'])
    expect(dialled.side).toBe(made[1]?.side)
    expect(dialled.socket.allowHalfOpen).toBe(true)
  })
})

describe('nothing can be connected', () => {
  test.each<[string, string[], string]>([
    ['nobody listens', ['127.0.0.1'], 'connect_refused'],
    ['nobody listens on any of them', ['127.0.0.1', '::1', '127.0.0.2'], 'connect_refused'],
    ['there is no way there', ['224.0.0.1'], 'connect_unreachable'],
    ['one refuses and there is no way to the other', ['224.0.0.1', '127.0.0.1'], 'connect_refused'],
  ])('%s', async (_sentence, addresses, reason) => {
    const port = await freePort()
    expect(await dial(permit(port, ...addresses), { timeoutMs: 5_000 })).toMatchObject({ ok: false, reason })
  })

  test('nobody answers', async () => {
    const hole = await startBlackhole('127.0.0.2')
    closing.push(hole.close)
    const before = openDescriptors()
    const result = await dial(permit(hole.port, '127.0.0.2'), { timeoutMs: 300 })
    expect(result).toMatchObject({ ok: false, reason: 'connect_timeout' })
    expect(result.connectMs).toBeGreaterThanOrEqual(290)
    expect(result.connectMs).toBeLessThan(2_000)
    await eventually(() => openDescriptors() <= before)
  })

  test('of sixty silent addresses at most ten are tried', async () => {
    const port = await freePort()
    let tried = 0
    const result = await dial(permit(port, ...Array.from({ length: 60 }, (_, place) => `127.0.1.${place}`)), {
      timeoutMs: 5_000,
      makeSide: () => {
        tried++
        return { side: { attach: () => undefined }, onread: { buffer: Buffer.alloc(1), callback: () => true } }
      },
    })
    expect(result).toMatchObject({ ok: false, reason: 'connect_refused' })
    expect(tried).toBe(10)
  })
})

describe('giving up', () => {
  test('an abort rejects with its reason and closes every attempt', async () => {
    const hole = await startBlackhole('127.0.0.2')
    closing.push(hole.close)
    const before = openDescriptors()
    const abort = new AbortController()
    const pending = dial(permit(hole.port, '127.0.0.2'), { timeoutMs: 10_000, signal: abort.signal })
    abort.abort(new Error('the client is gone'))
    await expect(pending).rejects.toThrow('the client is gone')
    await eventually(() => openDescriptors() <= before)
  })

  test('an abort before dials nothing', async () => {
    const origin = await listen('127.0.0.1')
    const pending = dial(permit(origin.port, '127.0.0.1'), {
      timeoutMs: 1_000,
      signal: AbortSignal.abort(new Error('gone')),
    })
    await expect(pending).rejects.toThrow('gone')
    expect(origin.connections()).toBe(0)
  })

  test('an abort after the connection is open leaves it open', async () => {
    const origin = await listen('127.0.0.1')
    const abort = new AbortController()
    const dialled = await dial(permit(origin.port, '127.0.0.1'), { timeoutMs: 1_000, signal: abort.signal })
    abort.abort()
    expect(dialled.ok && dialled.socket.destroyed).toBe(false)
    if (dialled.ok) await destroyed(dialled.socket)
  })
})

describe('what is no permit', () => {
  test('an object that looks like one is refused when it runs, and does not typecheck', async () => {
    const forged = { destination: permit(80, '127.0.0.1').destination, addresses: [address('127.0.0.1')] }
    // @ts-expect-error a permit can't be forged
    // eslint-disable-next-line @typescript-eslint/no-unsafe-class-instance-assignment -- what must not compile is the point
    await expect(dial(forged, { timeoutMs: 100 })).rejects.toThrow(TypeError)
    await expect(dial(Object.create(permit(80, '127.0.0.1')) as Permit, { timeoutMs: 100 })).rejects.toThrow(TypeError)
  })

  test('a permit without addresses is for an upstream proxy alone', async () => {
    await expect(dial(unresolvedPermit('origin.example.test:80'), { timeoutMs: 100 })).rejects.toThrow(TypeError)
  })
})

test('a thousand connections leave no descriptor behind', async () => {
  const origin = await listen('127.0.0.1')
  const before = openDescriptors()
  for (let batch = 0; batch < 20; batch++) {
    const all = await Promise.all(
      Array.from({ length: 50 }, () => dial(permit(origin.port, '127.0.0.4', '127.0.0.1'), { timeoutMs: 5_000 })),
    )
    await Promise.all(all.map((one) => (one.ok ? destroyed(one.socket) : Promise.reject(new Error(one.reason)))))
  }
  await eventually(() => openDescriptors() <= before)
})

async function open(one: Permit) {
  const dialled = await dial(one, { timeoutMs: 5_000 })
  if (!dialled.ok) throw new Error(dialled.reason)
  closing.push(() => dialled.socket.destroy())
  return dialled
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
async function freePort(): Promise<number> {
  const server = net.createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as net.AddressInfo
  await new Promise((resolve) => server.close(resolve))
  return port
}

async function destroyed(socket: net.Socket): Promise<void> {
  socket.destroy()
  if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve))
}

function openDescriptors(): number {
  return fs.readdirSync('/proc/self/fd').length
}

async function eventually(holds: () => boolean): Promise<void> {
  for (let turn = 0; turn < 2_000 && !holds(); turn++) await new Promise((resolve) => setImmediate(resolve))
  expect(holds()).toBe(true)
}
