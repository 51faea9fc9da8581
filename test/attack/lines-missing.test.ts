/** Every connection that said something leaves a line, however it ends; and no line holds what was sent as credentials. */
import net from 'node:net'
import { afterEach, expect, test } from 'vitest'
import type { ConfigInput } from '../../proxy/config/schema.ts'
import { startTestGateway, type TestGateway } from '../integration/test-gateway.ts'
import { WireClient } from '../integration/wire.ts'

const ends: (() => unknown)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end()
})

async function start(document: ConfigInput = {}): Promise<TestGateway> {
  const gateway = await startTestGateway({
    policy: { ceiling: { kind: 'allow-all' } },
    sni: { ports: [] },
    ...document,
  })
  ends.push(() => gateway.close())
  return gateway
}

async function send(port: number, bytes: string): Promise<WireClient> {
  const client = await WireClient.connect({ host: '127.0.0.1', port })
  ends.push(() => client.destroy())
  client.send(bytes)
  return client
}

test.each([
  ['CONNECT', 'CONNECT example.test:443 HT'],
  ['SOCKS5', '\x05\x02\x00'],
  ['plain HTTP', 'GET http://example.test/ HTTP/1.1\r\nHost: exa'],
])('half a request and a reset: %s', async (_dialect, bytes) => {
  const gateway = await start()
  const client = await send(gateway.port, bytes)
  await new Promise((resolve) => setTimeout(resolve, 100)) // for the bytes to be read, which nothing shows
  client.socket.resetAndDestroy()
  await gateway.auditLine(({ reason }) => reason === 'request_malformed')
})

test.each([
  ['a name', 'hunter2-opaque-secret@example.test'],
  ['a name and a password', 'user:hunter2-opaque-secret@example.test'],
])('user information in a SOCKS5 target: %s', async (_what, name) => {
  const gateway = await start()
  const bound = await gateway.gateway.bind({ port: 0, identity: { sandbox: 's', egress: { kind: 'allow-all' } } })
  const port = bound.address.kind === 'tcp' ? bound.address.port : 0
  await send(port, `\x05\x01\x00\x05\x01\x00\x03${String.fromCharCode(name.length)}${name}\x01\xbb`)
  const line = await gateway.auditLine(({ reason }) => reason === 'target_malformed')
  expect(JSON.stringify(line)).not.toContain('hunter2')
})

test('a password that an URL parser would cut in two', async () => {
  const gateway = await start()
  await send(gateway.port, 'GET http://user:hunter2/opaque@example.test/ HTTP/1.1\r\nHost: x\r\n\r\n')
  const line = await gateway.auditLine(({ reason }) => reason === 'target_malformed')
  expect(JSON.stringify(line)).not.toContain('hunter2')
})

test.each(['deny', 'allow'] as const)(
  'what is being dialled when the gateway closes (onFailure: %s)',
  async (onFailure) => {
    let seen = ''
    const waiting: net.Socket[] = []
    const upstream = net.createServer((socket) => {
      socket.on('error', () => socket.destroy())
      waiting.push(socket)
      socket.on('data', (bytes: Buffer) => (seen += bytes.toString('latin1')))
    })
    await new Promise<void>((resolve) => upstream.listen(0, '127.0.0.1', resolve))
    ends.push(() => {
      for (const socket of waiting) socket.destroy()
      upstream.close()
    })
    const { port } = upstream.address() as net.AddressInfo
    const gateway = await start({
      audit: { onFailure },
      network: { upstream: { url: `http://127.0.0.1:${port}`, resolve: 'upstream' } },
    })
    const token = await gateway.token({ egress: { kind: 'allow-all' } })
    const head = `CONNECT example.test:443 HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`
    await send(gateway.port, `${head}early secret`)
    for (let tries = 0; tries < 100 && !seen.includes('\r\n\r\n'); tries++) await new Promise((r) => setTimeout(r, 10))
    await gateway.gateway.close()
    waiting[0]?.write('HTTP/1.1 200 OK\r\n\r\n')
    await new Promise((resolve) => setTimeout(resolve, 200)) // what must not come needs time to come
    expect(seen).not.toContain('early secret')
    expect(gateway.audit().filter(({ kind }) => kind === 'decision')).toHaveLength(1)
  },
)
