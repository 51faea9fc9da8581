/** Bytes between places that can not reach each other: the sandbox's end, the host's end, and who holds it. */
import { randomBytes } from 'node:crypto'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import net from 'node:net'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { freePort } from '../../origins/free-port.ts'
import { start } from '../../../provider/backends/container-link.ts'
import {
  createSecret,
  helloOf,
  type LinkHost,
  listenTcpLink,
  listenUnixLink,
} from '../../../provider/backends/link-host.ts'
import { reachLink, shareLink } from '../../../provider/backends/link-share.ts'

let folder: string
let closers: (() => unknown)[]

beforeEach(() => {
  folder = mkdtempSync('/tmp/spk-')
  mkdirSync(path.join(folder, 'egress'))
  closers = []
})
afterEach(async () => {
  for (const close of closers.reverse()) await close()
  rmSync(folder, { recursive: true })
})

/** Sends back what it gets, and its end. */
async function echo(where: net.ListenOptions): Promise<net.AddressInfo | string> {
  const sockets = new Set<net.Socket>()
  const server = net.createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket)
    socket.on('error', () => undefined).pipe(socket)
  })
  await new Promise<void>((resolve) => server.listen(where, resolve))
  closers.push(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return server.address()!
}

async function through(socket: net.Socket, bytes: Buffer): Promise<Buffer> {
  const pieces: Buffer[] = []
  socket.end(bytes)
  for await (const piece of socket) pieces.push(piece as Buffer)
  return Buffer.concat(pieces)
}

/** Frees a port that nothing listens on. */
describe('a sandbox that dials', () => {
  test('is asked over idle connections, many at once, of any size and with half-closes', async () => {
    const worker = (await echo({ host: '127.0.0.1', port: 0 })) as net.AddressInfo
    const host = await listenUnixLink(path.join(folder, 'c.sock'))
    closers.push(host.close)
    await start({
      dialers: [
        { dial: { path: path.join(folder, 'c.sock') }, connect: { host: '127.0.0.1', port: worker.port }, idle: 2 },
      ],
    })
    await host.pool.ready
    const given = Array.from({ length: 20 }, (_, index) => randomBytes(index === 0 ? 3_000_000 : 10_000))
    const got = await Promise.all(given.map(async (bytes) => through(await host.pool.take(), bytes)))
    expect(got.map((bytes, index) => bytes.equals(given[index]!))).toEqual(given.map(() => true))
  })

  test('whoever speaks unasked, or opens too many, gets nothing', async () => {
    const host = await listenUnixLink(path.join(folder, 'c.sock'))
    closers.push(host.close)
    const talker = net.connect(path.join(folder, 'c.sock')).on('error', () => undefined)
    await new Promise((resolve) => talker.once('connect', resolve))
    talker.write('HTTP/1.1 200 OK\r\n\r\n')
    await new Promise((resolve) => talker.once('close', resolve))
    const many = Array.from({ length: 40 }, () => net.connect(path.join(folder, 'c.sock')).on('error', () => undefined))
    await Promise.all(
      many
        .slice(0, 8)
        .map((socket) => new Promise((resolve) => socket.once('close', resolve).once('connect', resolve))),
    )
    await expect.poll(() => many.filter(({ destroyed }) => destroyed).length).toBe(8)
    for (const socket of many) socket.destroy()
  })
})

describe('the host’s TCP listener', () => {
  let secret: string
  let host: LinkHost
  const dial = (hello: string): net.Socket => {
    const socket = net.connect({ host: '127.0.0.1', port: host.port, allowHalfOpen: true }).on('error', () => undefined)
    socket.write(hello)
    return socket
  }
  beforeEach(async () => {
    secret = createSecret()
    await echo({ path: path.join(folder, 'egress/gateway.sock') })
    host = await listenTcpLink({
      host: '127.0.0.1',
      port: 0,
      secret,
      gatewaySocket: path.join(folder, 'egress/gateway.sock'),
    })
    closers.push(host.close)
  })

  test('carries what shows the secret to the gateway, with what follows in the same packet', async () => {
    const socket = dial(`${helloOf(secret, 'egress')}CONNECT`)
    expect((await through(socket, Buffer.from(' more'))).toString()).toBe('CONNECT more')
  })

  test.each([
    ['another secret', () => helloOf(createSecret(), 'egress')],
    ['no purpose', () => `${secret}\n`],
    ['another purpose', () => `${secret} admin\n`],
    ['a long line', () => 'x'.repeat(1_000)],
    ['a request', () => 'CONNECT example.com:443 HTTP/1.1\r\n\r\n'],
  ])('drops %s', async (_what, hello) => {
    const socket = dial(hello()).resume()
    await new Promise((resolve) => socket.once('close', resolve).once('end', resolve))
    expect(socket.bytesRead).toBe(0)
  })
})

describe('a link that processes share', () => {
  test('is gone through while somebody holds it, and taken over by the first who finds it free', async () => {
    const worker = (await echo({ host: '127.0.0.1', port: 0 })) as net.AddressInfo
    const socketPath = path.join(folder, 'c.sock')
    const holder = await shareLink(folder, await listenUnixLink(socketPath))
    await start({
      dialers: [{ dial: { path: socketPath }, connect: { host: '127.0.0.1', port: worker.port }, idle: 2 }],
    })
    let takenOver = 0
    const other = reachLink(folder, () => {
      takenOver++
      return listenUnixLink(socketPath)
    })
    closers.push(other.close)
    const bytes = randomBytes(100_000)
    expect((await through(await other.connect(), bytes)).equals(bytes)).toBe(true)
    expect(takenOver).toBe(0)
    await holder.close()
    expect((await through(await other.connect(), bytes)).equals(bytes)).toBe(true)
    expect(
      (await through(await reachLink(folder, () => Promise.reject(new Error('held'))).connect(), bytes)).equals(bytes),
    ).toBe(true)
    expect(takenOver).toBe(1)
  })
})

test('a listener accepts at its own address in a subnet and nowhere else, and greets for whoever comes', async () => {
  const origin = (await echo({ host: '127.0.0.1', port: 0 })) as net.AddressInfo
  const port = await freePort()
  await start({
    listeners: [
      { listen: { subnet: '127.0.0.0/8', port }, connect: { host: '127.0.0.1', port: origin.port }, hello: 'hello ' },
    ],
  })
  expect(
    (await through(net.connect({ host: '127.0.0.1', port, allowHalfOpen: true }), Buffer.from('you'))).toString(),
  ).toBe('hello you')
  await expect(
    start({
      listeners: [{ listen: { subnet: '203.0.113.0/24', port }, connect: { host: '127.0.0.1', port }, hello: '' }],
    }),
  ).rejects.toThrow('no address in 203.0.113.0/24')
})
