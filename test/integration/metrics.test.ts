/** What a real gateway counts, and that nothing which a client sends makes a series. */
import dgram from 'node:dgram'
import { once } from 'node:events'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Origin, startEcho } from '../origins/origins.ts'
import { createMetrics } from '../../proxy/admin/metrics.ts'
import { metricNames, parseSeries, scrape, type Series } from './scrape.ts'
import { startTestGateway, type TestGateway } from './test-gateway.ts'
import { WireClient } from './wire.ts'

const HOST = '127.66.0.9'
const SECRET_TENANT = 'marker-tenant'
/** Never answers. */
const nameServer = dgram.createSocket('udp4')
let echo: Origin
let gateway: TestGateway
let policies: string
const clients: WireClient[] = []

beforeAll(async () => {
  echo = await startEcho(HOST)
  nameServer.bind(0, '127.0.0.1')
  await once(nameServer, 'listening')
  policies = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-policies-'))
  fs.writeFileSync(path.join(policies, `${SECRET_TENANT}.json`), '{"kind":"allow-all"}', { mode: 0o600 })
  gateway = await startTestGateway({
    policy: {
      ceiling: { kind: 'allow-all' },
      tenantFiles: { path: policies },
    },
    network: {
      allowPrivate: ['127.66.0.0/24'],
      hosts: { 'echo.example.test': HOST },
      resolvers: [`127.0.0.1:${nameServer.address().port}`],
    },
    timeouts: { dnsSeconds: 0.2 },
    admin: { open: ['jwks', 'metrics'] },
    audit: { sinks: [{ kind: 'otlp', url: 'http://127.0.0.1:9/v1/logs' }] },
    tracing: { otlp: { url: 'http://127.0.0.1:9/v1/traces' } },
  })
})
afterAll(async () => {
  for (const client of clients) client.destroy()
  await gateway.close()
  fs.rmSync(policies, { recursive: true })
  await echo.close()
  nameServer.close()
})

async function connect(target: string, token?: string): Promise<WireClient> {
  const client = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
  clients.push(client)
  const credentials = token === undefined ? '' : `Proxy-Authorization: Bearer ${token}\r\n`
  client.send(`CONNECT ${target} HTTP/1.1\r\nHost: x\r\n${credentials}\r\n`)
  return client
}

const values = (series: readonly Series[], name: string, labels: Readonly<Record<string, string>> = {}) =>
  series
    .filter((one) => one.name === name && Object.entries(labels).every(([label, value]) => one.labels[label] === value))
    .map(({ value }) => value)

test('each step, each outcome, and the bytes of a tunnel that is still open', async () => {
  const egress = { egress: { kind: 'allow-all' }, tenant: SECRET_TENANT }
  const token = await gateway.token(egress)
  const open = await connect(`echo.example.test:${echo.port}`, token)
  expect((await open.answer())?.status).toBe(200)
  open.send('x'.repeat(1000))
  await open.take(1000)
  expect((await (await connect(`echo.example.test:${echo.port}`, token)).answer())?.status).toBe(200)
  expect((await (await connect('marker-host.example.test:443', await gateway.token())).answer())?.status).toBe(403)
  expect((await (await connect('marker-name.example.test:443', token)).answer())?.status).toBe(504)
  expect((await (await connect('marker-host.example.test:443', 'marker.token.here')).answer())?.status).toBe(407)

  const series = await scrape(gateway.adminPort)
  const count = (name: string, labels: Readonly<Record<string, string>> = {}) => values(series, name, labels)[0]
  expect(count('sallyport_connections_total', { decision: 'allow', reason: 'none' })).toBe(2)
  expect(count('sallyport_connections_total', { decision: 'deny', reason: 'host_not_allowed' })).toBe(1)
  expect(count('sallyport_connections_total', { reason: 'token_malformed' })).toBe(1)
  expect(count('sallyport_active_tunnels')).toBe(2)
  expect(count('sallyport_bytes_total', { direction: 'in' })).toBe(1000)
  expect(count('sallyport_bytes_total', { direction: 'out' })).toBe(1000)
  expect(count('sallyport_setup_seconds_count')).toBe(2)
  const steps = ['identity', 'policy', 'dns', 'connect'].map((step) =>
    count('sallyport_setup_step_seconds_count', { step }),
  )
  expect(steps).toEqual([5, 4, 3, 2])
  // The name that no server knows was waited for, and the wait is in the histogram.
  expect(count('sallyport_setup_step_seconds_sum', { step: 'dns' })).toBeGreaterThan(0.1)
  expect(count('sallyport_cache_lookups_total', { cache: 'token', result: 'hit' })).toBeGreaterThanOrEqual(2)
  expect(count('sallyport_cache_lookups_total', { cache: 'token', result: 'miss' })).toBe(3)
  expect(count('sallyport_cache_lookups_total', { cache: 'policy', result: 'hit' })).toBeGreaterThanOrEqual(1)
  expect(count('sallyport_cache_lookups_total', { cache: 'dns', result: 'miss' })).toBe(1)
  expect(count('sallyport_audit_lines_total')).toBe(5)
  expect(count('sallyport_audit_write_seconds_count')).toBeGreaterThanOrEqual(1)
  expect(count('sallyport_ready')).toBe(1)
  expect(values(series, 'sallyport_policy_info')).toEqual([1])
})

test('nothing that a client sends, and no tenant, is in a label', async () => {
  for (let index = 0; index < 20; index += 1) {
    const client = await connect(`invented-${index}.example.test:${1000 + index}`, await gateway.token())
    await client.answer()
  }
  const before = await scrape(gateway.adminPort)
  for (let index = 20; index < 40; index += 1) {
    const client = await connect(`invented-${index}.example.test:${1000 + index}`, await gateway.token())
    await client.answer()
  }
  const after = await scrape(gateway.adminPort)
  expect(after.length).toBe(before.length)
  const labels = JSON.stringify(after.map((one) => one.labels))
  for (const secret of ['marker', 'example', 'sbx_', HOST, 'invented']) expect(labels).not.toContain(secret)
})

test('every metric is documented, with its labels, and no other', async () => {
  const page = fs.readFileSync(path.resolve(import.meta.dirname, '../../docs/metrics.md'), 'utf8')
  const documented = new Map<string, string[]>()
  for (const line of page.split('\n')) {
    const [, names = '', labels = ''] = /^\| (`sallyport_[^|]*) \| ([^|]*) ?\|/.exec(line) ?? []
    for (const [, name = ''] of names.matchAll(/`(sallyport_\w+)`/g))
      documented.set(name, [...labels.matchAll(/`(\w+)`/g)].map(([, label]) => label ?? '').sort())
  }
  // Every metric has a series once there was a refusal, and a tunnel that ended.
  const tunnel = await connect(`echo.example.test:${echo.port}`, await gateway.token({ egress: { kind: 'allow-all' } }))
  expect((await tunnel.answer())?.status).toBe(200)
  for (const client of clients.splice(0)) client.destroy()
  await gateway.auditLine((line) => line['kind'] === 'close')
  const workers = createMetrics({
    version: '1',
    activeTunnels: () => 0,
    workers: () => ({ configured: 2, serving: 2, replaced: 0 }),
  })
  const ofWorkers = parseSeries(await workers.render()).filter(({ name }) => name.startsWith('sallyport_workers'))
  workers.close()
  const exposed = metricNames([...(await scrape(gateway.adminPort)), ...ofWorkers])
  expect(Object.fromEntries(documented)).toEqual(Object.fromEntries(exposed))
})
