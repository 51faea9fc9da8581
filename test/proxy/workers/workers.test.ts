/** Several processes are one gateway: what one knows all know, and the death of one is written down, made good, and gains nobody anything. */
import { setTimeout as wait } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { openAuditLog } from '../../../proxy/audit/log.ts'
import type { AuditLog } from '../../../proxy/audit/record.ts'
import { systemClock } from '../../../proxy/clock.ts'
import { openAuditKey } from '../../../proxy/state/audit-key.ts'
import { openState } from '../../../proxy/state/state.ts'
import { WireClient } from '../../integration/wire.ts'
import { type Origin, startEcho } from '../../origins/origins.ts'
import { parseSeries } from '../../integration/scrape.ts'
import { connect, EGRESS, HOST, outcomeOf, startSupervised, type Supervised, tunnelOnEach } from './supervised.ts'

let echo: Origin
const gateways: Supervised[] = []
const clients: WireClient[] = []

beforeAll(async () => {
  echo = await startEcho(HOST)
})
afterAll(() => echo.close())
afterEach(async () => {
  for (const client of clients.splice(0)) client.destroy()
  await Promise.all(gateways.splice(0).map((gateway) => gateway.close()))
}, 60_000)

async function start(...options: Parameters<typeof startSupervised>): Promise<Supervised> {
  const gateway = await startSupervised(...options)
  gateways.push(gateway)
  return gateway
}

/** One on each worker. */
async function twoTunnels(gateway: Supervised, token: string): Promise<readonly WireClient[]> {
  const found = await tunnelOnEach(gateway, token, echo)
  expect([...found.keys()].sort()).toEqual([1, 2])
  clients.push(...found.values())
  return [...found.values()]
}

async function tryOut(gateway: Supervised, token: string): Promise<string> {
  const client = await connect(gateway.port, token, echo)
  clients.push(client)
  return outcomeOf(client)
}

/** So many, that no worker is left out: all of them at once. */
async function tryOutOften(gateway: Supervised, token: string, times = 24): Promise<readonly string[]> {
  return Promise.all(Array.from({ length: times }, () => tryOut(gateway, token)))
}

function kill(gateway: Supervised, number: number, signal: NodeJS.Signals): void {
  const pid = gateway.pids().get(number)
  if (pid === undefined) throw new Error(`no worker ${number}`)
  process.kill(pid, signal)
}

const total = (text: string, name: string): number =>
  parseSeries(text).reduce((sum, series) => (series.name === name ? sum + series.value : sum), 0)

async function openLogOf(state: string, instance: string): Promise<AuditLog> {
  const signingKey = await openAuditKey(state)
  return openAuditLog({ path: `${state}/audit`, instance, onFailure: 'deny', signingKey, clock: systemClock })
}

describe('what one process knows', { timeout: 120_000 }, () => {
  test('all processes know: tunnels are listed and cut, revoked and refused, wherever they are', async () => {
    const gateway = await start({
      policy: { ceiling: { kind: 'allow-all' }, tenants: { acme: { kind: 'allow-all' } } },
    })
    const token = await gateway.token({ ...EGRESS, jti: 'one', sub: 'sbx_1', tenant: 'acme' })
    const tunnels = await twoTunnels(gateway, token)
    const other = await twoTunnels(gateway, await gateway.token({ ...EGRESS, sub: 'sbx_2' }))

    const listed = await gateway.control('GET', '/v1/tunnels?sandbox=sbx_1&limit=1')
    expect(listed.body['tunnels']).toHaveLength(1)
    const next = await gateway.control('GET', `/v1/tunnels?sandbox=sbx_1&cursor=${String(listed.body['cursor'])}`)
    expect(next.body['tunnels']).toHaveLength(1)
    expect(next.body['cursor']).toBeUndefined()
    await expect
      .poll(async () => (await gateway.control('GET', '/v1/identities?tenant=acme')).body['identities'], {
        timeout: 5_000,
      })
      .toMatchObject([{ sandbox: 'sbx_1', tokenIds: ['one'], ofSandbox: { tunnels: 2 }, ofTenant: { tunnels: 2 } }])
    expect(total(await gateway.text('/metrics'), 'sallyport_active_tunnels')).toBe(4)

    expect(await gateway.control('POST', '/v1/revocations', { tokenId: 'one' })).toEqual({
      status: 201,
      body: { cut: 2 },
    })
    expect(new Set(await tryOutOften(gateway, token))).toEqual(new Set(['407 token_revoked']))
    await Promise.all(tunnels.map((tunnel) => tunnel.over()))
    expect((await gateway.control('POST', '/v1/tunnels:cut', { sandbox: 'sbx_2' })).body).toEqual({ cut: 2 })
    await Promise.all(other.map((tunnel) => tunnel.over()))
  })

  test('a policy that is put reaches the tunnels of all before the answer, and a dry run counts them', async () => {
    const gateway = await start()
    const put = async (policy: object, replaces: unknown, route = '/v1/policies/acme', method = 'PUT') =>
      (await gateway.control(method, route, { policy, ...(method === 'PUT' && { replaces }) })).body
    const first = await put({ kind: 'allow-all' }, null)
    const token = await gateway.token({ ...EGRESS, tenant: 'acme' })
    const tunnels = await twoTunnels(gateway, token)
    expect(await put({ kind: 'deny-all' }, null, '/v1/policies/acme:check', 'POST')).toMatchObject({
      cut: { count: 2 },
    })
    expect(await put({ kind: 'deny-all' }, first['version'])).toMatchObject({ cut: 2 })
    expect(new Set(await tryOutOften(gateway, token))).toEqual(new Set(['403 host_not_allowed']))
    await Promise.all(tunnels.map((tunnel) => tunnel.over()))
  })

  test('a handle that was minted is good everywhere at once', async () => {
    const gateway = await start()
    const state = await openState(gateway.config({}).state)
    const handle = await state.handles.mint(await gateway.token(EGRESS), Date.now() + 60_000)
    state.close()
    expect(new Set(await tryOutOften(gateway, handle))).toEqual(new Set(['200']))
  })

  test('a listener of the gateway is not reachable through a worker, wherever it listens', async () => {
    const gateway = await start({ listen: { admin: '127.0.0.1:0' }, network: { allowPrivate: ['127.0.0.0/8'] } })
    const bound = await gateway.gateway.bind({ port: 0, identity: { sandbox: 'sbx_b' } })
    const ports = [gateway.port, gateway.adminPort, bound.address.kind === 'tcp' ? bound.address.port : 0]
    const token = await gateway.token(EGRESS)
    const refused = await Promise.all(
      ports.flatMap((port) =>
        Array.from({ length: 8 }, async () => {
          const client = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
          clients.push(client)
          client.send(`CONNECT 127.0.0.1:${port} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`)
          return outcomeOf(client)
        }),
      ),
    )
    expect(new Set(refused)).toEqual(new Set(['403 address_prohibited']))
  })
})

describe('limits', { timeout: 120_000 }, () => {
  test('tunnels of one sandbox are counted over all workers, and the place of one that ends is free everywhere', async () => {
    const gateway = await start({ limits: { perSandbox: { tunnels: 2 } } })
    const token = await gateway.token(EGRESS)
    const [first] = await twoTunnels(gateway, token)
    await wait(200)
    expect(new Set(await tryOutOften(gateway, token))).toEqual(new Set(['429 tunnel_limit']))
    first?.destroy()
    await expect.poll(() => tryOut(gateway, token), { interval: 100, timeout: 10_000 }).toBe('200')
  })

  test('new ones per second hold over all workers: what one let in too many, all owe', async () => {
    const gateway = await start({ limits: { perSandbox: { newPerSecond: 10 } } })
    const token = await gateway.token(EGRESS)
    const startedMs = performance.now()
    let letIn = 0
    while (performance.now() - startedMs < 4_000) {
      const client = await connect(gateway.port, token, echo)
      if ((await outcomeOf(client)) === '200') letIn++
      client.destroy()
    }
    const seconds = (performance.now() - startedMs) / 1000
    // A burst of one second, of each worker at the worst, and then the rate; each alone would let in the double.
    expect(letIn).toBeLessThanOrEqual(10 * seconds + 10 + 3)
    expect(letIn).toBeGreaterThanOrEqual(10 * seconds * 0.7)
  })

  test('bytes of the day are used up everywhere, and the death of a worker gives none back', async () => {
    const gateway = await start({ limits: { perSandbox: { bytesPerDay: 200_000 } } })
    const token = await gateway.token({ ...EGRESS, sub: 'sbx_q' })
    const [one, two] = await twoTunnels(gateway, token)
    one?.send(Buffer.alloc(60_000, 'a'))
    expect((await one?.take(60_000))?.length).toBe(60_000)
    const used = async (): Promise<number> => {
      const { identities } = (await gateway.control('GET', '/v1/identities?sandbox=sbx_q')).body
      return (identities as readonly { ofSandbox: { bytesToday: number } }[])[0]?.ofSandbox.bytesToday ?? 0
    }
    await expect.poll(used, { timeout: 5_000 }).toBeGreaterThanOrEqual(120_000 + 4)
    kill(gateway, 1, 'SIGKILL')
    kill(gateway, 2, 'SIGKILL')
    await gateway.serving(2, 2)
    one?.destroy()
    two?.destroy()
    const [again] = await twoTunnels(gateway, token)
    again?.send(Buffer.alloc(60_000, 'b'))
    await again?.over()
    await wait(200)
    expect(new Set(await tryOutOften(gateway, token, 12))).toEqual(new Set(['429 byte_quota']))
  })
})

describe('a worker that dies', { timeout: 120_000 }, () => {
  test('is replaced, the ends of its tunnels are written down in its log, and every chain verifies', async () => {
    const gateway = await start()
    const token = await gateway.token({ ...EGRESS, sub: 'sbx_l' })
    await twoTunnels(gateway, token)
    const until = new AbortController()
    const load = (async () => {
      let count = 0
      while (!until.signal.aborted) {
        const client = await connect(gateway.port, token, echo).catch(() => undefined)
        if (client !== undefined && (await outcomeOf(client).catch(() => 'nothing')) === '200') count++
        client?.destroy()
      }
      return count
    })()
    await wait(300)
    kill(gateway, 1, 'SIGKILL')
    await gateway.serving(2, 1)
    until.abort()
    expect(await load).toBeGreaterThan(0)
    const closed = await gateway.auditLine((line) => line['action'] === 'lost_tunnels_closed')
    expect(closed['instance']).toMatch(/-1$/)
    const lines = gateway.audit().filter((line) => /-1$/.test(String(line['instance'])))
    const lost = lines.filter((line) => line['close_reason'] === 'process_lost')
    expect(lost.length).toBeGreaterThan(0)
    expect(lost[0]).toMatchObject({ sandbox: 'sbx_l', host: 'echo.example.test', port: echo.port })
    expect(await gateway.auditLine((line) => line['action'] === 'worker_ended')).toMatchObject({
      detail: expect.stringMatching(/^worker 1 \(process \d+\) ended: SIGKILL$/) as string,
    })
    await gateway.gateway.close()
    // Every one that was let out has its end, once.
    const all = gateway.audit()
    const ids = (kind: string) =>
      all.filter((line) => line['kind'] === kind && line['effective'] !== 'deny').map((line) => line['request_id'])
    expect(ids('close').sort()).toEqual(ids('decision').sort())
    const verified = await gateway.verify()
    expect(verified).toMatchObject({ ok: true, signatures: 'checked' })
    expect(verified.instances).toHaveLength(3)
  })

  test('counters do not go back, nor does a scrape wait for one that hangs', async () => {
    const gateway = await start()
    const token = await gateway.token(EGRESS)
    await twoTunnels(gateway, token)
    const before = total(await gateway.text('/metrics'), 'sallyport_connections_total')
    expect(before).toBeGreaterThanOrEqual(2)
    kill(gateway, 1, 'SIGKILL')
    kill(gateway, 2, 'SIGKILL')
    await gateway.serving(2, 2)
    await gateway.auditLine((line) => line['action'] === 'lost_tunnels_closed')
    const after = await gateway.text('/metrics')
    expect(total(after, 'sallyport_connections_total')).toBeGreaterThanOrEqual(before)
    expect(total(after, 'sallyport_workers_replaced_total')).toBe(2)
  })

  test('health says that one is missing, and what it held is free again', async () => {
    const gateway = await start({ limits: { perSandbox: { tunnels: 2 } } })
    const token = await gateway.token(EGRESS)
    await twoTunnels(gateway, token)
    kill(gateway, 1, 'SIGKILL')
    await expect
      .poll(() => gateway.text('/readyz'), { interval: 5, timeout: 10_000 })
      .toBe('{"status":"ready","missingWorkers":1}')
    expect(total(await gateway.text('/metrics'), 'sallyport_workers_serving')).toBe(1)
    await gateway.serving(2, 1)
    await expect.poll(() => tryOut(gateway, token), { interval: 100, timeout: 10_000 }).toBe('200')
    await wait(200)
    expect(await tryOut(gateway, token)).toBe('429 tunnel_limit')
  })

  test('one that does not confirm a revocation is ended, so that the answer is true', async () => {
    const gateway = await start()
    const token = await gateway.token({ ...EGRESS, jti: 'hang' })
    const tunnels = await twoTunnels(gateway, token)
    kill(gateway, 2, 'SIGSTOP')
    expect(await gateway.control('POST', '/v1/revocations', { tokenId: 'hang' })).toEqual({
      status: 201,
      // The other said nothing of its own.
      body: { cut: 1, endedWorkers: 1 },
    })
    await gateway.serving(2, 1)
    expect(gateway.audit().find((line) => line['action'] === 'worker_ended')?.['detail']).toContain(
      'it did not confirm `look`',
    )
    expect(new Set(await tryOutOften(gateway, token))).toEqual(new Set(['407 token_revoked']))
    await Promise.all(tunnels.map((tunnel) => tunnel.over()))
  })

  test('a token that is revoked while it begins is refused from the first connection', async () => {
    const gateway = await start()
    const token = await gateway.token({ ...EGRESS, jti: 'late' })
    const state = await openState(gateway.config({}).state)
    kill(gateway, 1, 'SIGKILL')
    kill(gateway, 2, 'SIGKILL')
    await wait(100)
    await state.revocations.revoke({ tokenId: 'late' })
    state.close()
    const outcomes: string[] = []
    while (!outcomes.includes('407 token_revoked')) {
      const outcome = await tryOut(gateway, token).catch(() => 'refused')
      outcomes.push(outcome)
    }
    await gateway.serving(2, 2)
    outcomes.push(...(await tryOutOften(gateway, token)))
    expect(outcomes).not.toContain('200')
  })
})

describe('one that ends again and again', { timeout: 120_000 }, () => {
  test('is given up with an error that says so', async () => {
    const gateway = await start({}, { restart: { soundMs: 60_000, firstMs: 10, longestMs: 20, most: 2 } })
    for (let round = 0; round < 3; round++) {
      await expect.poll(() => gateway.pids().get(1), { timeout: 20_000 }).toBeDefined()
      await gateway.serving(2, round)
      kill(gateway, 1, 'SIGKILL')
      await expect
        .poll(async () => (await gateway.control('GET', '/v1/status')).body['workers'])
        .not.toMatchObject({
          serving: 2,
          replaced: round,
        })
    }
    await expect(gateway.failed).resolves.toMatchObject({
      code: 'SALLYPORT_WORKERS_FAILED',
      message: expect.stringContaining('worker 1 ended again and again, the last time with SIGKILL') as string,
    })
  })

  test('one that can not begin keeps the gateway from it, in its own words', async () => {
    const first = await start()
    // Its first worker writes to the log of that name.
    const log = await openLogOf(first.config({}).state, 'gw-1')
    await expect(start({ audit: { instance: 'gw', path: first.config({}).audit.path } })).rejects.toThrow(
      /instance `gw-1` is in use by process/,
    )
    await log.close()
  })
})

describe('a worker that was taken over', { timeout: 120_000 }, () => {
  test('is ended for a message that is longer than it may be, before it is read', async () => {
    const program = new URL('./hostile-process.ts', import.meta.url)
    const starting = start({}, { program })
    await expect(starting).rejects.toThrow(
      /^worker \d could not begin: sent a message of 4294967295 bytes, and 33554432 is the most$/,
    )
  })
})

describe('a reload', { timeout: 120_000 }, () => {
  test('is in force in all workers or in none, and refuses no connection', async () => {
    const gateway = await start()
    const token = await gateway.token(EGRESS)
    const until = new AbortController()
    const outcomes: string[] = []
    const load = (async () => {
      while (!until.signal.aborted) {
        const client = await connect(gateway.port, token, echo)
        outcomes.push(await outcomeOf(client))
        client.destroy()
      }
    })()
    for (let round = 0; round < 5; round++)
      await gateway.gateway.reload(() => gateway.config({ timeouts: { idleSeconds: 100 + round } }))
    await expect(
      gateway.gateway.reload(() =>
        gateway.config({ issuers: [{ issuer: 'urn:x', algorithms: ['ES256'], jwks: '/nowhere' }] }),
      ),
    ).rejects.toThrow()
    until.abort()
    await load
    expect(new Set(outcomes)).toEqual(new Set(['200']))
    await gateway.gateway.reload(() => gateway.config({ policy: { ceiling: { kind: 'deny-all' } } }))
    expect(new Set(await tryOutOften(gateway, token))).toEqual(new Set(['403 host_not_allowed']))
    // A worker that begins later begins with it.
    kill(gateway, 1, 'SIGKILL')
    await gateway.serving(2, 1)
    expect(new Set(await tryOutOften(gateway, token))).toEqual(new Set(['403 host_not_allowed']))
  })
})

test(
  'a reload while a worker begins leaves it a worker: it opens nothing that is open elsewhere, and is not replaced again',
  { timeout: 120_000 },
  async () => {
    const gateway = await start({ listen: { bound: [{ address: `${HOST}:0`, sandbox: 'bound' }] } })
    kill(gateway, 1, 'SIGKILL')
    const until = new AbortController()
    const serving = gateway.serving(2, 1).finally(() => until.abort())
    for (let round = 0; round < 2_000 && !until.signal.aborted; round++)
      await gateway.gateway.reload(() => gateway.config({ timeouts: { idleSeconds: 100 + round } }))
    await serving
    expect(gateway.audit().filter(({ action }) => action === 'worker_ended')).toHaveLength(1)
  },
)

describe('bound listeners', { timeout: 120_000 }, () => {
  test('live in the process that supervises: the death of a worker does not touch them, and their tunnels are in the list', async () => {
    const gateway = await start()
    const bound = await gateway.gateway.bind({ port: 0, identity: { sandbox: 'sbx_b', egress: { kind: 'allow-all' } } })
    const port = bound.address.kind === 'tcp' ? bound.address.port : 0
    const tunnel = await connect(port, '', echo)
    clients.push(tunnel)
    expect(await outcomeOf(tunnel)).toBe('200')
    kill(gateway, 1, 'SIGKILL')
    kill(gateway, 2, 'SIGKILL')
    await gateway.serving(2, 2)
    tunnel.send('still')
    expect((await tunnel.take(5)).toString()).toBe('still')
    expect((await gateway.control('GET', '/v1/tunnels?sandbox=sbx_b')).body['tunnels']).toHaveLength(1)
    await bound.close()
    await tunnel.over()
  })
})
