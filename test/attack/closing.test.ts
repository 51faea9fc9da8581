/** A gateway that closes leaves a line of whatever it had begun to serve, however far that had come. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { startTestGateway, type TestGateway } from '../integration/test-gateway.ts'
import { WireClient } from '../integration/wire.ts'

const SLOW_ISSUER = 'https://slow.example.test'
const TOKEN = [{ typ: 'egress+jwt', alg: 'ES256', kid: 'k' }, { iss: SLOW_ISSUER }, {}]
  .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'))
  .join('.')
const ends: (() => unknown)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end()
})

/** Asked for keys or policies, it never answers. */
const silent = createServer(() => {
  asked++
})
let asked = 0
let gateway: TestGateway
beforeEach(async () => {
  asked = 0
  silent.listen(0, '127.0.0.1')
  await once(silent, 'listening')
  const url = `http://127.0.0.1:${(silent.address() as AddressInfo).port}`
  gateway = await startTestGateway({
    issuers: [{ issuer: SLOW_ISSUER, algorithms: ['ES256'], jwks: `${url}/jwks` }],
    policy: { ceiling: { kind: 'allow-all' }, tenantResolver: { url: `${url}/policy/{tenant}` } },
    network: { hosts: { 'slow.example.test': '203.0.113.7' } },
  })
  ends.push(() => silent.close())
  ends.push(() => gateway.close())
  ends.push(() => silent.closeAllConnections())
})

async function send(bytes: string): Promise<WireClient> {
  const client = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
  ends.push(() => client.destroy())
  client.send(bytes)
  return client
}

/** The lines about connections, after the gateway has closed. */
async function linesAfterClose(): Promise<Record<string, unknown>[]> {
  await gateway.gateway.close()
  return gateway.audit().filter((line) => line['kind'] !== 'admin' && line['kind'] !== 'checkpoint')
}

const HEAD = (token: string) => `Host: x\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`

test.each([
  ['CONNECT', `CONNECT slow.example.test:443 HTTP/1.1\r\n${HEAD(TOKEN)}`, 'connect'],
  ['plain HTTP', `GET http://slow.example.test/ HTTP/1.1\r\n${HEAD(TOKEN)}`, 'http'],
  ['SOCKS5', `\x05\x01\x02\x01\x01u${String.fromCharCode(TOKEN.length)}${TOKEN}`, 'socks5'],
])('%s whose keys are still being fetched', async (_what, bytes, dialect) => {
  await send(bytes)
  await expect.poll(() => asked).toBeGreaterThan(0)
  await new Promise((resolve) => setTimeout(resolve, 200)) // for the head to be read; there is nothing to see of that
  expect(await linesAfterClose()).toMatchObject([{ dialect, effective: 'deny', reason: 'draining' }])
})

test('a request whose tenant is still being asked for', async () => {
  const token = await gateway.token({ tenant: 'acme', egress: { kind: 'allow-all' } })
  const before = asked
  await send(`CONNECT slow.example.test:443 HTTP/1.1\r\n${HEAD(token)}`)
  await expect.poll(() => asked).toBeGreaterThan(before)
  expect(await linesAfterClose()).toMatchObject([
    { requested: 'slow.example.test:443', effective: 'deny', reason: 'policy_unavailable' },
  ])
})

test.each([
  ['CONNECT', 'CONNECT slow.exam'],
  ['plain HTTP', 'GET http://slow.example.test/ HT'],
  ['SOCKS5', '\x05\x01'],
])('half a head of %s', async (_what, bytes) => {
  await send(bytes)
  await new Promise((resolve) => setTimeout(resolve, 200)) // as above
  expect(await linesAfterClose()).toMatchObject([{ effective: 'deny', reason: 'request_malformed' }])
})
