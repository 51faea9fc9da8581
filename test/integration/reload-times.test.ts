/** Timeouts that a reload changes are those of plain HTTP too. */
import { createServer, type AddressInfo } from 'node:net'
import { once } from 'node:events'
import { afterEach, expect, test } from 'vitest'
import { startTestGateway, type TestGateway } from './test-gateway.ts'
import { WireClient } from './wire.ts'

const HOST = '127.66.0.12'
const ends: (() => unknown)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end()
})

async function start(timeouts: { headSeconds?: number; idleSeconds?: number }): Promise<TestGateway> {
  const gateway = await startTestGateway({
    policy: { ceiling: { kind: 'allow-all' } },
    network: { allowPrivate: ['127.66.0.0/24'], hosts: { 'origin.example.test': HOST } },
    timeouts,
  })
  ends.push(() => gateway.close())
  return gateway
}

async function connect(gateway: TestGateway): Promise<WireClient> {
  const client = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
  ends.push(() => client.destroy())
  return client
}

test('a shorter time for heads, also for a connection that was open', async () => {
  const gateway = await start({ headSeconds: 300 })
  const before = await connect(gateway)
  before.send('GET http://origin.exa')
  await new Promise((resolve) => setTimeout(resolve, 200)) // for the bytes to be read; there is nothing to see of that
  await gateway.gateway.reload(() => gateway.config({ timeouts: { headSeconds: 0.2 } }))
  const after = await connect(gateway)
  after.send('GET http://origin.exa')
  for (const client of [before, after]) expect(String(await client.over())).toMatch(/^HTTP\/1\.1 400 /)
})

test('a longer time for heads', async () => {
  const gateway = await start({ headSeconds: 0.2 })
  await gateway.gateway.reload(() => gateway.config({ timeouts: { headSeconds: 300 } }))
  const client = await connect(gateway)
  client.send('GET http://origin.exa')
  expect(await client.staysOpen(2500)).toBe(true)
})

test('a longer time without a byte, for an answer that takes its time', async () => {
  const origin = createServer((socket) => {
    socket.on('error', () => socket.destroy())
    socket.once('data', () => setTimeout(() => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'), 2500))
  }).listen(0, HOST)
  await once(origin, 'listening')
  ends.push(() => origin.close())
  const gateway = await start({ idleSeconds: 1 })
  const token = await gateway.token({ egress: { kind: 'allow-all' } })
  const ask = async (client: WireClient) => {
    const { port } = origin.address() as AddressInfo
    client.send(
      `GET http://origin.example.test:${port}/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`,
    )
    return (await client.answer())?.status
  }
  const before = await connect(gateway)
  const answer = ask(before)
  await gateway.auditLine((line) => line['kind'] === 'decision')
  await gateway.gateway.reload(() => gateway.config({ timeouts: { idleSeconds: 300 } }))
  expect(await answer).toBe(200)
  expect(await ask(await connect(gateway))).toBe(200)
})
