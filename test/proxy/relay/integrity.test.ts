/** Does every byte arrive, in order, in the right tunnel? Random bytes both ways through many tunnels at once, compared by hash. */
import { once } from 'node:events'
import type net from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import { HOT_LIMIT, hotBuffers } from '../../../proxy/relay/buffers.ts'
import {
  type Gateway,
  occupyHotBuffers,
  type Origin,
  readAll,
  sendRandom,
  startGateway,
  startOrigin,
  type Transport,
  until,
} from './harness.ts'

const MIB = 1024 * 1024
const closers: (() => Promise<void> | void)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

/** An origin that sends random bytes down while it hashes what comes up; the first 8 bytes up say which tunnel it is. */
async function hashingOrigin(
  bytesDown: number,
  stalls: number,
  mayRead: Promise<unknown> = Promise.resolve(),
): Promise<Origin & { readonly seen: Map<string, { up: string; down: string }> }> {
  const seen = new Map<string, { up: string; down: string }>()
  const origin = await startOrigin((socket) => {
    void (async () => {
      await once(socket, 'readable')
      const name = (socket.read(8) as Buffer).toString()
      const [up, down] = await Promise.all([mayRead.then(() => readAll(socket, stalls)), sendRandom(socket, bytesDown)])
      seen.set(name, { up, down })
    })()
  })
  closers.push(() => origin.close())
  return { ...origin, seen }
}

async function gatewayTo(transport: Transport, originPort: number, readsLine = false): Promise<Gateway> {
  const gateway = await startGateway(transport, { originPort, readsLine })
  closers.push(() => gateway.close())
  return gateway
}

async function runTunnel(
  gateway: Gateway,
  name: string,
  bytesUp: number,
  stalls: number,
  largest?: number,
  mayRead: Promise<unknown> = Promise.resolve(),
): Promise<{ up: string; down: string }> {
  const socket = gateway.connect()
  await once(socket, gateway.transport === 'tls' ? 'secureConnect' : 'connect')
  socket.write(name)
  const [up, down] = await Promise.all([
    sendRandom(socket, bytesUp, largest),
    mayRead.then(() => readAll(socket, stalls)),
  ])
  return { up, down }
}

describe.each(['tcp', 'unix', 'tls'] as const)('over %s', (transport) => {
  test('many tunnels at once carry random bytes both ways past slow readers, and end with half-close', async () => {
    const origin = await hashingOrigin(3 * MIB, 6)
    const gateway = await gatewayTo(transport, origin.port)
    const names = Array.from({ length: 24 }, (_, index) => `tun-${String(index).padStart(4, '0')}`)
    const got = await Promise.all(names.map((name) => runTunnel(gateway, name, 3 * MIB + 17, 6)))
    await until(() => origin.seen.size === names.length && gateway.results.length === names.length)
    for (const [index, name] of names.entries()) expect(got[index]).toEqual(origin.seen.get(name))
    for (const result of gateway.results) expect(result).toMatchObject({ bytesIn: 3 * MIB, bytesOut: 3 * MIB + 17 + 8 })
    expect(hotBuffers).toMatchObject({ lent: 0, strays: 0 })
  })

  test('small messages in cold tunnels survive beside hot ones', async () => {
    const origin = await hashingOrigin(300_000, 0)
    const gateway = await gatewayTo(transport, origin.port)
    const bulk = await hashingOrigin(12 * MIB, 3)
    const bulkGateway = await gatewayTo(transport, bulk.port)
    const names = Array.from({ length: 32 }, (_, index) => `msg-${String(index).padStart(4, '0')}`)
    const [got, big] = await Promise.all([
      Promise.all(names.map((name) => runTunnel(gateway, name, 200_000, 1, 900))),
      Promise.all(['big-0000', 'big-0001', 'big-0002'].map((name) => runTunnel(bulkGateway, name, 12 * MIB, 3))),
    ])
    await until(() => origin.seen.size === names.length && bulk.seen.size === 3)
    for (const [index, name] of names.entries()) expect(got[index]).toEqual(origin.seen.get(name))
    for (const [index, hashes] of big.entries()) expect(hashes).toEqual(bulk.seen.get(`big-000${index}`))
  })

  test.each([HOT_LIMIT, 0])(
    'nobody reads until every tunnel is blocked both ways, while small ones read into the shared buffer (%i big ones left)',
    async (leave) => {
      const release = occupyHotBuffers(leave, HOT_LIMIT)
      closers.push(release)
      const { promise: mayRead, resolve: letThemRead } = Promise.withResolvers<undefined>()
      const names = Array.from({ length: 5 }, (_, index) => `blk-${String(index).padStart(4, '0')}`)
      const origin = await hashingOrigin(10 * MIB, 2, mayRead)
      const gateway = await gatewayTo(transport, origin.port)
      const got = Promise.all(names.map((name) => runTunnel(gateway, name, 10 * MIB, 2, undefined, mayRead)))
      const relays = await Promise.all(names.map(async () => (await gateway.next()).relay))
      const moved = (): number => relays.reduce((sum, relay) => sum + relay.bytesIn + relay.bytesOut, 0)
      const quick = await hashingOrigin(100_000, 0)
      const quickGateway = await gatewayTo(transport, quick.port)
      let round = 0
      for (let before = -1; before !== moved(); round++) {
        before = moved()
        await Promise.all(
          Array.from({ length: 4 }, (_, index) =>
            runTunnel(quickGateway, `q${round}-${index}----`.slice(0, 8), 100_000, 0),
          ),
        )
      }
      expect(moved()).toBeLessThan(names.length * 20 * MIB)
      letThemRead(undefined)
      const hashes = await got
      await until(() => origin.seen.size === names.length && gateway.results.length === names.length)
      for (const [index, name] of names.entries()) expect(hashes[index]).toEqual(origin.seen.get(name))
      release()
      expect(hotBuffers).toMatchObject({ lent: 0, strays: 0 })
    },
  )

  test('early data goes up before everything else', async () => {
    const arrived: Buffer[] = []
    const origin = await startOrigin((socket) => {
      socket.on('data', (chunk) => arrived.push(chunk))
      socket.on('end', () => socket.end('bye'))
    })
    closers.push(() => origin.close())
    const gateway = await gatewayTo(transport, origin.port, true)
    const socket = gateway.connect()
    socket.write('hello line\nearly ')
    await once(socket, 'data')
    socket.end('and late')
    await once(socket, 'end')
    expect(Buffer.concat(arrived).toString()).toBe('early and late')
  })

  test('with no big buffer to be had, and with a handful fought over', async () => {
    for (const leave of [0, 2]) {
      const release = occupyHotBuffers(leave, HOT_LIMIT)
      closers.push(release)
      const origin = await hashingOrigin(2 * MIB, 4)
      const gateway = await gatewayTo(transport, origin.port)
      const names = Array.from({ length: 8 }, (_, index) => `few-${String(index).padStart(4, '0')}`)
      const got = await Promise.all(names.map((name) => runTunnel(gateway, name, 2 * MIB, 4)))
      await until(() => origin.seen.size === names.length && gateway.results.length === names.length)
      for (const [index, name] of names.entries()) expect(got[index]).toEqual(origin.seen.get(name))
      release()
    }
    expect(hotBuffers).toMatchObject({ lent: 0, strays: 0 })
  })
})

test('a client that stops reading for long holds up only its own tunnel, and then gets every byte', async () => {
  const origin = await hashingOrigin(24 * MIB, 0)
  const gateway = await gatewayTo('tcp', origin.port)
  const stalled: net.Socket = gateway.connect()
  stalled.write('stalled!')
  stalled.end()
  const { relay } = await gateway.next()
  await until(() => relay.bytesIn > 2 * MIB)
  const others = await Promise.all(['other-00', 'other-01'].map((name) => runTunnel(gateway, name, MIB, 0)))
  expect(relay.bytesIn).toBeLessThan(24 * MIB)
  const down = await readAll(stalled)
  await until(() => origin.seen.size === 3 && gateway.results.length === 3)
  expect(down).toBe(origin.seen.get('stalled!')?.down)
  expect(others.map(({ down: hash }) => hash)).toEqual(
    ['other-00', 'other-01'].map((name) => origin.seen.get(name)?.down),
  )
  expect(hotBuffers).toMatchObject({ lent: 0, strays: 0 })
})
