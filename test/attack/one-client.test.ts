/** One client whose requests come to nothing by the thousand: booked whatever it speaks, then closed unread; the others are served. */
import crypto from 'node:crypto'
import fs from 'node:fs'
import http from 'node:http'
import type net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { once } from 'node:events'
import tls from 'node:tls'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { type Core, openCore } from '../../proxy/core.ts'
import { WEIGHT } from '../../proxy/door.ts'
import { gatewayAround } from '../../proxy/gateway.ts'
import { startTestGateway, type TestGateway } from '../integration/test-gateway.ts'
import { WireClient } from '../integration/wire.ts'
import { createAuthority } from '../origins/certificates.ts'

const HOSTILE = '127.0.0.2'
const OTHER = '127.0.0.3'
/** More than comes back during a test. */
const ALL = 1e9
const authority = createAuthority()

let core: Core
let running: TestGateway
let folder: string

async function start(isTls = false, ceiling: 'deny-all' | 'allow-all' = 'deny-all'): Promise<void> {
  const pem = authority.issue('localhost', { addresses: ['127.0.0.1'] })
  fs.writeFileSync(path.join(folder, 'cert'), pem.cert)
  fs.writeFileSync(path.join(folder, 'key'), pem.key, { mode: 0o600 })
  const files = { cert: path.join(folder, 'cert'), key: path.join(folder, 'key') }
  running = await startTestGateway(
    {
      policy: { ceiling: { kind: ceiling } },
      network: { allowPrivate: ['127.0.0.0/8'] },
      ...(isTls && { listen: { tls: files } }),
    },
    {},
    async (options) => {
      core = await openCore(options)
      return gatewayAround(core, options)
    },
  )
}

beforeEach(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-one-client-'))
})
afterEach(async () => {
  await running.close()
  fs.rmSync(folder, { recursive: true, force: true })
})

const connect = (localAddress: string) => WireClient.connect({ host: '127.0.0.1', port: running.port, localAddress })
const head = (token: string) =>
  `CONNECT a.example.test:443 HTTP/1.1\r\nHost: a\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`
const socks = (password: string) =>
  Buffer.concat([Buffer.from([5, 1, 2, 1, 1, 0x75, password.length]), Buffer.from(password)])

describe('it is booked', () => {
  const kinds: readonly (readonly [string, () => Buffer | string | Promise<string>])[] = [
    ['CONNECT that policy refuses', async () => head(await running.token())],
    ['CONNECT with a random token', () => head(crypto.randomBytes(24).toString('hex'))],
    ['CONNECT without one', () => 'CONNECT a.example.test:443 HTTP/1.1\r\nHost: a\r\n\r\n'],
    ['a head that is none', () => 'CONNECT  \r\n\r\n'],
    ['neither HTTP nor SOCKS5', () => '\x16\x03\x01\x02\x00'],
    ['a SOCKS5 login', () => socks('random')],
    ['a SOCKS5 greeting without a login', () => Buffer.from([5, 1, 0])],
    [
      'plain HTTP that policy refuses',
      async () =>
        `GET http://a.example.test/ HTTP/1.1\r\nHost: a.example.test\r\nProxy-Authorization: Bearer ${await running.token()}\r\n\r\n`,
    ],
    ['plain HTTP that can not be read', () => 'GET http://a.example.test/ HTTP/1.1\r\nHost: a\r\nX y\r\n\r\n'],
    ['nothing', () => ''],
    ['half a head', () => 'CONNECT a.exa'],
  ]
  test.each(kinds)('%s', async (_what, bytes) => {
    await start()
    const booked = vi.spyOn(core.door, 'cameToNothing')
    const client = await connect(HOSTILE)
    client.send(await bytes())
    client.end()
    await client.over()
    await expect.poll(() => booked.mock.calls.length).toBeGreaterThan(0)
    expect(booked.mock.calls.map(([{ address }]) => address)).toContain(HOSTILE)
    client.destroy()
  })

  test('asking without credentials for ever, which ends after ten challenges', async () => {
    await start()
    const client = await connect(HOSTILE)
    const statuses: (number | undefined)[] = []
    for (let asked = 0; asked < 12; asked++) {
      client.send('GET http://a.example.test/ HTTP/1.1\r\nHost: a.example.test\r\n\r\n')
      statuses.push((await client.answer())?.status)
      if (client.isOver) break
    }
    await client.over()
    expect(statuses.filter((status) => status === 407)).toHaveLength(11)
    client.destroy()
  })

  test('a TLS handshake that fails, at more', async () => {
    await start(true)
    const booked = vi.spyOn(core.door, 'cameToNothing')
    const client = await connect(HOSTILE)
    client.send('CONNECT a.example.test:443 HTTP/1.1\r\n\r\n')
    await client.over()
    await expect.poll(() => booked.mock.calls).toEqual([[{ address: HOSTILE }, WEIGHT.handshake]])
    client.destroy()
  })

  test('each piece of a head, at less', async () => {
    await start()
    const booked = vi.spyOn(core.door, 'cameToNothing')
    const client = await connect(HOSTILE)
    client.socket.setNoDelay(true)
    for (const piece of ['CONN', 'ECT a.example', '.test:443 HTTP/1.1\r\n']) {
      const before = booked.mock.calls.length
      client.send(piece)
      if (piece !== 'CONN') await expect.poll(() => booked.mock.calls.length).toBeGreaterThan(before)
      else await client.staysOpen(50)
    }
    expect(booked.mock.calls.every(([, weight]) => weight === WEIGHT.piece)).toBe(true)
    client.destroy()
  })
})

test('what goes out is told to the door, whatever it speaks', async () => {
  await start(false, 'allow-all')
  const told = vi.spyOn(core.door, 'wentOut')
  const origin = http.createServer((_request, response) => response.end('here')).listen(0, '127.0.0.1')
  await once(origin, 'listening')
  const at = `127.0.0.1:${(origin.address() as net.AddressInfo).port}`
  const auth = `Proxy-Authorization: Bearer ${await running.token({ egress: { kind: 'allow-all' } })}\r\n`
  for (const asked of [`CONNECT ${at} HTTP/1.1`, `GET http://${at}/ HTTP/1.1`]) {
    const client = await connect(HOSTILE)
    client.send(`${asked}\r\nHost: ${at}\r\n${auth}\r\n`)
    expect((await client.answer())?.status).toBe(200)
    expect(told).toHaveBeenLastCalledWith(expect.objectContaining({ address: HOSTILE }))
    client.destroy()
  }
  expect(told).toHaveBeenCalledTimes(2)
  origin.close()
  origin.closeAllConnections()
})

describe('who has used it up', () => {
  test('is closed unread, has no line of its own, and the others are served', async () => {
    await start()
    core.door.cameToNothing({ address: HOSTILE }, ALL)
    const token = await running.token()
    for (const bytes of [head(token), socks(token.slice(0, 200)), 'GET http://a.example.test/ HTTP/1.1\r\n\r\n']) {
      // A reset, which may be there before the client has seen that it was connected.
      const client = await connect(HOSTILE).catch(() => undefined)
      client?.send(bytes)
      expect(await client?.over()).toEqual(client && Buffer.alloc(0))
    }
    const other = await connect(OTHER)
    other.send(head(token))
    expect((await other.answer())?.status).toBe(403)
    expect(await core.metrics.render()).toContain('sallyport_turned_away_connections_total 3')

    const lines = running.audit().filter(({ client }) => String(client).startsWith(HOSTILE))
    expect(lines).toEqual([])
    core.door.close()
    const line = await running.auditLine(({ action }) => action === 'turned_away')
    expect(line).toMatchObject({
      kind: 'admin',
      detail: `3 connections of ${HOSTILE} were closed unread: too much of theirs came to nothing`,
    })
  })

  test('does not come to a TLS handshake', async () => {
    await start(true)
    const handshake = (localAddress: string) => {
      const to = { host: '127.0.0.1', port: running.port, localAddress, ca: authority.cert, servername: 'localhost' }
      return tls.connect(to)
    }
    const before = handshake(OTHER)
    await once(before, 'secureConnect')
    core.door.cameToNothing({ address: HOSTILE }, ALL)
    const turnedAway = handshake(HOSTILE)
    const ended = await once(turnedAway, 'secureConnect').then(
      () => 'let in',
      () => 'turned away',
    )
    expect(ended).toBe('turned away')
    const other = handshake(OTHER)
    await once(other, 'secureConnect')
    for (const socket of [before, turnedAway, other]) socket.destroy()
  })

  test('keeps what is open', async () => {
    await start()
    const client = await connect(HOSTILE)
    core.door.cameToNothing({ address: HOSTILE }, ALL)
    client.send(head(await running.token()))
    expect((await client.answer())?.status).toBe(403)
    client.destroy()
  })

  test('is ended when its head goes on in pieces', async () => {
    await start()
    const client = await connect(HOSTILE)
    client.send('CONNECT a.exa')
    await client.staysOpen(50)
    core.door.cameToNothing({ address: HOSTILE }, ALL)
    client.send('mple.test')
    expect(await client.over()).toEqual(Buffer.alloc(0))
    client.destroy()
  })

  test('is one listener, where it stands for a sandbox', async () => {
    await start()
    const bind = async (name: string) => {
      const socket = path.join(folder, name)
      const { tokenId } = await running.gateway.bind({ path: socket, identity: { sandbox: name } })
      return { socket, tokenId }
    }
    const [one, two] = [await bind('one'), await bind('two')]
    const bound = { tokenId: one.tokenId } as never
    core.door.cameToNothing({ address: 'unix', bound }, ALL)
    const ask = async (socket: string) => {
      const client = await WireClient.connect({ path: socket })
      client.send('CONNECT a.example.test:443 HTTP/1.1\r\nHost: a\r\n\r\n')
      const answer = await client.answer()
      client.destroy()
      return answer?.status
    }
    expect([await ask(one.socket), await ask(two.socket)]).toEqual([undefined, 403])
  })
})
