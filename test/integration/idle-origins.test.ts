/** A kept-alive connection to an origin that nobody uses at the moment ends with the permission under which it was used. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import net, { type AddressInfo } from 'node:net'
import path from 'node:path'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import type { ConfigInput } from '../../proxy/config/schema.ts'
import { openState } from '../../proxy/state/state.ts'
import { startTestGateway, type TestGateway } from './test-gateway.ts'
import { WireClient } from './wire.ts'

const HOST = '127.66.0.11'
const EGRESS = { egress: { kind: 'allow-all' } }
/** Keeps connections for longer than any test takes. */
const server = createServer({ keepAliveTimeout: 60_000 }, (_request, response) => response.end('ok'))
const open = new Set<net.Socket>()
server.on('connection', (socket) => {
  open.add(socket)
  socket.on('close', () => open.delete(socket))
})
const ends: (() => unknown)[] = []
let port: number

beforeAll(async () => {
  server.listen(0, HOST)
  await once(server, 'listening')
  port = (server.address() as AddressInfo).port
})
afterAll(() => {
  server.closeAllConnections()
  server.close()
})
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end()
  await expect.poll(() => open.size).toBe(0)
})

const HOSTS = { 'origin.example.test': HOST, 'other.example.test': HOST }
const OPEN: ConfigInput = {
  policy: { ceiling: { kind: 'allow-all' } },
  network: { allowPrivate: ['127.66.0.0/24'], hosts: HOSTS },
}

async function start(): Promise<TestGateway> {
  const gateway = await startTestGateway(OPEN)
  ends.push(() => gateway.close())
  return gateway
}

async function ask(client: WireClient, token: string, host = 'origin.example.test'): Promise<string> {
  client.send(`GET http://${host}:${port}/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`)
  const answer = await client.answer()
  return answer?.headers['x-deny-reason']?.join() ?? String(answer?.status)
}

/** A connection that was answered and is kept. */
async function idle(gateway: TestGateway, token: string, host?: string): Promise<WireClient> {
  const client = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
  ends.push(() => client.destroy())
  const before = open.size
  expect(await ask(client, token, host)).toBe('200')
  expect(open.size).toBe(before + 1)
  return client
}

test('after a revocation, within a second; another identity keeps its own', async () => {
  const gateway = await start()
  const token = await gateway.token({ ...EGRESS, jti: 'doomed' })
  const client = await idle(gateway, token)
  const otherToken = await gateway.token({ ...EGRESS, sub: 'sbx_other' })
  const bystander = await idle(gateway, otherToken)
  const state = await openState(path.join(gateway.folder, 'state'))
  await state.revocations.revoke({ tokenId: 'doomed' })
  state.close()
  await expect.poll(() => open.size, { timeout: 1000 }).toBe(1)
  expect(await ask(client, token)).toBe('token_revoked')
  expect(await ask(bystander, otherToken)).toBe('200')
  expect(open.size).toBe(1)
})

test('after a reload that no longer allows the host; another host is kept', async () => {
  const gateway = await start()
  const token = await gateway.token(EGRESS)
  await idle(gateway, token)
  await idle(gateway, token, 'other.example.test')
  await gateway.gateway.reload(() =>
    gateway.config({ policy: { ceiling: { kind: 'allow-all' }, deniedHosts: ['origin.example.test'] } }),
  )
  await expect.poll(() => open.size, { timeout: 1000 }).toBe(1)
})

test('at the expiry of the token under which it was used last', async () => {
  const gateway = await start()
  const now = Math.floor(Date.now() / 1000)
  const short = await gateway.token({ ...EGRESS, exp: now + 2 })
  const client = await idle(gateway, await gateway.token(EGRESS))
  expect(await ask(client, short)).toBe('200')
  expect(open.size).toBe(1)
  await expect.poll(() => open.size, { timeout: 3500 }).toBe(0)
  expect(Date.now()).toBeGreaterThanOrEqual((now + 2) * 1000)
})

test('of a bound listener that is closed, and whose policy changes', async () => {
  const gateway = await start()
  const allowed = { kind: 'allow-all' } as const
  const bind = () => gateway.gateway.bind({ port: 0, identity: { sandbox: 'sbx_1', egress: allowed } })
  for (const isClosed of [true, false]) {
    const bound = await bind()
    const client = await WireClient.connect({ port: (bound.address as { port: number }).port, host: '127.0.0.1' })
    ends.push(() => client.destroy())
    expect(await ask(client, 'none')).toBe('200')
    expect(open.size).toBe(1)
    if (isClosed) await bound.close()
    else bound.setEgress({ kind: 'deny-all' })
    await expect.poll(() => open.size, { timeout: 1000 }).toBe(0)
  }
})
