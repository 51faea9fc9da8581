/** Domain fronting by the hello that follows a HelloRetryRequest, against a server that is known to fall for it: OpenSSL's own. */
import { type ChildProcess, spawn } from 'node:child_process'
import crypto from 'node:crypto'
import { once } from 'node:events'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import tls from 'node:tls'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { describeWith } from '../clients/installed.ts'
import { startTestGateway, type TestGateway } from '../integration/test-gateway.ts'
import { WireClient } from '../integration/wire.ts'
import { createAuthority } from '../origins/certificates.ts'
import { CHANGE_CIPHER, helloMessage, records, u16, vector16, vector8 } from '../proxy/relay/hellos.ts'

const HOST = '127.66.0.9'
const FRONT = 'front.example.test'
const BEHIND = 'behind.example.test'
const X25519 = 0x001d
const P384 = 0x0018

const authority = createAuthority()
let folder: string
let server: ChildProcess
let said = ''
let port: number
let gateway: TestGateway

/** A hello as TLS 1.3 has it, with a key of one group. */
function hello(name: string, group: number): Buffer {
  const share =
    group === X25519
      ? crypto.randomBytes(32)
      : Buffer.from(crypto.createECDH('secp384r1').generateKeys('hex', 'uncompressed'), 'hex')
  return records(
    helloMessage({
      names: [name],
      suites: [0x1301],
      extensions: [
        [43, vector8(u16(0x0304))],
        [10, vector16(Buffer.concat([u16(X25519), u16(P384)]))],
        [13, vector16(Buffer.concat([0x0804, 0x0403, 0x0401].map(u16)))],
        [51, vector16(Buffer.concat([u16(group), vector16(share)]))],
      ],
    }),
  )
}

interface Answer {
  readonly type: number
  readonly isRetry: boolean
}

/** The next record of the server that is no change of cipher. */
async function nextRecord(wire: WireClient): Promise<Answer | 'closed'> {
  for (;;) {
    const header = await wire.take(5)
    if (header.length < 5) return 'closed'
    const body = await wire.take(header.readUInt16BE(3))
    if (header[0] === 20) continue
    const retryRandom = crypto.hash('sha256', 'HelloRetryRequest', 'buffer')
    return { type: header[0] ?? 0, isRetry: body.subarray(6, 38).equals(retryRandom) }
  }
}

async function tunnel(): Promise<WireClient> {
  const wire = await WireClient.connect({ host: '127.0.0.1', port: gateway.port })
  wires.push(wire)
  const token = await gateway.token({ egress: { kind: 'static', allowedHosts: [`${FRONT}:${port}`] } })
  wire.send(`CONNECT ${FRONT}:${port} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`)
  expect((await wire.answer())?.status).toBe(200)
  return wire
}

/** The server serves one connection after the other. */
const wires: WireClient[] = []

const HANDSHAKE = 22
const RETRY: Answer = { type: HANDSHAKE, isRetry: true }

describeWith('openssl', 'a server that takes the name from the second hello', () => {
  /** A server of two names that speaks only P-384, so that a client which guessed X25519 is asked for another hello. */
  beforeAll(async () => {
    folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-hello-'))
    for (const name of [FRONT, BEHIND]) {
      const { cert, key } = authority.issue(name)
      fs.writeFileSync(path.join(folder, `${name}.pem`), cert)
      fs.writeFileSync(path.join(folder, `${name}.key`), key)
    }
    const file = (name: string) => path.join(folder, name)
    server = spawn(
      'openssl',
      [
        ...['s_server', '-accept', `${HOST}:0`, '-groups', 'P-384', '-debug'],
        ...['-cert', file(`${FRONT}.pem`), '-key', file(`${FRONT}.key`)],
        ...['-servername', BEHIND, '-cert2', file(`${BEHIND}.pem`), '-key2', file(`${BEHIND}.key`)],
      ],
      { stdio: ['pipe', 'pipe', 'pipe'] },
    )
    const found = new Promise<number>((resolve, reject) => {
      server.once('error', reject).once('exit', () => reject(new Error(`openssl ended: ${said}`)))
      for (const stream of [server.stdout, server.stderr]) {
        stream?.setEncoding('utf8').on('data', (text: string) => {
          said += text
          const match = /ACCEPT \S*:(\d+)/.exec(said)
          if (match) resolve(Number(match[1]))
        })
      }
    })
    port = await found
    gateway = await startTestGateway({
      policy: { ceiling: { kind: 'allow-all' } },
      network: { allowPrivate: ['127.66.0.0/24'], hosts: { [FRONT]: HOST } },
      sni: { ports: [port] },
    })
  })
  afterAll(async () => {
    await gateway.close()
    server.removeAllListeners('exit').kill()
    await once(server, 'exit')
    fs.rmSync(folder, { recursive: true, force: true })
  })

  afterEach(() => {
    for (const wire of wires.splice(0)) wire.destroy()
  })

  test('does so when nobody is between', async () => {
    const wire = await WireClient.connect({ host: HOST, port })
    wires.push(wire)
    said = ''
    wire.send(hello(FRONT, X25519))
    expect(await nextRecord(wire)).toEqual(RETRY)
    wire.send(Buffer.concat([CHANGE_CIPHER, hello(BEHIND, P384)]))
    expect(await nextRecord(wire)).toEqual({ type: HANDSHAKE, isRetry: false })
    await expect.poll(() => said).toContain('Switching server context')
  })

  test('is never given one with another name', async () => {
    const wire = await tunnel()
    said = ''
    const first = hello(FRONT, X25519)
    wire.send(first)
    expect(await nextRecord(wire)).toEqual(RETRY)
    wire.send(Buffer.concat([CHANGE_CIPHER, hello(BEHIND, P384)]))
    expect(await nextRecord(wire)).toBe('closed')
    const line = await gateway.auditLine((entry) => entry['kind'] === 'close')
    expect(line).toMatchObject({ close_reason: 'sni_mismatch', sni: BEHIND, bytes_out: first.length })
    expect(said).not.toContain('Switching server context')
  })

  test('is given one with the same name', async () => {
    const wire = await tunnel()
    wire.send(hello(FRONT, X25519))
    expect(await nextRecord(wire)).toEqual(RETRY)
    wire.send(Buffer.concat([CHANGE_CIPHER, hello(FRONT, P384)]))
    expect(await nextRecord(wire)).toEqual({ type: HANDSHAKE, isRetry: false })
  })

  test.each(['X25519:P-384', 'P-384'])('serves an honest client that offers %s', async (groups) => {
    const wire = await tunnel()
    wire.socket.removeAllListeners('data')
    const client = tls.connect({ socket: wire.socket, servername: FRONT, ca: authority.cert, ecdhCurve: groups })
    await once(client, 'secureConnect')
    client.write('up\n')
    await expect.poll(() => said).toContain('up\n')
    server.stdin?.write('down\n')
    expect(String((await once(client, 'data'))[0])).toBe('down\n')
    client.destroy()
  })
})
