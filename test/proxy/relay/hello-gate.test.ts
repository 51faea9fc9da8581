/** Before the ClientHello is whole and approved not a byte goes up; afterwards every byte does. */
import crypto from 'node:crypto'
import { once } from 'node:events'
import type net from 'node:net'
import tls from 'node:tls'
import { afterEach, describe, expect, test } from 'vitest'
import { type ClientHello, judgeServerName } from '../../../proxy/relay/client-hello.ts'
import { hotBuffers } from '../../../proxy/relay/buffers.ts'
import { HelloGate } from '../../../proxy/relay/hello-gate.ts'
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
import { CHANGE_CIPHER, handshake, hello, helloMessage, records, serverHelloMessage } from './hellos.ts'

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
    const later = records(crypto.randomBytes(40), 16_384, 23)
    opened.client.write(later)
    const expected = Buffer.concat([hello(NAME), early, later])
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

describe('the hello after a HelloRetryRequest', () => {
  const EVIL = hello('evil.example.test')
  const RETRY = records(serverHelloMessage(true))
  const EARLY_DATA = records(crypto.randomBytes(300), 100, 23)
  const SERVER_HELLO = records(serverHelloMessage())
  const ENCRYPTED = records(crypto.randomBytes(200), 16_384, 23)
  type Step = readonly ['client' | 'server', Buffer]

  /** Says what went up, or why it was refused and what had gone up by then. */
  function through(steps: readonly Step[], cut: (bytes: Buffer) => readonly Buffer[] = (bytes) => [bytes]) {
    const gate = new HelloGate({ judge: (found) => judgeServerName(found, NAME, true) }, () => undefined)
    const up: Buffer[] = []
    const upSoFar = () => Buffer.concat(up).toString('hex')
    try {
      for (const [who, whole] of steps) {
        for (const piece of cut(whole)) {
          // What was pushed may be overwritten.
          const bytes = Buffer.from(piece)
          if (who === 'server') gate.watch(bytes)
          else {
            const verdict = gate.push(bytes)
            if (verdict !== 'hold' && 'refuse' in verdict) return { refused: verdict.refuse, up: upSoFar() }
            if (verdict !== 'hold') up.push(Buffer.from(verdict.release))
          }
          bytes.fill(0)
        }
      }
      return { isOver: gate.isOver, isHolding: gate.isHolding, up: upSoFar() }
    } finally {
      gate.close()
    }
  }

  const sent = (steps: readonly Step[]) =>
    Buffer.concat(steps.filter(([who]) => who === 'client').map(([, bytes]) => bytes)).toString('hex')

  const lawful: Record<string, readonly Step[]> = {
    'no retry': [
      ['client', hello(NAME)],
      ['server', Buffer.concat([SERVER_HELLO, CHANGE_CIPHER, ENCRYPTED])],
      ['client', Buffer.concat([CHANGE_CIPHER, ENCRYPTED])],
    ],
    'TLS 1.2, whose later handshake is plain': [
      ['client', hello(NAME)],
      ['server', records(Buffer.concat([serverHelloMessage(), handshake(11, Buffer.alloc(900))]))],
      [
        'client',
        Buffer.concat([records(handshake(16, Buffer.alloc(60))), CHANGE_CIPHER, records(crypto.randomBytes(40))]),
      ],
    ],
    'a retry with the same name': [
      ['client', hello(NAME)],
      ['server', Buffer.concat([RETRY, CHANGE_CIPHER])],
      ['client', Buffer.concat([CHANGE_CIPHER, hello(NAME)])],
      ['server', Buffer.concat([SERVER_HELLO, ENCRYPTED])],
      ['client', ENCRYPTED],
    ],
    'a retry after early data, and a second hello in pieces': [
      ['client', Buffer.concat([hello(NAME), CHANGE_CIPHER, EARLY_DATA])],
      ['server', RETRY],
      ['client', records(helloMessage({ names: [NAME] }), 17)],
      ['server', SERVER_HELLO],
      ['client', ENCRYPTED],
    ],
    'a warning before the ServerHello': [
      ['client', hello(NAME)],
      ['server', Buffer.concat([Buffer.from([21, 3, 3, 0, 2, 1, 112]), SERVER_HELLO])],
      ['client', records(handshake(16, Buffer.alloc(60)))],
    ],
    'a ServerHello in records of one byte': [
      ['client', hello(NAME)],
      ['server', records(serverHelloMessage(true), 1)],
      ['client', hello(NAME)],
      ['server', records(serverHelloMessage(), 1)],
      ['client', Buffer.from('what comes now is encrypted, and nobody looks')],
    ],
  }
  test.each(Object.entries(lawful))('%s', (_what, steps) => {
    expect(through(steps)).toEqual({ isOver: true, isHolding: false, up: sent(steps) })
  })

  const SECOND_EVIL: readonly Step[] = [
    ['client', hello(NAME)],
    ['server', RETRY],
    ['client', Buffer.concat([CHANGE_CIPHER, EVIL])],
  ]
  const attacks: Record<string, readonly [refused: string, up: Buffer, steps: readonly Step[]]> = {
    'another name': ['sni_mismatch', hello(NAME), SECOND_EVIL],
    'no name': [
      'sni_missing',
      hello(NAME),
      [
        ['client', hello(NAME)],
        ['server', RETRY],
        ['client', hello()],
      ],
    ],
    'another name before the server has answered': [
      'sni_mismatch',
      hello(NAME),
      [
        ['client', hello(NAME)],
        ['client', EVIL],
      ],
    ],
    'another name behind early data': [
      'sni_mismatch',
      Buffer.concat([hello(NAME), EARLY_DATA]),
      [
        ['client', Buffer.concat([hello(NAME), EARLY_DATA])],
        ['client', EVIL],
      ],
    ],
    'another name in a third hello': [
      'sni_mismatch',
      Buffer.concat([hello(NAME), hello(NAME)]),
      [
        ['client', hello(NAME)],
        ['server', RETRY],
        ['client', hello(NAME)],
        ['client', EVIL],
      ],
    ],
    'another name after a retry in small records': [
      'sni_mismatch',
      hello(NAME),
      [
        ['client', hello(NAME)],
        ['server', records(serverHelloMessage(true), 7)],
        ['client', EVIL],
      ],
    ],
    'another name, begun before a ServerHello that was not its answer': [
      'sni_mismatch',
      hello(NAME),
      [
        ['client', Buffer.concat([hello(NAME), EVIL.subarray(0, 9)])],
        ['server', SERVER_HELLO],
        ['client', EVIL.subarray(9)],
      ],
    ],
    'another name to a server whose answer is no TLS': [
      'sni_mismatch',
      hello(NAME),
      [
        ['client', hello(NAME)],
        ['server', Buffer.from('HTTP/1.1 400 Bad Request\r\n\r\n')],
        ['client', EVIL],
      ],
    ],
    'a handshake that is no hello': [
      'not_tls',
      hello(NAME),
      [
        ['client', hello(NAME)],
        ['client', records(handshake(16, Buffer.alloc(60)))],
      ],
    ],
    'an old hello without records': [
      'not_tls',
      hello(NAME),
      [
        ['client', hello(NAME)],
        ['client', Buffer.from('802e010301', 'hex')],
      ],
    ],
    'a record of another major version': [
      'not_tls',
      Buffer.concat([hello(NAME)]),
      [
        ['client', hello(NAME)],
        ['client', Buffer.from([23, 2])],
      ],
    ],
    'a record that is too long': [
      'not_tls',
      hello(NAME),
      [
        ['client', hello(NAME)],
        ['client', Buffer.from([23, 3, 3, 0x41, 1])],
      ],
    ],
  }
  test.each(Object.entries(attacks))('refused: %s', (_what, [refused, up, steps]) => {
    expect(through(steps)).toEqual({ refused, up: up.toString('hex') })
  })

  test('the same at every split', () => {
    for (const steps of Object.values(lawful)) {
      expect(through(steps, (bytes) => [...bytes].map((byte) => Buffer.from([byte])))).toMatchObject({
        up: sent(steps),
      })
      const longest = Math.max(...steps.map(([, bytes]) => bytes.length))
      for (let at = 1; at < longest; at++) {
        const halves = (bytes: Buffer) => [bytes.subarray(0, at), bytes.subarray(at)]
        expect(through(steps, halves)).toEqual({ isOver: true, isHolding: false, up: sent(steps) })
      }
    }
    for (const [refused, , steps] of Object.values(attacks)) {
      expect(through(steps, (bytes) => [...bytes].map((byte) => Buffer.from([byte])))).toMatchObject({ refused })
      const longest = Math.max(...steps.map(([, bytes]) => bytes.length))
      for (let at = 1; at < longest; at++)
        expect(through(steps, (bytes) => [bytes.subarray(0, at), bytes.subarray(at)])).toMatchObject({ refused })
    }
  })

  test('of a hello with another name not a byte goes up, at every split', () => {
    const secret = EVIL.subarray(5).toString('hex')
    for (let at = 1; at < EVIL.length; at++) {
      const result = through(SECOND_EVIL, (bytes) => [bytes.subarray(0, at), bytes.subarray(at)])
      expect(result.up).not.toContain(secret.slice(0, 40))
      expect(result.up.length / 2).toBeLessThanOrEqual(hello(NAME).length + CHANGE_CIPHER.length)
    }
  })

  test('through a relay, and then the relay does not look any more', async () => {
    const opened = await open()
    const { client, origin, judged } = opened
    client.write(hello(NAME))
    await arrived(opened, hello(NAME).length)
    origin.write(RETRY)
    await once(client, 'data')
    client.write(Buffer.concat([CHANGE_CIPHER, hello(NAME)]))
    await arrived(opened, 2 * hello(NAME).length + CHANGE_CIPHER.length)
    expect(judged).toHaveLength(2)
    origin.write(SERVER_HELLO)
    await once(client, 'data')
    const more = crypto.randomBytes(1_000_000)
    client.write(more)
    const all = Buffer.concat([hello(NAME), CHANGE_CIPHER, hello(NAME), more])
    expect((await arrived(opened, all.length)).equals(all)).toBe(true)
    expect(opened.running.relay.bytesOut).toBe(all.length)
  })

  test('through a relay, with another name: cut, and only the first hello went up', async () => {
    const opened = await open()
    opened.client.write(hello(NAME))
    await arrived(opened, hello(NAME).length)
    opened.origin.write(RETRY)
    await once(opened.client, 'data')
    opened.client.write(EVIL)
    const ended = closing(opened.origin)
    expect(await opened.running.closed).toMatchObject({ closeReason: 'sni_mismatch', bytesOut: hello(NAME).length })
    await ended
    expect(Buffer.concat(opened.sawUp).equals(hello(NAME))).toBe(true)
  })

  test('half of it, and then nothing', async () => {
    const opened = await open({ timeoutMs: 100 })
    opened.client.write(Buffer.concat([hello(NAME), hello(NAME).subarray(0, 30)]))
    expect(await opened.running.closed).toMatchObject({ closeReason: 'hello_timeout', bytesOut: hello(NAME).length })
  })

  test('half of it, and then an end', async () => {
    const opened = await open()
    opened.client.end(Buffer.concat([hello(NAME), hello(NAME).subarray(0, 30)]))
    expect(await opened.running.closed).toMatchObject({ closeReason: 'client_closed', bytesOut: hello(NAME).length })
  })
})
