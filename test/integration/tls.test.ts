/** TLS between client and gateway: bindings to a client certificate, and certificates that are renewed while it runs. */
import crypto from 'node:crypto'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import tls from 'node:tls'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { ConfigInput } from '../../proxy/config/schema.ts'
import { createAuthority, type Pem } from '../origins/certificates.ts'
import { type Origin, startEcho } from '../origins/origins.ts'
import { startTestGateway, type TestGateway } from './test-gateway.ts'
import { WireClient } from './wire.ts'

const HOST = '127.66.0.4'
const authority = createAuthority()
const stranger = createAuthority('somebody else')
const first = authority.issue('gateway.example.test')
const mine = authority.issue('client-1', { client: true })
let folder: string
let gateway: TestGateway
const logged: string[] = []
let echo: Origin

beforeAll(async () => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-tls-'))
  writeServer(first)
  fs.writeFileSync(path.join(folder, 'ca.pem'), authority.cert)
  echo = await startEcho(HOST)
  const log = (fields: object) => logged.push('fault' in fields ? String(fields.fault) : '')
  const document: ConfigInput = {
    listen: {
      tls: {
        cert: path.join(folder, 'gw.pem'),
        key: path.join(folder, 'gw.key'),
        clientCa: path.join(folder, 'ca.pem'),
      },
    },
    policy: { ceiling: { kind: 'allow-all' } },
    network: { allowPrivate: ['127.66.0.0/24'], hosts: { 'echo.example.test': HOST } },
  }
  gateway = await startTestGateway(document, { logger: { info: log, warn: log, error: log } })
})
afterAll(async () => {
  await gateway.close()
  await echo.close()
  fs.rmSync(folder, { recursive: true, force: true })
})

function writeServer(pem: Pem): void {
  fs.writeFileSync(path.join(folder, 'gw.key'), pem.key)
  fs.writeFileSync(path.join(folder, 'gw.pem'), pem.cert)
}

async function open(client?: Pem): Promise<{ wire: WireClient; socket: tls.TLSSocket }> {
  const socket = tls.connect({
    port: gateway.port,
    host: '127.0.0.1',
    servername: 'gateway.example.test',
    ca: authority.cert,
    ...client,
  })
  await new Promise<void>((resolve, reject) => socket.once('secureConnect', resolve).once('error', reject))
  return { wire: new WireClient(socket), socket }
}

async function connect(token: string, client?: Pem): Promise<string> {
  const { wire } = await open(client)
  try {
    wire.send(
      `CONNECT echo.example.test:${echo.port} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`,
    )
    const answer = await wire.answer()
    if (answer?.status !== 200) return answer?.headers['x-deny-reason']?.join() ?? 'closed'
    const bytes = crypto.randomBytes(300_000)
    wire.send(bytes)
    return (await wire.take(bytes.length)).equals(bytes) ? 'relayed' : 'other bytes'
  } finally {
    wire.destroy()
  }
}

const thumbprint = crypto.createHash('sha256').update(new crypto.X509Certificate(mine.cert).raw).digest('base64url')

describe('a token that is bound to a client certificate', () => {
  const bound = () => gateway.token({ egress: { kind: 'allow-all' }, cnf: { 'x5t#S256': thumbprint } })

  test('works with that certificate, and bytes come through TLS whole', async () => {
    expect(await connect(await bound(), mine)).toBe('relayed')
  })

  test('works with no other certificate of the same authority, and not without one', async () => {
    expect(await connect(await bound(), authority.issue('client-2', { client: true }))).toBe('token_binding_mismatch')
    expect(await connect(await bound())).toBe('token_binding_mismatch')
  })

  test('works with no certificate of another authority that bears the same name', async () => {
    const outcome = await connect(await bound(), stranger.issue('client-1', { client: true })).catch(
      () => 'no connection',
    )
    expect(['token_binding_mismatch', 'no connection', 'closed']).toContain(outcome)
  })
})

test('a token without a binding works without a certificate', async () => {
  expect(await connect(await gateway.token({ egress: { kind: 'allow-all' } }))).toBe('relayed')
})

test('plain text on the TLS port ends, and the gateway goes on', async () => {
  const plain = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
  plain.send('CONNECT echo.example.test:1 HTTP/1.1\r\nHost: x\r\n\r\n')
  await plain.over()
  expect(await connect(await gateway.token({ egress: { kind: 'allow-all' } }))).toBe('relayed')
})

test('a renewed certificate is used without a restart; one that is broken is not, and the old one stays', async () => {
  const serial = async () => {
    const { wire, socket } = await open()
    const { serialNumber } = socket.getPeerCertificate()
    wire.destroy()
    return serialNumber
  }
  const before = await serial()
  writeServer(authority.issue('gateway.example.test'))
  await expect.poll(serial, { timeout: 10_000, interval: 200 }).not.toBe(before)
  const renewed = await serial()
  fs.writeFileSync(path.join(folder, 'gw.pem'), 'not a certificate')
  await expect.poll(() => logged.at(-1), { timeout: 10_000 }).toMatch(/ can't be used: there is no PEM block/)
  expect(await serial()).toBe(renewed)
  fs.writeFileSync(path.join(folder, 'gw.pem'), authority.issue('gateway.example.test').cert)
  await expect.poll(() => logged.at(-1), { timeout: 10_000 }).toMatch(/: the key is not that of the certificate$/)
  expect(await serial()).toBe(renewed)
})
