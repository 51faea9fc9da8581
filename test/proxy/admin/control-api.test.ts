/** The control API on a real gateway with real tunnels. Every answer of every test is held against `/openapi.json` by the client. */
import { Ajv2020 } from 'ajv/dist/2020.js'
import fs from 'node:fs'
import path from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { auditLineSchema } from '../../../proxy/audit/schema.ts'
import type { AuditEntry } from '../../../proxy/audit/record.ts'
import type { Caller } from '../../../proxy/admin/access.ts'
import type { Control } from '../../../proxy/admin/control.ts'
import { policyRoutes } from '../../../proxy/admin/routes/policies.ts'
import { systemClock } from '../../../proxy/clock.ts'
import { createPolicySource } from '../../../proxy/policy/policy-source.ts'
import { openState, type State } from '../../../proxy/state/state.ts'
import type { ConfigInput } from '../../../proxy/config/schema.ts'
import { type Origin, startEcho } from '../../origins/origins.ts'
import { WireClient } from '../../integration/wire.ts'
import { bearer, type ControlClient, operationFor, OWN_ISSUER, startControl } from './control-client.ts'

const HOST = '127.66.0.9'
let echo: Origin
const controls: ControlClient[] = []
const clients: WireClient[] = []

beforeAll(async () => {
  echo = await startEcho(HOST)
})
afterAll(() => echo.close())
afterEach(async () => {
  for (const client of clients.splice(0)) client.destroy()
  // Two may share a state folder: the one that made it is the last.
  for (const { gateway } of controls.splice(0).toReversed()) await gateway.close()
})

const OPEN: ConfigInput = {
  policy: { ceiling: { kind: 'allow-all' } },
  // Tests ask faster than people.
  admin: { requestsPerSecond: 10_000 },
  network: {
    allowPrivate: ['127.66.0.0/24'],
    hosts: { 'echo.example.test': HOST, 'other.example.test': HOST },
  },
}

async function start(
  document: ConfigInput = {},
  options: Parameters<typeof startControl>[1] = {},
): Promise<ControlClient> {
  const control = await startControl({ ...OPEN, ...document }, options)
  controls.push(control)
  return control
}

async function connect(where: { port: number; host: string } | { path: string }, host: string, token?: string) {
  const client = await WireClient.connect(where)
  clients.push(client)
  const credentials = token === undefined ? '' : `Proxy-Authorization: Bearer ${token}\r\n`
  client.send(`CONNECT ${host}:${echo.port} HTTP/1.1\r\nHost: ${host}\r\n${credentials}\r\n`)
  const answer = await client.answer()
  return { client, status: answer?.status, reason: answer?.headers['x-deny-reason']?.join() }
}

/** An open tunnel to the echo. */
async function tunnel(control: ControlClient, token: string, host = 'echo.example.test'): Promise<WireClient> {
  const { client, status } = await connect({ port: control.gateway.port, host: '127.0.0.1' }, host, token)
  expect(status).toBe(200)
  return client
}

async function isAlive(client: WireClient): Promise<boolean> {
  client.send('k')
  return (await client.take(1)).toString() === 'k'
}

const allow = (...hosts: string[]) => ({ kind: 'static', allowedHosts: hosts.map((host) => `${host}:${echo.port}`) })
const EVERYTHING = { egress: { kind: 'allow-all' } }

describe('tokens', () => {
  test('what is minted is let out, also by its handle, until it is revoked', async () => {
    const control = await start()
    const { status, body } = await control.call('POST', '/v1/tokens', {
      sandbox: 'sbx_1',
      egress: allow('echo.example.test'),
      ttlSeconds: 60,
      handle: true,
    })
    expect(status).toBe(201)
    const { token, handle, tokenId } = body as { token: string; handle: string; tokenId: string }
    const client = await tunnel(control, token)
    const byHandle = await tunnel(control, handle)
    expect(await control.call('POST', '/v1/revocations', { tokenId })).toMatchObject({ status: 201, body: { cut: 2 } })
    await Promise.all([client.over(1000), byHandle.over(1000)])
    expect((await connect({ port: control.gateway.port, host: '127.0.0.1' }, 'echo.example.test', token)).reason).toBe(
      'token_revoked',
    )
    const listed = await control.call('GET', `/v1/revocations?kind=token&value=${tokenId}`)
    expect(listed.body['revocations']).toEqual([
      {
        kind: 'token',
        value: tokenId,
        revokedAt: expect.any(String) as string,
        expiresAt: expect.any(String) as string,
      },
    ])
    expect(
      control.gateway
        .audit()
        .filter(({ author }) => author === 'alice')
        .map(({ action, token_id }) => [action, token_id]),
    ).toEqual([
      ['token_minted', tokenId],
      ['revoke', tokenId],
    ])
  })

  test('are revoked by sandbox, tenant, or all that are older than a moment', async () => {
    const control = await start({
      policy: { ceiling: { kind: 'allow-all' }, tenants: { acme: { kind: 'allow-all' } } },
    })
    const ofSandbox = await control.gateway.token({ ...EVERYTHING, sub: 'a' })
    const ofTenant = await control.gateway.token({ ...EVERYTHING, sub: 'b', tenant: 'acme' })
    const ofNobody = await control.gateway.token({ ...EVERYTHING, sub: 'c' })
    const now = new Date().toISOString()
    const open = await Promise.all([ofSandbox, ofTenant, ofNobody].map((token) => tunnel(control, token)))
    await control.call('POST', '/v1/revocations', { sandbox: 'a', issuedBefore: now })
    await open[0]?.over(1000)
    await control.call('POST', '/v1/revocations', { tenant: 'acme' })
    await open[1]?.over(1000)
    expect(open[2] && (await isAlive(open[2]))).toBe(true)
    const { body } = await control.call('POST', '/v1/revocations', { issuedBefore: now })
    expect(body).toEqual({ cut: 1 })
    await open[2]?.over(1000)
    const kept = await control.gateway.token({ ...EVERYTHING, iat: Math.ceil(Date.now() / 1000) + 5 })
    expect((await connect({ port: control.gateway.port, host: '127.0.0.1' }, 'echo.example.test', kept)).status).toBe(
      200,
    )
  })

  test('are looked at: what they say, and whether they are accepted now', async () => {
    const control = await start()
    const good = await control.gateway.token({ sub: 'sbx_9' })
    const seen = await control.call('POST', '/v1/tokens:inspect', { token: good })
    expect(seen.body).toMatchObject({ accepted: true, claims: { sub: 'sbx_9' }, header: { alg: 'ES256' } })
    const bad = await control.call('POST', '/v1/tokens:inspect', { token: `${good.slice(0, -8)}AAAAAAAA` })
    expect(bad.body).toMatchObject({ accepted: false, reason: 'token_signature_invalid' })
    expect((await control.call('POST', '/v1/tokens:inspect', { token: 'sph_x' })).body).toMatchObject({
      accepted: false,
    })
  })

  test('that no gateway would accept are not minted', async () => {
    const control = await start()
    const mint = (body: object) => control.call('POST', '/v1/tokens', body)
    expect(await mint({ egress: { kind: 'static', allowedHosts: ['*.com'] } })).toMatchObject({
      status: 422,
      body: { error: 'policy_invalid' },
    })
    expect(await mint({ ttlSeconds: 86_401 })).toMatchObject({ status: 400 })
    expect(await mint({ binding: { address: 'nowhere' } })).toMatchObject({ status: 400 })
    expect(await mint({ issuer: 'somebody' })).toMatchObject({ status: 409, body: { error: 'conflict' } })
    expect(await mint({ issuer: OWN_ISSUER })).toMatchObject({ status: 201 })
  })
})

describe('policies', () => {
  const put = (control: ControlClient, policy: object, replaces: string | null, tenant = 'acme') =>
    control.call('PUT', `/v1/policies/${tenant}`, { policy, replaces })

  test('a dry run says what appears, vanishes and would be cut, and changes nothing; the change itself reaches live tunnels', async () => {
    const control = await start({
      policy: {
        ceiling: { kind: 'allow-all' },
        tenants: { acme: allow('echo.example.test', 'other.example.test') as never },
      },
    })
    const token = await control.gateway.token({ ...EVERYTHING, tenant: 'acme', sub: 'sbx_1' })
    const lost = await tunnel(control, token, 'other.example.test')
    const kept = await tunnel(control, token)
    const narrower = { ...allow('echo.example.test'), deniedHosts: ['bad.example.test'] }
    const dry = await control.call('POST', '/v1/policies/acme:check', { policy: narrower })
    expect(dry.body).toMatchObject({
      difference: {
        allowedHosts: { appear: [], vanish: [`other.example.test:${echo.port}`] },
        deniedHosts: { appear: ['bad.example.test'], vanish: [] },
      },
      cut: { count: 1, tunnels: [{ sandbox: 'sbx_1', host: 'other.example.test', reason: 'host_not_allowed' }] },
    })
    expect(await isAlive(lost)).toBe(true)
    const { replaces, version } = dry.body as { replaces: string; version: string }
    expect((await control.call('GET', '/v1/policies/acme')).body).toMatchObject({
      source: 'configuration',
      version: replaces,
    })

    expect(await put(control, narrower, replaces)).toMatchObject({ status: 200, body: { version, cut: 1 } })
    await lost.over(1000)
    expect(await isAlive(kept)).toBe(true)
    expect((await control.call('GET', '/v1/policies/acme')).body).toMatchObject({
      source: 'api',
      version,
      policy: { mode: 'enforce' },
    })
    const line = await control.gateway.auditLine(({ action }) => action === 'policy_put')
    expect(line).toMatchObject({
      tenant: 'acme',
      author: 'alice',
      policy_version: version,
      added: ['!bad.example.test'],
      removed: [`other.example.test:${echo.port}`],
    })
    expect(auditLineSchema.safeParse(line).success).toBe(true)
    expect((await control.gateway.auditLine(({ kind }) => kind === 'close'))['close_reason']).toBe('policy_changed')
  })

  test('a change that replaces another version than the one in force is refused, of two at once one', async () => {
    const control = await start()
    expect((await put(control, { kind: 'allow-all' }, 'aaaaaaaaaaaa')).status).toBe(409)
    const outcomes = await Promise.all([
      put(control, allow('echo.example.test'), null),
      put(control, allow('other.example.test'), null),
    ])
    expect(outcomes.map(({ status }) => status).sort()).toEqual([200, 409])
    expect(outcomes.find(({ status }) => status === 409)?.body).toMatchObject({ error: 'version_stale' })
  })

  test('survives a restart, and deleting it brings back what the configuration says', async () => {
    const first = await start()
    const wide = await put(first, allow('echo.example.test'), null)
    const state = first.gateway.config({}).state
    await first.gateway.gateway.close()
    const second = await start({ state })
    const token = await second.gateway.token({ ...EVERYTHING, tenant: 'acme' })
    const client = await tunnel(second, token)
    const version = String(wide.body['version'])
    expect((await second.call('DELETE', '/v1/policies/acme?replaces=000000000000')).status).toBe(409)
    expect((await second.call('DELETE', `/v1/policies/acme?replaces=${version}`)).body).toMatchObject({
      version: null,
      cut: 1,
    })
    await client.over(1000)
    expect((await second.call('GET', '/v1/policies/acme')).status).toBe(404)
    expect((await second.call('DELETE', `/v1/policies/acme?replaces=${version}`)).status).toBe(409)
  })

  test('a change in the state folder by another gateway reaches live tunnels within a second', async () => {
    const one = await start()
    const other = await start({ state: one.gateway.config({}).state, audit: { instance: 'other' } })
    await put(one, allow('echo.example.test'), null)
    const deadline = performance.now() + 5000
    while ((await other.call('GET', '/v1/policies/acme')).status !== 200 && performance.now() < deadline)
      await new Promise((resolve) => setTimeout(resolve, 20))
    const client = await tunnel(other, await other.gateway.token({ ...EVERYTHING, tenant: 'acme' }))
    const { version } = (await one.call('GET', '/v1/policies/acme')).body as { version: string }
    await put(one, { kind: 'deny-all' }, version)
    await client.over(5000)
  })

  test('with faults is refused with every one of them, and names with colons, slashes and signs are names', async () => {
    const control = await start()
    const faulty = await put(control, { kind: 'static', allowedHosts: ['ok.example', '*.com', '', 'http://x'] }, null)
    expect(faulty).toMatchObject({ status: 422, body: { error: 'policy_invalid' } })
    expect(faulty.body['faults']).toHaveLength(3)
    expect(await put(control, { kind: 'named', name: 'nobody' }, null)).toMatchObject({ status: 422 })
    const name = 'a/b:check ü%'
    expect((await put(control, { kind: 'deny-all' }, null, encodeURIComponent(name))).body).toMatchObject({
      tenant: name,
    })
    const listed = await control.call('GET', '/v1/policies')
    expect(listed.body['policies']).toMatchObject([{ tenant: name, source: 'api', kind: 'deny-all' }])
  })

  test('nothing is changed that can not be written down', async () => {
    const control = await start()
    const { tenantPolicies } = await openState(control.gateway.config({}).state)
    const source = createPolicySource({ policy: {} })
    const entries: AuditEntry[] = []
    const routes = policyRoutes({
      ...({} as Control),
      config: () => control.gateway.config({}),
      clock: systemClock,
      policies: source,
      state: { tenantPolicies } as State,
      audit: {
        write: (entry) => Promise.resolve(entries.push(entry) < 0),
        isWritable: () => false,
        close: () => Promise.resolve(),
      },
    })
    const put = routes.find(({ id }) => id === 'putPolicy')
    const caller: Caller = {
      author: 'bob',
      scopes: new Set(['policy']),
      tokenId: undefined,
      expiresAtMs: undefined,
      client: 'unix',
      isGood: () => true,
    }
    const body = { policy: { kind: 'allow-all' }, replaces: null }
    const request = { params: { tenant: 'acme' }, query: {}, body, caller, signal: new AbortController().signal }
    await expect(put?.run(request)).rejects.toMatchObject({ code: 'audit_unavailable' })
    expect(entries).toMatchObject([{ kind: 'admin', action: 'policy_put', author: 'bob', client: 'unix' }])
    expect([tenantPolicies.list(), await source.tenantInForce('acme')]).toEqual([[], undefined])
    tenantPolicies.close()
    source.close()
  })
})

describe('explain', () => {
  test('gives every layer’s verdict, as the gateway would decide it', async () => {
    const control = await start({
      policy: { ceiling: { kind: 'allow-all' }, tenants: { acme: allow('echo.example.test') as never } },
    })
    const token = await control.gateway.token({ ...EVERYTHING, tenant: 'acme' })
    const ask = (body: object) => control.call('POST', '/v1/explain', body)
    const allowed = await ask({ token, host: 'echo.example.test', port: echo.port })
    expect(allowed.body).toMatchObject({
      decision: { effective: 'allow' },
      addresses: [{ address: HOST, prohibited: false }],
      note: 'addresses from `network.hosts`',
    })
    const refused = await ask({ tenant: 'acme', host: 'other.example.test', port: echo.port })
    expect(refused.body).toMatchObject({ decision: { effective: 'deny', layer: 'tenant', reason: 'host_not_allowed' } })
    const own = await ask({ host: '127.0.0.1', port: control.gateway.adminPort })
    expect(own.body).toMatchObject({
      decision: { reason: 'address_prohibited' },
      addresses: [{ class: 'own-listener' }],
    })
    expect((await ask({ token: 'nonsense', host: 'x.example' })).body).toMatchObject({
      decision: { reason: 'token_malformed' },
    })
    expect(await ask({ host: 'a b' })).toMatchObject({ status: 400 })
    expect(await ask({ token, tenant: 'acme', host: 'x.example' })).toMatchObject({ status: 400 })
  })
})

describe('tunnels and identities', () => {
  test('are listed with what they use, found by filters, and cut', async () => {
    const control = await start({
      policy: { ceiling: { kind: 'allow-all' }, tenants: { acme: { kind: 'allow-all' } } },
    })
    const one = await tunnel(control, await control.gateway.token({ ...EVERYTHING, sub: 'a', tenant: 'acme' }))
    const other = await tunnel(control, await control.gateway.token({ ...EVERYTHING, sub: 'b' }), 'other.example.test')
    expect(await isAlive(one)).toBe(true)
    const all = (await control.call('GET', '/v1/tunnels')).body
    expect(all).toMatchObject({
      open: 2,
      tunnels: [{ host: 'echo.example.test', addresses: [HOST] }, { sandbox: 'b' }],
    })
    const paged = (await control.call('GET', '/v1/tunnels?limit=1')).body as { cursor: string; tunnels: object[] }
    expect(paged.tunnels).toHaveLength(1)
    const rest = (await control.call('GET', `/v1/tunnels?limit=1&cursor=${paged.cursor}`)).body
    expect(rest).toEqual({ open: 2, tunnels: [expect.objectContaining({ sandbox: 'b' })] })
    expect((await control.call('GET', '/v1/identities?tenant=acme')).body).toMatchObject({
      identities: [{ sandbox: 'a', ofSandbox: { tunnels: 1, limits: { tunnels: 200 } }, ofTenant: { tunnels: 1 } }],
    })
    const mine = (await control.call('GET', '/v1/tunnels?sandbox=a')).body as { tunnels: { requestId: string }[] }
    expect((await control.call('DELETE', `/v1/tunnels/${mine.tunnels[0]?.requestId ?? ''}`)).status).toBe(204)
    await one.over(1000)
    expect((await control.call('DELETE', '/v1/tunnels/nothing')).status).toBe(404)
    expect((await control.call('POST', '/v1/tunnels:cut', { sandbox: 'b' })).body).toEqual({ cut: 1 })
    await other.over(1000)
    for (const sandbox of ['a', 'b'])
      await control.gateway.auditLine((line) => line['close_reason'] === 'operator' && line['sandbox'] === sandbox)
  })
})

describe('bound listeners', () => {
  async function withFolder() {
    const folder = fs.mkdtempSync('/tmp/sp-bind-')
    const control = await start({ admin: { bind: { folders: [folder], addresses: ['127.0.0.1'] } } })
    return { folder, control, close: () => fs.rmSync(folder, { recursive: true, force: true }) }
  }

  test('are that sandbox for whoever reaches them, obey another policy at once, and end with their lease or on request', async () => {
    const { folder, control, close } = await withFolder()
    try {
      const socket = path.join(folder, 'one.sock')
      const bind = (address: object, more: object = {}) =>
        control.call('POST', '/v1/listeners', {
          sandbox: 'sbx_b',
          egress: allow('echo.example.test'),
          address,
          ...more,
        })
      const made = await bind({ path: socket })
      expect(made).toMatchObject({ status: 201, body: { address: { path: socket }, author: 'alice' } })
      expect(fs.statSync(socket).mode & 0o777).toBe(0o600)
      expect(await bind({ path: socket })).toMatchObject({ status: 409, body: { error: 'conflict' } })
      const open = await connect({ path: socket }, 'echo.example.test')
      expect(open.status).toBe(200)
      expect((await control.call('GET', '/v1/identities?sandbox=sbx_b')).body['identities']).toHaveLength(1)
      const { id } = made.body as { id: string }
      await control.call('PATCH', `/v1/listeners/${id}`, { egress: { kind: 'deny-all' }, ttlSeconds: 60 })
      await open.client.over(1000)
      expect((await connect({ path: socket }, 'echo.example.test')).status).toBe(403)
      const faulty = await control.call('PATCH', `/v1/listeners/${id}`, {
        egress: { kind: 'static', allowedHosts: ['*.com'] },
      })
      expect(faulty.status).toBe(422)
      await control.call('PATCH', `/v1/listeners/${id}`, { egress: allow('echo.example.test') })
      const again = await connect({ path: socket }, 'echo.example.test')
      expect((await control.call('DELETE', `/v1/listeners/${id}`)).status).toBe(204)
      await again.client.over(1000)
      expect(fs.existsSync(socket)).toBe(false)
      expect((await control.call('DELETE', `/v1/listeners/${id}`)).status).toBe(404)
      expect((await control.call('PATCH', `/v1/listeners/${id}`, { ttlSeconds: 5 })).status).toBe(404)

      const short = await bind({ host: '127.0.0.1', port: 0 }, { ttlSeconds: 1 })
      const { address } = short.body as { address: { host: string; port: number } }
      const lapsing = await connect(address, 'echo.example.test')
      expect(lapsing.status).toBe(200)
      await lapsing.client.over(5000)
      const line = await control.gateway.auditLine(({ action }) => action === 'listener_lapsed')
      expect(line).toMatchObject({ sandbox: 'sbx_b' })
      expect((await control.call('GET', '/v1/listeners')).body['listeners']).toEqual([])
    } finally {
      close()
    }
  })

  test('are bound nowhere but where the operator said, whatever the path looks like', async () => {
    const { folder, control, close } = await withFolder()
    const outside = fs.mkdtempSync('/tmp/sp-out-')
    try {
      fs.symlinkSync(outside, path.join(folder, 'link'))
      fs.mkdirSync(path.join(folder, 'open'))
      fs.chmodSync(path.join(folder, 'open'), 0o777)
      fs.writeFileSync(path.join(folder, 'file'), 'mine')
      const status = async (address: object) =>
        (await control.call('POST', '/v1/listeners', { sandbox: 's', address })).status
      for (const place of [
        `${outside}/a.sock`,
        `${folder}/../${path.basename(outside)}/a.sock`,
        `${folder}/link/a.sock`,
        `${folder}/open/a.sock`,
        `${folder}/none/a.sock`,
        `${folder}/`,
        'a.sock',
        `${folder}-other/a.sock`,
      ])
        expect([place, await status({ path: place })]).toEqual([place, 403])
      expect(await status({ path: path.join(folder, 'file') })).toBe(409)
      expect(fs.readFileSync(path.join(folder, 'file'), 'utf8')).toBe('mine')
      expect(await status({ host: '0.0.0.0', port: 0 })).toBe(403)
      expect(await status({ host: 'localhost', port: 0 })).toBe(403)
      expect(await status({ path: `${folder}/${'a'.repeat(120)}` })).toBe(400)
      expect(fs.readdirSync(outside)).toEqual([])
      const long = { sandbox: 's', address: { path: `${folder}/a.sock` }, ttlSeconds: 7_200 }
      expect((await control.call('POST', '/v1/listeners', long)).status).toBe(403)
    } finally {
      close()
      fs.rmSync(outside, { recursive: true })
    }
  })
})

describe('audit', () => {
  test('is found by filters, page by page, counted, and followed', async () => {
    const control = await start()
    const stream = await fetch(control.url('/v1/audit/stream?kind=decision'), {
      headers: bearer(await control.adminToken(['read'])),
    })
    expect(stream.headers.get('content-type')).toBe('text/event-stream')
    const token = await control.gateway.token({ egress: allow('echo.example.test'), sub: 'sbx_a' })
    for (const host of ['no.example', 'no.example', 'not.example', 'echo.example.test'])
      await connect({ port: control.gateway.port, host: '127.0.0.1' }, host, token)
    const first = (await control.call('GET', '/v1/audit?kind=decision&decision=deny&limit=2')).body as {
      cursor: string
      lines: { host: string }[]
    }
    expect(first.lines.map(({ host }) => host)).toEqual(['no.example', 'no.example'])
    const second = (await control.call('GET', `/v1/audit?kind=decision&decision=deny&limit=2&cursor=${first.cursor}`))
      .body
    expect(second).toMatchObject({ lines: [{ host: 'not.example' }] })
    expect(await control.call('GET', '/v1/audit?cursor=nonsense')).toMatchObject({ status: 400 })
    const counted = (await control.call('GET', '/v1/audit/summary?top=1')).body
    expect(counted).toMatchObject({
      allowed: 1,
      refused: 3,
      refusedHosts: [{ name: 'no.example', count: 2 }],
      exact: true,
    })
    const reader = stream.body?.pipeThrough(new TextDecoderStream()).getReader()
    let text = ''
    while ((text.match(/^data: /gm) ?? []).length < 4) text += (await reader?.read())?.value ?? ''
    const lines = [...text.matchAll(/^data: (.*)$/gm)].map(([, data = '']) => auditLineSchema.parse(JSON.parse(data)))
    expect(lines.map((line) => 'host' in line && line.host)).toEqual([
      'no.example',
      'no.example',
      'not.example',
      'echo.example.test',
    ])
    await reader?.cancel()
  })

  test('is followed from its last lines on, when it is asked for', async () => {
    const control = await start()
    const token = await control.gateway.token({ egress: allow('echo.example.test'), sub: 'sbx_a' })
    for (const host of ['one.example', 'two.example', 'three.example'])
      await connect({ port: control.gateway.port, host: '127.0.0.1' }, host, token)
    const headers = bearer(await control.adminToken(['read']))
    const stream = await fetch(control.url('/v1/audit/stream?kind=decision&lines=2'), { headers })
    const reader = stream.body?.pipeThrough(new TextDecoderStream()).getReader()
    let text = ''
    while ((text.match(/^data: /gm) ?? []).length < 2) text += (await reader?.read())?.value ?? ''
    expect([...text.matchAll(/"host":"([^"]+)"/g)].map(([, host]) => host)).toEqual(['two.example', 'three.example'])
    await reader?.cancel()
    for (const lines of ['1001', '-1', '1e3', ''])
      expect([lines, (await fetch(control.url(`/v1/audit/stream?lines=${lines}`), { headers })).status]).toEqual([
        lines,
        400,
      ])
  })

  test('is counted in parts of a period, of one host too', async () => {
    const control = await start()
    const token = await control.gateway.token({ egress: allow('echo.example.test'), tenant: undefined })
    for (const host of ['no.example', 'no.example', 'not.example'])
      await connect({ port: control.gateway.port, host: '127.0.0.1' }, host, token)
    const counted = (await control.call('GET', '/v1/audit/summary?buckets=12')).body as {
      series: { refused: number; hosts: number[] }[]
    }
    expect(counted.series).toHaveLength(12)
    expect(counted.series.at(-1)).toMatchObject({ refused: 3, hosts: [2, 1] })
    expect((await control.call('GET', '/v1/audit/summary?host=not.example')).body).toMatchObject({
      refused: 1,
      refusedHosts: [{ name: 'not.example' }],
    })
    for (const buckets of ['0', '61', '1.5', ''])
      expect((await control.call('GET', `/v1/audit/summary?buckets=${buckets}`)).status).toBe(400)
  })

  test('says what its last checkpoint is, and whether it verified', async () => {
    const control = await start()
    const before = (await control.call('GET', '/v1/audit/integrity')).body
    expect(before).toMatchObject({ writable: true, verifying: false, lastCheckpoint: { segment: 1 } })
    expect(before).not.toHaveProperty('verification')
    expect(await control.call('POST', '/v1/audit:verify')).toMatchObject({ status: 202, body: { verifying: true } })
    const ended = async () => (await control.call('GET', '/v1/audit/integrity')).body['verification']
    await expect.poll(ended, { timeout: 20_000 }).toMatchObject({ outcome: 'verified', files: 1 })
    // One that was made a moment ago is not made again.
    const first = await ended()
    expect((await control.call('POST', '/v1/audit:verify')).body).toMatchObject({
      verifying: false,
      verification: first,
    })
    // It has no body, and changes nothing that is written down.
    expect((await control.call('POST', '/v1/audit:verify', { path: '/etc' })).status).toBe(400)
  })
})

describe('who asks, and how the gateway is', () => {
  test('credentials say whose they are, with what scopes and until when', async () => {
    const control = await start()
    const token = await control.adminToken(['policy', 'read'], { name: 'bob', lifeSeconds: 60 })
    const { body } = await control.call('GET', '/v1/caller', undefined, { token })
    expect(body).toMatchObject({ author: 'bob', scopes: ['read', 'policy'], tokenId: expect.any(String) as string })
    expect(Date.parse(String(body['expiresAt'])) - Date.now()).toBeLessThanOrEqual(60_000)
  })

  test('the status has readiness, limits and tunnels, and changes with them', async () => {
    const control = await start({ limits: { tunnels: 7, perSandbox: { bytesPerDay: '1MiB' } } })
    const token = await control.gateway.token({ egress: allow('echo.example.test') })
    await connect({ port: control.gateway.port, host: '127.0.0.1' }, 'echo.example.test', token)
    // Its first key came after its start: the gateway sees it within a second.
    await expect
      .poll(async () => (await control.call('GET', '/v1/status')).body['ready'], { timeout: 5_000 })
      .toBe(true)
    expect((await control.call('GET', '/v1/status')).body).toMatchObject({
      ready: true,
      reasons: [],
      tunnels: { open: 1, limit: 7 },
      limits: { perSandbox: { tunnels: 200, bytesPerDay: 1_048_576 }, perTenant: {} },
      audit: { writable: true, onFailure: 'deny', sinks: [] },
    })
    const draining = control.gateway.gateway.drain()
    expect((await control.call('GET', '/v1/status')).body).toMatchObject({ ready: false, reasons: ['draining'] })
    for (const client of clients.splice(0)) client.destroy()
    await draining
  })
})

describe('reload', () => {
  test('does what the gateway was started with, and tells what is wrong with a file', async () => {
    const faults: Error[] = []
    const reload = (): Promise<void> => {
      const [fault] = faults
      return fault === undefined ? Promise.resolve() : Promise.reject(fault)
    }
    const control = await start({}, { reload })
    expect(await control.call('POST', '/v1/reload')).toMatchObject({
      status: 200,
      body: { policyVersion: expect.any(String) as string },
    })
    faults.push(new Error('marker-of-a-fault'))
    const failed = await control.call('POST', '/v1/reload')
    expect(failed).toMatchObject({ status: 500, body: { error: 'internal' } })
    expect(JSON.stringify(failed.body)).not.toContain('marker')
    const without = await start()
    expect((await without.call('POST', '/v1/reload')).status).toBe(501)
  })
})

describe('the document', () => {
  /** What is sent to every operation with a body: the document and the gateway must agree on each. */
  const BODIES: readonly unknown[] = [
    {}, [], 'text', 5, null,
    { unknown: true }, { sandbox: '' }, { sandbox: 's' }, { sandbox: 5 }, { tenant: 'x'.repeat(600) }, { tenant: 't' },
    { tokenId: 't' }, { tokenId: 't', sandbox: 's' }, { issuedBefore: '2026-01-01T00:00:00Z' }, { issuedBefore: 5 },
    { token: 'x' }, { token: '' }, { token: 'x', client: { address: '::1' } }, { token: 'x', client: { other: 1 } },
    { host: 'x.example' }, { host: 'x.example', port: 0 }, { host: 'x.example', port: 443.5 }, { host: 'x.example', addresses: [] },
    { policy: { kind: 'deny-all' } }, { policy: { kind: 'other' } }, { policy: { kind: 'static' } }, { policy: { kind: 'deny-all', mode: 'report' } },
    { policy: { kind: 'deny-all' }, replaces: null }, { policy: { kind: 'deny-all' }, replaces: 5 },
    { sandbox: 's', ttlSeconds: 0 }, { sandbox: 's', ttlSeconds: 100_000 }, { ttlSeconds: 5 }, { egress: { kind: 'deny-all' } },
    { egress: { kind: 'named', name: '' } }, { sandbox: 's', address: { path: '/none' } }, { sandbox: 's', address: { host: '::', port: 70_000 } },
    { sandbox: 's', address: { path: '/none', host: '::', port: 1 } },
  ] // prettier-ignore

  test('says what is accepted: what it refuses the gateway refuses as malformed, and what it accepts the gateway can read', async () => {
    const control = await start()
    const ajv = new Ajv2020({ strict: false, validateFormats: false })
    let count = 0
    for (const [template, operations] of Object.entries(control.document.paths)) {
      for (const [method, { requestBody, operationId }] of Object.entries(operations)) {
        const schema = requestBody?.content['application/json'].schema
        if (schema === undefined) continue
        const route = template.replaceAll(/\{[a-zA-Z]+\}/g, 'some')
        for (const body of BODIES) {
          const { status, body: answer } = await control.call(method.toUpperCase(), route, JSON.stringify(body))
          const isRead = answer['error'] !== 'request_malformed'
          const isDescribed = ajv.validate(schema, body)
          count++
          // What no schema of one field can say: a token and a tenant, a list that is no list of addresses.
          expect([operationId, body, isRead, status === 500]).toEqual([operationId, body, isDescribed, false])
        }
      }
    }
    expect(count).toBeGreaterThan(200)
  })

  test('describes every route, and a route that it does not describe is not there', async () => {
    const control = await start()
    const ids = Object.values(control.document.paths).flatMap((operations) =>
      Object.values(operations).map(({ operationId }) => operationId),
    )
    expect(new Set(ids).size).toBe(ids.length)
    expect(ids.sort()).toMatchInlineSnapshot(`
      [
        "bindListener",
        "checkPolicy",
        "cutTunnel",
        "cutTunnels",
        "deletePolicy",
        "explain",
        "followAudit",
        "inspectToken",
        "listIdentities",
        "listListeners",
        "listPolicies",
        "listRevocations",
        "listTunnels",
        "mintToken",
        "putPolicy",
        "queryAudit",
        "readCaller",
        "readIntegrity",
        "readPolicy",
        "readStatus",
        "reload",
        "removeListener",
        "renewListener",
        "revoke",
        "summarizeAudit",
        "verifyAudit",
      ]
    `)
    expect(operationFor(control.document, 'GET', '/v1/secrets')).toBeUndefined()
    expect((await control.call('GET', '/v1/secrets')).status).toBe(404)
    expect((await control.call('POST', '/v1/policies/acme')).status).toBe(404)
    expect((await control.call('GET', '/v1/tunnels?unknown=1')).status).toBe(400)
    expect((await control.call('GET', '/v1/tunnels?limit=1001')).status).toBe(400)
  })
})
