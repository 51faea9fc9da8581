/** Policies of tenants that live elsewhere, behind a real gateway: a change reaches open tunnels within a second of its arrival, and is written down. */
import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { ConfigInput } from '../../proxy/config/schema.ts'
import { startEcho, type Origin } from '../origins/origins.ts'
import { type ControlClient, startControl } from '../proxy/admin/control-client.ts'
import { runMain } from '../proxy/cli/run-cli.ts'
import { WireClient } from './wire.ts'

const HOST = '127.66.0.3'
const EGRESS = { egress: { kind: 'allow-all' }, tenant: 'acme' }
/** What is promised is a second; that is measured where nothing else runs. A test that shares its machine waits longer. */
const PATIENCE_MS = 5_000

let echo: Origin
let folder: string
let control: ControlClient | undefined
const clients: WireClient[] = []
const servers: Server[] = []

beforeAll(async () => {
  echo = await startEcho(HOST)
})
afterAll(() => echo.close())
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-tenants-'))
  mkdirSync(join(folder, 'tenants'))
})
afterEach(async () => {
  for (const client of clients.splice(0)) client.destroy()
  await control?.gateway.close()
  control = undefined
  for (const server of servers.splice(0)) {
    server.closeAllConnections()
    server.close()
  }
  rmSync(folder, { recursive: true, force: true })
})

describe('files', () => {
  test('a narrowed file cuts what it no longer allows, leaves the rest, and is a line of the log', async () => {
    put('acme', ['echo.example.test:*', 'second.example.test:*'])
    const { gateway } = await start({ tenantFiles: { path: join(folder, 'tenants') } })
    const token = await gateway.token(EGRESS)
    const [cut, kept] = [await openTunnel(token, 'echo.example.test'), await openTunnel(token, 'second.example.test')]
    put('acme', ['second.example.test:*', 'third.example.test'])
    await cut.over(PATIENCE_MS)
    const line = await gateway.auditLine((one) => one['action'] === 'policy_file')
    expect(line).toMatchObject({ tenant: 'acme', added: ['third.example.test'], removed: ['echo.example.test:*'] })
    expect(await gateway.auditLine((one) => one['kind'] === 'close')).toMatchObject({
      close_reason: 'policy_changed',
      host: 'echo.example.test',
    })
    kept.send('x')
    expect((await kept.take(1)).toString()).toBe('x')
    rmSync(join(folder, 'tenants', 'acme.json'))
    await kept.over(PATIENCE_MS)
    await gateway.auditLine((one) => one['action'] === 'policy_file_removed')
  })

  test('the control API reads them, and changes none: one place says what is in force', async () => {
    put('acme', ['echo.example.test:*'])
    const { call } = await start({ tenantFiles: { path: join(folder, 'tenants') } })
    const read = await call('GET', '/v1/policies/acme')
    expect(read.body).toMatchObject({
      source: 'file',
      policy: { kind: 'static', allowedHosts: ['echo.example.test:*'] },
    })
    for (const tenant of ['acme', 'nobody']) {
      const replaces = tenant === 'acme' ? read.body['version'] : null
      const answer = await call('PUT', `/v1/policies/${tenant}`, { policy: { kind: 'allow-all' }, replaces })
      expect(answer).toMatchObject({
        status: 409,
        body: { error: 'conflict', message: expect.stringContaining('tenantFiles') as string },
      })
    }
    expect((await call('POST', '/v1/policies/acme:check', { policy: { kind: 'deny-all' } })).status).toBe(200)
    expect((await call('DELETE', `/v1/policies/acme?replaces=${String(read.body['version'])}`)).status).toBe(404)
    expect((await call('GET', '/v1/policies/acme')).body['version']).toBe(read.body['version'])
    const listed = (await call('GET', '/v1/policies')).body['policies'] as { tenant: string; source: string }[]
    expect(listed).toMatchObject([{ tenant: 'acme', source: 'file' }])
  })

  test('one that was put before holds until it is deleted: nothing widens by a change of source', async () => {
    const { call, gateway } = await start({})
    const put1 = await call('PUT', '/v1/policies/acme', { policy: { kind: 'deny-all' }, replaces: null })
    put('acme', ['echo.example.test:*'])
    const policy = { ceiling: { kind: 'allow-all' as const }, tenantFiles: { path: join(folder, 'tenants') } }
    await gateway.gateway.reload(() => gateway.config({ policy }))
    expect((await call('GET', '/v1/policies/acme')).body).toMatchObject({ source: 'api', policy: { kind: 'deny-all' } })
    expect((await call('DELETE', `/v1/policies/acme?replaces=${String(put1.body['version'])}`)).status).toBe(200)
    expect((await call('GET', '/v1/policies/acme')).body).toMatchObject({ source: 'file' })
  })

  test('a bad file shows in the metrics and in doctor, and keeps the last good policy', async () => {
    put('acme', ['echo.example.test:*'])
    const { gateway, adminToken, url } = await start({ tenantFiles: { path: join(folder, 'tenants') } })
    const tunnel = await openTunnel(await gateway.token(EGRESS), 'echo.example.test')
    writeFileSync(join(folder, 'tenants', 'acme.json'), '{ "kind": "static", "allowedHosts": ["*"] }')
    const token = await adminToken(['read'])
    let text = ''
    for (let tries = 0; tries < 100 && !text.includes('sallyport_policy_file_faults 1'); tries++) {
      text = await (await fetch(url('/metrics'), { headers: { authorization: `Bearer ${token}` } })).text()
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
    expect(text).toContain('sallyport_policy_file_faults 1')
    expect(text).toContain('sallyport_policy_files_stale 0')
    tunnel.send('x')
    expect((await tunnel.take(1)).toString()).toBe('x')

    const config = join(folder, 'sallyport.yaml')
    writeFileSync(
      config,
      JSON.stringify({ state: join(folder, 'state'), policy: { tenantFiles: { path: 'tenants' } } }),
    )
    const doctor = await runMain(['doctor', '--config', config, '--json'])
    expect(doctor.stdout).toMatch(/tenant files[^]*allowedHosts\[0\]: `\*` is refused/)
  })

  test('a folder that is not there stops the start', async () => {
    await expect(start({ tenantFiles: { path: join(folder, 'nowhere') } })).rejects.toMatchObject({
      code: 'SALLYPORT_POLICY_INVALID',
    })
  })
})

describe('the tenant resolver', () => {
  test('a changed answer cuts tunnels, a 5xx keeps the last one and then denies, a 404 denies', async () => {
    let answer: readonly [number, string] = [200, allowing(['echo.example.test:*'])]
    let asked = 0
    const server = createServer((_request, response) => {
      asked++
      response.writeHead(answer[0]).end(answer[1])
    })
    servers.push(server)
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const tenantResolver = {
      url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/{tenant}`,
      ttlSeconds: 1,
      staleSeconds: 2,
    }
    const { gateway } = await start({ tenantResolver })
    const token = await gateway.token(EGRESS)

    const first = await openTunnel(token, 'echo.example.test')
    answer = [200, allowing(['second.example.test:*'])]
    await first.over(PATIENCE_MS)

    const second = await openTunnel(token, 'second.example.test')
    answer = [500, '<html>']
    const before = asked
    while (asked < before + 2) await new Promise((resolve) => setTimeout(resolve, 20))
    second.send('x')
    expect((await second.take(1)).toString()).toBe('x')
    await second.over(PATIENCE_MS + 3_000)
    expect(await status(token, 'second.example.test')).toBe('503 policy_unavailable')

    answer = [200, allowing(['second.example.test:*'])]
    let third: string
    do {
      await new Promise((resolve) => setTimeout(resolve, 50))
      third = await status(token, 'second.example.test')
    } while (third !== '200')
    answer = [404, '']
    await clients.at(-1)?.over(PATIENCE_MS)
    expect(await status(token, 'second.example.test')).toBe('403 host_not_allowed')
  }, 40_000)

  test('and files together are refused: one source', () => {
    return expect(
      start({ tenantResolver: { url: 'http://127.0.0.1:1/{tenant}' }, tenantFiles: { path: folder } }),
    ).rejects.toThrow(/one source/)
  })
})

async function start(policy: NonNullable<ConfigInput['policy']>): Promise<ControlClient> {
  control = await startControl({
    policy: { ceiling: { kind: 'allow-all' }, ...policy },
    network: {
      allowPrivate: ['127.66.0.0/24'],
      hosts: { 'echo.example.test': HOST, 'second.example.test': HOST },
    },
  })
  return control
}

async function openTunnel(token: string, host: string): Promise<WireClient> {
  const client = await connect(token, host)
  expect((await client.answer())?.status).toBe(200)
  client.send('x')
  expect((await client.take(1)).toString()).toBe('x')
  return client
}

async function status(token: string, host: string): Promise<string> {
  const answer = await (await connect(token, host)).answer()
  return answer?.status === 200 ? '200' : `${answer?.status ?? 0} ${answer?.headers['x-deny-reason']?.join() ?? ''}`
}

async function connect(token: string, host: string): Promise<WireClient> {
  const client = await WireClient.connect({ port: control?.gateway.port ?? 0, host: '127.0.0.1' })
  clients.push(client)
  client.send(`CONNECT ${host}:${echo.port} HTTP/1.1\r\nHost: ${host}\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`)
  return client
}

function put(tenant: string, allowedHosts: readonly string[]): void {
  const draft = join(folder, 'tenants', `.${tenant}`)
  writeFileSync(draft, allowing(allowedHosts))
  renameSync(draft, join(folder, 'tenants', `${tenant}.json`))
}

function allowing(allowedHosts: readonly string[]): string {
  return JSON.stringify({ kind: 'static', allowedHosts })
}
