/** Before the ClientHello is whole and approved not a byte goes up; afterwards every byte does. */
import crypto from 'node:crypto'
import { once } from 'node:events'
import type net from 'node:net'
import tls from 'node:tls'
import { afterEach, describe, expect, test } from 'vitest'
import { type ClientHello, judgeServerName } from '../../../proxy/relay/client-hello.ts'
import { hotBuffers } from '../../../proxy/relay/buffers.ts'
import {
  closing,
  type Gateway,
  readBytes,
  type Running,
  startGateway,
  startOrigin,
  tlsMaterial,
  type Transport,
  turnsOfTheLoop,
} from './harness.ts'
import { hello, helloMessage, records } from './hellos.ts'

const NAME = 'tls.example.test'
const closers: (() => Promise<void> | void)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

interface Gated {
  readonly gateway: Gateway
  readonly client: net.Socket
  readonly running: Running
  readonly origin: net.Socket
  readonly sawUp: Buffer[]
  readonly judged: ClientHello[]
}

async function open(
  options: { readonly timeoutMs?: number; readonly early?: Buffer; readonly transport?: Transport } = {},
): Promise<Gated> {
  const sawUp: Buffer[] = []
  const judged: ClientHello[] = []
  const { promise, resolve } = Promise.withResolvers<net.Socket>()
  const origin = await startOrigin((socket) => {
    socket.on('data', (chunk) => sawUp.push(chunk))
    resolve(socket)
  })
  closers.push(() => origin.close())
  const gateway = await startGateway(options.transport ?? 'tcp', {
    originPort: origin.port,
    relay: {
      ...(options.early && { early: options.early }),
      inspect: {
        ...(options.timeoutMs !== undefined && { timeoutMs: options.timeoutMs }),
        judge: (found) => {
          judged.push(found)
          return judgeServerName(found, NAME, true)
        },
      },
    },
  })
  closers.push(() => gateway.close())
  const client = gateway.connect()
  closers.push(() => void client.destroy())
  const running = await gateway.next()
  return { gateway, client, running, origin: await promise, sawUp, judged }
}

/** Waits until the origin has so many bytes. */
async function arrived({ origin, sawUp }: Gated, bytes: number): Promise<Buffer> {
  while (Buffer.concat(sawUp).length < bytes) await once(origin, 'data')
  return Buffer.concat(sawUp)
}

describe.each(['tcp', 'unix', 'tls'] as const)('over %s', (transport) => {
  test('the right name goes through with all that came with it', async () => {
    const opened = await open({ transport })
    const early = records(crypto.randomBytes(9000), 16_384, 23)
    opened.client.write(Buffer.concat([hello(NAME), early]))
    opened.client.write('and later')
    const expected = Buffer.concat([hello(NAME), early, Buffer.from('and later')])
    expect((await arrived(opened, expected.length)).equals(expected)).toBe(true)
    expect(opened.running.relay.bytesOut).toBe(expected.length)
    expect(opened.judged).toEqual([{ serverName: NAME, ech: false }])
  })

  test.each([
    ['another name', hello('evil.example.test'), 'sni_mismatch'],
    ['no name', hello(), 'sni_missing'],
    ['two names', records(helloMessage({ names: [NAME, 'evil.example.test'] })), 'sni_mismatch'],
    ['plain text', Buffer.from('SSH-2.0-OpenSSH_9.6\r\n'), 'not_tls'],
    ['an alert', Buffer.from([21, 3, 3, 0, 2, 2, 40]), 'not_tls'],
    ['64 KiB of something', Buffer.alloc(65_536, 22), 'not_tls'],
  ])('%s is cut before a byte goes up', async (_what, bytes, closeReason) => {
    const opened = await open({ transport })
    opened.client.write(bytes)
    opened.client.resume()
    const ended = closing(opened.origin)
    expect(await opened.running.closed).toEqual({ closeReason, bytesIn: 0, bytesOut: 0 })
    await ended
    expect(opened.sawUp).toEqual([])
    expect(hotBuffers).toMatchObject({ lent: 0, strays: 0 })
  })
})

test('while the hello is not whole, nothing goes up, and the origin may already speak', async () => {
  const opened = await open()
  const { client, origin, running, sawUp } = opened
  const bytes = hello(NAME)
  for (let at = 0; at < bytes.length - 1; at += 20) {
    client.write(bytes.subarray(at, Math.min(at + 20, bytes.length - 1)))
    origin.write('.')
    await once(client, 'data')
  }
  await turnsOfTheLoop(20)
  expect(sawUp).toEqual([])
  expect(running.relay.bytesOut).toBe(0)
  expect(running.relay.bytesIn).toBeGreaterThan(0)
  client.write(bytes.subarray(-1))
  expect((await arrived(opened, bytes.length)).equals(bytes)).toBe(true)
})

test('early bytes go through the gate too', async () => {
  const good = await open({ early: hello(NAME).subarray(0, 30) })
  good.client.write(hello(NAME).subarray(30))
  expect((await arrived(good, hello(NAME).length)).equals(hello(NAME))).toBe(true)
  const bad = await open({ early: hello('evil.example.test') })
  expect(await bad.running.closed).toMatchObject({ closeReason: 'sni_mismatch', bytesOut: 0 })
  expect(bad.sawUp).toEqual([])
})

test('a hello that takes too long', async () => {
  const { client, running, sawUp } = await open({ timeoutMs: 30 })
  client.write(hello(NAME).subarray(0, 40))
  expect(await running.closed).toEqual({ closeReason: 'hello_timeout', bytesIn: 0, bytesOut: 0 })
  expect(sawUp).toEqual([])
})

test('the time-out ends with the hello', async () => {
  const opened = await open({ timeoutMs: 30 })
  opened.client.write(hello(NAME))
  await arrived(opened, hello(NAME).length)
  await new Promise((resolve) => setTimeout(resolve, 60)) // the one thing to wait for here is that nothing happens
  expect(opened.running.client.closed).toBe(false)
})

test('a client that leaves in the middle of its hello', async () => {
  const { client, running, sawUp } = await open()
  client.end(hello(NAME).subarray(0, 40))
  expect(await running.closed).toEqual({ closeReason: 'client_closed', bytesIn: 0, bytesOut: 0 })
  expect(sawUp).toEqual([])
})

test('a whole TLS connection to the right name', async () => {
  const { cert, key, ca } = tlsMaterial()
  const server = tls.createServer({ cert, key }, (socket) => socket.pipe(socket))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  closers.push(() => void server.close())
  const gateway = await startGateway('tcp', {
    originPort: (server.address() as net.AddressInfo).port,
    relay: { inspect: { judge: (found) => judgeServerName(found, 'localhost', true) } },
  })
  closers.push(() => gateway.close())
  const client = tls.connect({ socket: gateway.connect(), servername: 'localhost', ca })
  await once(client, 'secureConnect')
  const sent = crypto.randomBytes(3_000_000)
  client.end(sent)
  expect((await readBytes(client)).equals(sent)).toBe(true)
})
