/** A tunnel doesn't outlive its permission by a second: expiry, revocation, reload, idleness, quota, drain; and each end is written down. */
import { execFileSync } from 'node:child_process'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { ConfigInput } from '../../proxy/config/schema.ts'
import { openState } from '../../proxy/state/state.ts'
import { type HttpSeen, type Origin, startEcho, startHttp } from '../origins/origins.ts'
import { startTestGateway, type TestGateway } from './test-gateway.ts'
import { WireClient } from './wire.ts'

const HOST = '127.66.0.3'
let echo: Origin
let http: Origin & { readonly requests: HttpSeen[] }
const gateways: TestGateway[] = []
const clients: WireClient[] = []

beforeAll(async () => {
  echo = await startEcho(HOST)
  http = await startHttp(HOST)
})
afterAll(() => Promise.all([echo.close(), http.close()]))
afterEach(async () => {
  for (const client of clients.splice(0)) client.destroy()
  await Promise.all(gateways.splice(0).map((gateway) => gateway.close()))
})

const OPEN: ConfigInput = {
  policy: { ceiling: { kind: 'allow-all' } },
  network: { allowPrivate: ['127.66.0.0/24'], hosts: { 'echo.example.test': HOST } },
}

async function start(document: ConfigInput = {}): Promise<TestGateway> {
  const gateway = await startTestGateway({ ...OPEN, ...document })
  gateways.push(gateway)
  return gateway
}

/** An open tunnel to the echo, proven by a byte. */
async function openTunnel(gateway: TestGateway, token: string, host = 'echo.example.test'): Promise<WireClient> {
  const client = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
  clients.push(client)
  client.send(`CONNECT ${host}:${echo.port} HTTP/1.1\r\nHost: ${host}\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`)
  expect((await client.answer())?.status).toBe(200)
  client.send('x')
  expect((await client.take(1)).toString()).toBe('x')
  return client
}

async function connectStatus(gateway: TestGateway, token: string): Promise<string> {
  const client = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
  clients.push(client)
  client.send(
    `CONNECT echo.example.test:${echo.port} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`,
  )
  const answer = await client.answer()
  return answer?.status === 200 ? '200' : `${answer?.status ?? 0} ${answer?.headers['x-deny-reason']?.join() ?? ''}`
}

const EGRESS = { egress: { kind: 'allow-all' } }

async function closeReasonOf(gateway: TestGateway): Promise<unknown> {
  return (await gateway.auditLine((line) => line['kind'] === 'close'))['close_reason']
}

describe('a tunnel ends', () => {
  test('at the expiry of its token', async () => {
    const gateway = await start()
    const now = Math.floor(Date.now() / 1000)
    const client = await openTunnel(gateway, await gateway.token({ ...EGRESS, exp: now + 2 }))
    await client.over()
    const lateMs = Date.now() - (now + 2) * 1000
    expect(lateMs).toBeGreaterThanOrEqual(0)
    expect(lateMs).toBeLessThan(1000)
    expect(await closeReasonOf(gateway)).toBe('token_expired')
  })

  test('thirty seconds after the expiry when it was opened inside the leeway', async () => {
    const gateway = await start()
    const now = Math.floor(Date.now() / 1000)
    const client = await openTunnel(gateway, await gateway.token({ ...EGRESS, exp: now - 28 }))
    expect(await client.staysOpen(500)).toBe(true)
    await client.over()
    expect(Date.now() - (now + 2) * 1000).toBeLessThan(1000)
    expect(await closeReasonOf(gateway)).toBe('token_expired')
  })

  test.each([
    ['its token', (jti: string) => ({ tokenId: jti })],
    ['its sandbox', () => ({ sandbox: 'sbx_doomed' })],
    ['its tenant', () => ({ tenant: 'doomed' })],
  ])(
    'within a second of the revocation of %s by another process, and the token is dead from then on',
    async (_what, rule) => {
      const gateway = await start({
        policy: {
          ceiling: { kind: 'allow-all' },
          tenants: { doomed: { kind: 'allow-all' }, other: { kind: 'allow-all' } },
        },
      })
      const token = await gateway.token({ ...EGRESS, jti: 'doomed-1', sub: 'sbx_doomed', tenant: 'doomed' })
      const client = await openTunnel(gateway, token)
      const bystander = await openTunnel(gateway, await gateway.token({ ...EGRESS, sub: 'sbx_other', tenant: 'other' }))
      const state = await openState(path.join(gateway.folder, 'state'))
      const beforeMs = Date.now()
      await state.revocations.revoke(rule('doomed-1'))
      state.close()
      await client.over(2000)
      expect(Date.now() - beforeMs).toBeLessThan(1000)
      expect(await closeReasonOf(gateway)).toBe('token_revoked')
      expect(await connectStatus(gateway, token)).toBe('407 token_revoked')
      bystander.send('y')
      expect((await bystander.take(1)).toString()).toBe('y')
    },
  )

  test('when a reload no longer allows it, and others stay', async () => {
    const gateway = await start({
      network: { ...OPEN.network, hosts: { 'echo.example.test': HOST, 'kept.example.test': HOST } },
    })
    const token = await gateway.token(EGRESS)
    const client = await openTunnel(gateway, token)
    const kept = await openTunnel(gateway, token, 'kept.example.test')
    await gateway.gateway.reload(() =>
      gateway.config({ policy: { ceiling: { kind: 'allow-all' }, deniedHosts: ['echo.example.test'] } }),
    )
    await client.over(1000)
    expect(await closeReasonOf(gateway)).toBe('policy_changed')
    kept.send('k')
    expect((await kept.take(1)).toString()).toBe('k')
    expect(await connectStatus(gateway, token)).toBe('403 host_denied')
  })

  test('when a reload takes back the private range that it goes to', async () => {
    const gateway = await start()
    const client = await openTunnel(gateway, await gateway.token(EGRESS))
    await gateway.gateway.reload(() => gateway.config({ network: { hosts: { 'echo.example.test': HOST } } }))
    await client.over(1000)
    expect(await closeReasonOf(gateway)).toBe('policy_changed')
  })

  test('when a reload denies it, though its tenant has yet to be asked for', async () => {
    const unanswered = new Set<ServerResponse>()
    let answers = true
    const service = createServer((_request, response) => {
      if (answers) response.end(JSON.stringify({ kind: 'allow-all' }))
      else unanswered.add(response)
    })
    await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve))
    try {
      const { port } = service.address() as AddressInfo
      const policy = {
        ceiling: { kind: 'allow-all' as const },
        tenantResolver: { url: `http://127.0.0.1:${port}/{tenant}` },
      }
      const gateway = await start({ policy })
      const client = await openTunnel(gateway, await gateway.token({ ...EGRESS, tenant: 'acme' }))
      answers = false
      const reload = gateway.gateway.reload(() =>
        gateway.config({ policy: { ...policy, deniedHosts: ['echo.example.test'] } }),
      )
      await client.over(1000)
      expect(await closeReasonOf(gateway)).toBe('policy_changed')
      for (const response of unanswered) response.end(JSON.stringify({ kind: 'allow-all' }))
      await reload
    } finally {
      service.closeAllConnections()
      service.close()
    }
  })

  test('when a reload takes its host out of a set that only its token names', async () => {
    const policy = { ceiling: { kind: 'allow-all' as const } }
    const gateway = await start({ policy: { ...policy, sets: { corp: ['*.example.test:*', '127.66.0.0/24:*'] } } })
    const egress = { kind: 'static', allowedHosts: ['@corp'] }
    const client = await openTunnel(gateway, await gateway.token({ egress }))
    await gateway.gateway.reload(() => gateway.config({ policy: { ...policy, sets: { corp: ['other.test'] } } }))
    await client.over(1000)
    expect(await closeReasonOf(gateway)).toBe('policy_changed')
  })

  test('when a reload no longer knows its issuer', async () => {
    const gateway = await start()
    const token = await gateway.token(EGRESS)
    const client = await openTunnel(gateway, token)
    const config = gateway.config({})
    await gateway.gateway.reload(() => ({
      ...config,
      issuers: config.issuers.filter(({ issuer }) => issuer === 'urn:s'),
    }))
    await client.over(1000)
    expect(await closeReasonOf(gateway)).toBe('token_revoked')
    expect(await connectStatus(gateway, token)).toBe('407 token_issuer_unknown')
  })

  test('a reload that can not be used changes nothing', async () => {
    const gateway = await start()
    const token = await gateway.token(EGRESS)
    const client = await openTunnel(gateway, token)
    const config = gateway.config({})
    const broken = { ...config, issuers: [{ ...config.issuers[0]!, jwks: path.join(gateway.folder, 'absent.json') }] }
    await expect(gateway.gateway.reload(() => broken)).rejects.toMatchObject({ code: 'SALLYPORT_KEY_UNREADABLE' })
    client.send('z')
    expect((await client.take(1)).toString()).toBe('z')
    expect(await connectStatus(gateway, token)).toBe('200')
    expect(await gateway.auditLine((line) => line['action'] === 'reload_failed')).toMatchObject({
      kind: 'admin',
      detail: expect.stringMatching(/^SALLYPORT_[A-Z_]+: .*[a-z] [a-z]/) as string,
    })
  })

  test('when it idles', async () => {
    const gateway = await start({ timeouts: { idleSeconds: 1 } })
    const client = await openTunnel(gateway, await gateway.token(EGRESS))
    await client.over(3000)
    expect(await closeReasonOf(gateway)).toBe('idle_timeout')
  })

  test('when the day is used up, and what comes then is refused', async () => {
    const gateway = await start({ limits: { perSandbox: { bytesPerDay: 100_000 } } })
    const token = await gateway.token(EGRESS)
    const client = await openTunnel(gateway, token)
    client.send(Buffer.alloc(200_000, 1))
    await client.over(3000)
    expect(await closeReasonOf(gateway)).toBe('byte_quota')
    expect(await connectStatus(gateway, token)).toBe('429 byte_quota')
  })
})

test('refused credentials are written down with where they came from', async () => {
  const gateway = await start()
  expect(await connectStatus(gateway, 'nonsense')).toBe('407 token_malformed')
  expect(await gateway.auditLine((line) => line['kind'] === 'auth')).toMatchObject({
    reason: 'token_malformed',
    client: expect.stringMatching(/^127\.0\.0\.1:\d+$/) as string,
  })
})

describe('limits', () => {
  test('tunnels of a sandbox, with Retry-After, and a place is given back when one ends', async () => {
    const gateway = await start({ limits: { perSandbox: { tunnels: 2 } } })
    const token = await gateway.token(EGRESS)
    const first = await openTunnel(gateway, token)
    await openTunnel(gateway, token)
    expect(await connectStatus(gateway, token)).toBe('429 tunnel_limit')
    expect(await connectStatus(gateway, await gateway.token({ ...EGRESS, sub: 'sbx_other' }))).toBe('200')
    first.destroy()
    await gateway.auditLine((line) => line['kind'] === 'close')
    expect(await connectStatus(gateway, token)).toBe('200')
  })

  test('a refused, an unresolvable and an unreachable connection each give their place back', async () => {
    const gateway = await start({ limits: { perSandbox: { tunnels: 1, newPerSecond: 1000 } } })
    const token = await gateway.token(EGRESS)
    const ask = async (target: string) => {
      const client = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
      clients.push(client)
      client.send(`CONNECT ${target} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`)
      return (await client.answer())?.headers['x-deny-reason']?.join()
    }
    for (let i = 0; i < 3; i++) {
      expect(await ask('echo.example.test:1')).toBe('connect_refused')
      expect(await ask('10.0.0.1:80')).toBe('address_prohibited')
    }
    expect(await connectStatus(gateway, token)).toBe('200')
  })

  test('the whole gateway being full is 503', async () => {
    const gateway = await start({ limits: { tunnels: 1 } })
    await openTunnel(gateway, await gateway.token(EGRESS))
    expect(await connectStatus(gateway, await gateway.token({ ...EGRESS, sub: 'sbx_2' }))).toBe('503 gateway_busy')
  })
})

describe('a plain HTTP exchange', () => {
  test('is cut by a revocation in the middle of its answer', async () => {
    const gateway = await start()
    const client = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
    clients.push(client)
    // The echo never answers with HTTP: the exchange waits until it is cut.
    const token = await gateway.token({ ...EGRESS, jti: 'http-1' })
    client.send(
      `GET http://echo.example.test:${echo.port}/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`,
    )
    await gateway.auditLine((line) => line['kind'] === 'decision' && line['dialect'] === 'http')
    const state = await openState(path.join(gateway.folder, 'state'))
    await state.revocations.revoke({ tokenId: 'http-1' })
    state.close()
    await client.over(2000)
    await gateway.auditLine((line) => line['kind'] === 'close')
  })
})

describe('bound listeners', () => {
  test('carry the identity, need no token, and are dead when closed', async () => {
    const gateway = await start()
    const socket = path.join(gateway.folder, 'sbx.sock')
    const bound = await gateway.gateway.bind({
      path: socket,
      identity: { sandbox: 'sbx_bound', egress: { kind: 'static', allowedHosts: [`echo.example.test:${echo.port}`] } },
    })
    const client = await WireClient.connect({ path: socket })
    clients.push(client)
    client.send(`CONNECT echo.example.test:${echo.port} HTTP/1.1\r\nHost: x\r\n\r\n`)
    expect((await client.answer())?.status).toBe(200)
    const line = await gateway.auditLine((each) => each['kind'] === 'decision')
    expect(line).toMatchObject({ sandbox: 'sbx_bound', token_id: bound.tokenId, client: 'unix' })

    const refused = await WireClient.connect({ path: socket })
    clients.push(refused)
    refused.send(
      `CONNECT other.example.test:443 HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${await gateway.token(EGRESS)}\r\n\r\n`,
    )
    expect((await refused.answer())?.headers['x-deny-reason']).toEqual(['host_not_allowed'])

    await bound.close()
    await client.over(1000)
    await expect(WireClient.connect({ path: socket })).rejects.toThrow()
  })

  test('obey another policy at once: what it no longer allows is cut', async () => {
    const gateway = await start()
    const allowed = { kind: 'static', allowedHosts: [`echo.example.test:${echo.port}`] } as const
    const bound = await gateway.gateway.bind({ port: 0, identity: { sandbox: 'sbx_1', egress: allowed } })
    const { port } = bound.address as { port: number }
    const ask = async () => {
      const client = await WireClient.connect({ port, host: '127.0.0.1' })
      clients.push(client)
      client.send(`CONNECT echo.example.test:${echo.port} HTTP/1.1\r\nHost: x\r\n\r\n`)
      return { client, status: (await client.answer())?.status }
    }
    const { client, status } = await ask()
    expect(status).toBe(200)
    expect(() => bound.setEgress({ kind: 'static', allowedHosts: ['*'] })).toThrow(
      expect.objectContaining({ code: 'SALLYPORT_POLICY_INVALID' }),
    )
    expect((await ask()).status).toBe(200)
    bound.setEgress({ kind: 'deny-all' })
    await client.over(1000)
    expect(await closeReasonOf(gateway)).toBe('policy_changed')
    expect((await ask()).status).toBe(403)
    bound.setEgress(allowed)
    expect((await ask()).status).toBe(200)
  })

  test('a port that is bound is not reachable through the gateway itself', async () => {
    const gateway = await start({ network: { allowPrivate: ['127.0.0.0/8'] } })
    const bound = await gateway.gateway.bind({ port: 0, identity: { sandbox: 'sbx_1', egress: { kind: 'allow-all' } } })
    const { port } = bound.address as { port: number }
    const client = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
    clients.push(client)
    client.send(
      `CONNECT 127.0.0.1:${port} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${await gateway.token(EGRESS)}\r\n\r\n`,
    )
    expect((await client.answer())?.headers['x-deny-reason']).toEqual(['address_prohibited'])
  })

  test('a resolver decides what the sandbox may reach; one that throws refuses', async () => {
    const gateway = await start()
    let answer: () => Promise<string[]> = () => Promise.resolve([`echo.example.test:${echo.port}`])
    const good = await gateway.gateway.bind({
      port: 0,
      identity: { sandbox: 'sbx_1', egress: { kind: 'resolver', resolve: () => answer() } },
    })
    const ask = async (port: number) => {
      const client = await WireClient.connect({ port, host: '127.0.0.1' })
      clients.push(client)
      client.send(`CONNECT echo.example.test:${echo.port} HTTP/1.1\r\nHost: x\r\n\r\n`)
      const reply = await client.answer()
      return reply?.status === 200 ? '200' : reply?.headers['x-deny-reason']?.join()
    }
    expect(await ask((good.address as { port: number }).port)).toBe('200')
    answer = () => Promise.reject(new Error('down'))
    const bad = await gateway.gateway.bind({
      port: 0,
      identity: { sandbox: 'sbx_2', egress: { kind: 'resolver', resolve: () => answer() } },
    })
    expect(await ask((bad.address as { port: number }).port)).toBe('policy_unavailable')
  })
})

describe('draining', () => {
  test('refuses what is new, waits for what is open, cuts what is left', async () => {
    const gateway = await start({ timeouts: { drainSeconds: 1 } })
    const token = await gateway.token(EGRESS)
    const client = await openTunnel(gateway, token)
    const drained = gateway.gateway.drain()
    expect(await connectStatus(gateway, token)).toBe('503 draining')
    client.send('d')
    expect((await client.take(1)).toString()).toBe('d')
    await drained
    await client.over(1000)
    expect(await closeReasonOf(gateway)).toBe('drain_deadline')
  })

  test('is over at once when nothing is open', async () => {
    const gateway = await start({ timeouts: { drainSeconds: 30 } })
    const beforeMs = performance.now()
    await gateway.gateway.drain()
    expect(performance.now() - beforeMs).toBeLessThan(1000)
  })
})

describe('closing the gateway', () => {
  test('cuts what is open and writes its end down before the last line', async () => {
    const gateway = await startTestGateway(OPEN)
    const client = await openTunnel(gateway, await gateway.token(EGRESS))
    const lines = () => gateway.audit()
    await gateway.gateway.close()
    await client.over(1000)
    const close = lines().find((line) => line['kind'] === 'close')
    expect(close?.['close_reason']).toBe('drain_deadline')
    expect(Number(lines().find((line) => line['action'] === 'stop')?.['seq'])).toBeGreaterThan(Number(close?.['seq']))
    await gateway.close()
  })

  test('a kept-alive connection of a bound listener that was closed gets nothing more', async () => {
    const gateway = await start()
    const bound = await gateway.gateway.bind({ port: 0, identity: { sandbox: 'sbx_1', egress: { kind: 'allow-all' } } })
    const client = await WireClient.connect({ port: (bound.address as { port: number }).port, host: '127.0.0.1' })
    clients.push(client)
    const ask = async () => {
      client.send(`GET http://echo.example.test:${http.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`)
      return (await client.answer())?.status
    }
    expect(await ask()).toBe(200)
    await bound.close()
    expect(await ask()).not.toBe(200)
  })
})

describe('an audit log that can not be written', () => {
  test.skipIf(process.getuid?.() !== 0)(
    'refuses new connections until it can, keeps what is open, and shows the gap',
    async () => {
      const gateway = await start({ audit: { onFailure: 'deny' } })
      const token = await gateway.token(EGRESS)
      const folder = path.join(gateway.folder, 'state/audit')
      const client = await openTunnel(gateway, token)
      execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=4k,ro', 'tmpfs', folder])
      try {
        await expect.poll(() => connectStatus(gateway, token), { timeout: 5000 }).toBe('503 audit_unavailable')
        client.send('o')
        expect((await client.take(1)).toString()).toBe('o')
      } finally {
        execFileSync('umount', [folder])
      }
      await expect.poll(() => connectStatus(gateway, token), { timeout: 5000 }).toBe('200')
    },
  )
})
