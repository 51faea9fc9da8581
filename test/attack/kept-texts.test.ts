/**
 * What is kept of a request or a file is no part of the whole text: V8 would keep all of that with it. A client could otherwise fill memory with heads of 32 KiB
 * of which the gateway remembers a name, and a tunnel would hold the token that opened it for as long as it lives.
 */
import net from 'node:net'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { afterEach, expect, test } from 'vitest'
import { parseConfigText } from '../../proxy/config/load.ts'
import { parseConnectHead } from '../../proxy/dialects/connect-head.ts'
import { parseAbsoluteTarget } from '../../proxy/dialects/http-target.ts'
import { startTestGateway, type TestGateway } from '../integration/test-gateway.ts'
import { type Origin, startEcho } from '../origins/origins.ts'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void
const MIB = 1024 * 1024
const HOST = '127.66.0.9'

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close()
})

/** Bytes of heap that are in use once nothing is left to collect. */
function heldBytes(): number {
  collect()
  collect()
  return process.memoryUsage().heapUsed
}

test('of a head nothing stays but the texts that it was read for', () => {
  const filler = `X-Filler: ${'f'.repeat(30_000)}\r\n`
  const head = (at: number): Buffer =>
    Buffer.from(`CONNECT host-${at}.example.test:443 HTTP/1.1\r\ntraceparent: 00-${'a'.repeat(48)}-01\r\n${filler}\r\n`)
  const before = heldBytes()
  const kept = Array.from({ length: 1000 }, (_none, at) => {
    const read = parseConnectHead(head(at))
    const refused = parseConnectHead(Buffer.from(`CONNECT us-er@host-${at}.example.test:443 HTTP/1.1\r\n${filler}\r\n`))
    if (read.state !== 'done' || refused.state !== 'refused') throw new Error('the heads are not read as meant')
    return [read.target, read.traceparent, refused.target]
  })
  expect(heldBytes() - before).toBeLessThan(4 * MIB)
  expect(kept[999]).toEqual(['host-999.example.test:443', `00-${'a'.repeat(48)}-01`, '***@host-999.example.test:443'])
})

test('of a URL nothing stays but the host and port', () => {
  const before = heldBytes()
  const kept = Array.from({ length: 1000 }, (_none, at) => {
    const long = `/${'p'.repeat(10_000)}${at}`
    const read = parseAbsoluteTarget('GET', `http://host-${at}.example.test:8080${long}`)
    const refused = parseAbsoluteTarget('GET', `https://host-${at}.example.test:8080${long}`)
    if (!read.ok || refused.ok) throw new Error('the URLs are not read as meant')
    return [read.target, refused.requested]
  })
  expect(heldBytes() - before).toBeLessThan(4 * MIB)
  expect(kept[999]).toEqual(['host-999.example.test:8080', 'https://host-999.example.test:8080'])
})

test('of a configuration file nothing stays but its values', () => {
  const file = (at: number): string =>
    `# ${'c'.repeat(100_000)}\nissuers:\n  - { issuer: https://issuer-${at}.example.test, jwks: ./jwks.json, algorithms: [ES256] }\n`
  const before = heldBytes()
  const kept = Array.from({ length: 100 }, (_none, at) => {
    const parsed = parseConfigText(file(at), { folder: '/' })
    if (!parsed.ok) throw new Error(JSON.stringify(parsed.faults))
    return parsed.config.issuers[0]?.issuer
  })
  expect(heldBytes() - before).toBeLessThan(5 * MIB)
  expect(kept[99]).toBe('https://issuer-99.example.test')
})

test('a gateway keeps no head of what it let out or refused', async () => {
  const origin: Origin = await startEcho(HOST)
  closers.push(() => origin.close())
  const gateway = await startTestGateway({
    policy: { ceiling: { kind: 'allow-all' } },
    network: { allowPrivate: ['127.66.0.0/24'], hosts: { 'echo.example.test': HOST } },
    limits: { turnAway: false, perSandbox: { tunnels: 1000, newPerSecond: 10_000 } },
  })
  closers.push(() => gateway.close())
  const token = await gateway.token({ egress: { kind: 'static', allowedHosts: [`echo.example.test:${origin.port}`] } })
  await asked(gateway, 'echo.example.test', origin.port, token, 5)
  const before = heldBytes()
  const open = await asked(gateway, 'echo.example.test', origin.port, token, 200)
  const refused = await asked(gateway, 'other.example.test', 443, token, 200)
  expect(new Set(open.map(({ status }) => status))).toEqual(new Set(['200']))
  expect(new Set(refused.map(({ status }) => status))).toEqual(new Set(['403']))
  for (const { socket } of refused) socket.destroy()
  expect(heldBytes() - before).toBeLessThan(5 * MIB)
})

/** So many CONNECTs one after the other, each with a head of 30 KiB; those that were let out stay open. */
async function asked(
  gateway: TestGateway,
  host: string,
  port: number,
  token: string,
  count: number,
): Promise<{ readonly socket: net.Socket; readonly status: string | undefined }[]> {
  const all = []
  for (let at = 0; at < count; at++) {
    const socket = net.connect(gateway.port, '127.0.0.1')
    closers.push(() => socket.destroy())
    socket.on('error', () => undefined)
    const line = `CONNECT ${host}:${port} HTTP/1.1\r\nProxy-Authorization: Bearer `
    socket.write(
      Buffer.concat([Buffer.from(line), Buffer.from(token), Buffer.from(`\r\nX: ${'f'.repeat(29_000)}\r\n\r\n`)]),
    )
    const answer = await new Promise<string>((resolve) => socket.once('data', (bytes) => resolve(String(bytes))))
    all.push({ socket, status: /^HTTP\/1\.1 (\d+)/.exec(answer)?.[1] })
  }
  return all
}
