/** Of a connection that is over nothing is kept, however it ended: else whoever may connect at all fills the memory. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import net, { type AddressInfo } from 'node:net'
import { queryObjects } from 'node:v8'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { listenTcp } from '../../proxy/relay/listen.ts'
import { Side } from '../../proxy/relay/side.ts'
import { startTestGateway, type TestGateway } from '../integration/test-gateway.ts'
import { WireClient } from '../integration/wire.ts'

const HOST = '127.66.0.31'
const EACH = 20
const origin = createServer({ keepAliveTimeout: 60_000 }, (_request, response) => response.end('ok'))
let gateway: TestGateway
let target: string
let token: string

beforeAll(async () => {
  origin.listen(0, HOST)
  await once(origin, 'listening')
  target = `${HOST}:${(origin.address() as AddressInfo).port}`
  gateway = await startTestGateway({
    policy: { ceiling: { kind: 'allow-all' } },
    network: { allowPrivate: ['127.66.0.0/24'] },
  })
  token = `Proxy-Authorization: Bearer ${await gateway.token({ egress: { kind: 'static', allowedHosts: [`${HOST}:*`] } })}\r\n`
})
afterAll(async () => {
  await gateway.close()
  origin.closeAllConnections()
  origin.close()
})

/** Sides that something still holds; asking collects all others. */
const kept = (): number => queryObjects(Side, { format: 'count' })

test.each([
  ['a plain request', () => `GET http://${target}/ HTTP/1.1\r\nHost: x\r\n${token}\r\n`],
  ['a plain request, refused', () => `GET http://other.example.test/ HTTP/1.1\r\nHost: x\r\n${token}\r\n`],
  ['half a plain request', () => `GET http://${target}/ HTTP/1.1\r\nHo`],
  ['a request that Node cannot read', () => 'GET \x00\r\n\r\n'],
  ['CONNECT', () => `CONNECT ${target} HTTP/1.1\r\nHost: x\r\n${token}\r\n`],
  ['CONNECT, refused', () => `CONNECT other.example.test:443 HTTP/1.1\r\nHost: x\r\n${token}\r\n`],
  ['CONNECT to where nobody listens', () => `CONNECT ${HOST}:1 HTTP/1.1\r\nHost: x\r\n${token}\r\n`],
  ['CONNECT, challenged', () => `CONNECT ${target} HTTP/1.1\r\nHost: x\r\n\r\n`],
  ['half a CONNECT', () => `CONNECT ${target} HT`],
  ['SOCKS5 without a method', () => '\x05\x01\x00'],
  ['half a SOCKS5 greeting', () => '\x05'],
  ['rubbish', () => '\x16\x03\x01\x02\x00'],
  ['nothing at all', () => ''],
])('%s', async (_sentence, bytes) => {
  const visits = Array.from({ length: EACH }, (_none, index) => visit(bytes(), index % 2 === 0 ? 'end' : 'reset'))
  await Promise.all(visits)
  // Asking takes a collection: not too often.
  await expect.poll(kept, { timeout: 15_000, interval: 500 }).toBe(0)
})

/** Says something, waits for an answer where one comes at once, and leaves. */
async function visit(bytes: string, ending: 'end' | 'reset'): Promise<void> {
  const client = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
  client.send(bytes)
  await Promise.race([once(client.socket, 'data').catch(() => undefined), new Promise((go) => setTimeout(go, 100))])
  if (ending === 'end') client.socket.end()
  else client.socket.resetAndDestroy()
  if (!client.isOver) await once(client.socket, 'close').catch(() => undefined)
  client.destroy()
}

test('the count sees what is kept', async () => {
  const { promise, resolve } = Promise.withResolvers<Side>()
  const listener = await listenTcp({ host: '127.0.0.1', port: 0, onSide: resolve })
  const client = net.connect(listener.port)
  const side = await promise
  expect(kept()).toBe(1)
  side.destroy()
  client.destroy()
  await listener.close()
})
