/** Getting into the control API, or from it into the proxy: with a token of the other kind, a token that was made up, too little scope, or no credentials. */
import crypto from 'node:crypto'
import { once } from 'node:events'
import http from 'node:http'
import net from 'node:net'
import path from 'node:path'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { SignJWT } from 'jose'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { openKeys } from '../../proxy/tokens/keys.ts'
import { mintToken } from '../../proxy/tokens/mint.ts'
import { startTestGateway } from '../integration/test-gateway.ts'
import { bearer, type ControlClient, OWN_ISSUER, startControl } from '../proxy/admin/control-client.ts'

let control: ControlClient

beforeAll(async () => {
  control = await startControl({ policy: { ceiling: { kind: 'allow-all' } }, admin: { requestsPerSecond: 1_000 } })
})
afterAll(() => control.gateway.close())

/** Every operation of the document, with a path that leads to it. */
function operations(): readonly (readonly [method: string, route: string])[] {
  return Object.entries(control.document.paths).flatMap(([template, methods]) =>
    Object.keys(methods).map(
      (method) => [method.toUpperCase(), template.replaceAll(/\{[a-zA-Z]+\}/g, 'some')] as const,
    ),
  )
}

async function signed(
  claims: Record<string, unknown>,
  header: Record<string, unknown> = {},
  key?: crypto.KeyObject,
): Promise<string> {
  const own = await (await openKeys(control.gateway.config({}).state)).signingKey()
  if (own === undefined) throw new Error('no key')
  const now = Math.floor(Date.now() / 1000)
  const whole = {
    iss: 'sallyport-admin',
    aud: 'sallyport-admin',
    iat: now,
    exp: now + 60,
    jti: 'j',
    scope: 'admin',
    ...claims,
  }
  const present = JSON.parse(JSON.stringify(whole)) as Record<string, unknown>
  const kid = own.kid === undefined ? {} : { kid: own.kid }
  return new SignJWT(present)
    .setProtectedHeader({ alg: own.algorithm, typ: 'admin+jwt', ...kid, ...header })
    .sign(key ?? own.key)
}

async function answer(token: string): Promise<string> {
  const response = await fetch(control.url('/v1/tunnels'), { headers: bearer(token) })
  const { error, message = '' } = (await response.json()) as { error?: string; message?: string }
  expect(message).not.toContain(token)
  return `${response.status} ${error ?? ''} ${/token_\w+/.exec(message)?.[0] ?? ''}`.trim()
}

describe('no route but health is open', () => {
  test('without credentials, with a wrong scheme, or with a token of a sandbox', async () => {
    const egress = await control.gateway.token({ egress: { kind: 'allow-all' } })
    for (const [method, route] of [...operations(), ['GET', '/openapi.json'], ['GET', '/metrics']] as const)
      for (const authorization of [undefined, '', 'Basic YTpi', `Bearer ${egress}`, `Bearer ${egress} x`, 'Bearer']) {
        const headers = { 'content-type': 'application/json', ...(authorization !== undefined && { authorization }) }
        const response = await fetch(control.url(route), { method, headers, ...(method !== 'GET' && { body: '{}' }) })
        // Enough of them from one address, and none is read any more.
        expect([method, route, [401, 429].includes(response.status)]).toEqual([method, route, true])
      }
  })

  test('a path that can not be read comes to none, and what is said of it repeats nothing', async () => {
    for (const route of ['/v1/policies/%zz-marker', '/%c0%af', '/v1/audit/%']) {
      const response = await fetch(control.url(route), { headers: { authorization: 'Bearer marker' } })
      expect([response.status, response.headers.get('cache-control')]).toEqual([400, 'no-store'])
      const text = await response.text()
      expect(JSON.parse(text)).toMatchObject({ error: 'request_malformed' })
      expect(text).not.toContain('marker')
    }
  })

  test('the files of the console are, and are the same whoever asks: nothing of this gateway is in them', async () => {
    const other = await startControl({ policy: { tenants: { 'marker-tenant': { kind: 'deny-all' } } } })
    try {
      const html = await (await fetch(other.url('/console/'))).text()
      const names = ['', ...[...html.matchAll(/(?:src|href)="\.\/([^"]+)"/g)].map(([, name = '']) => name)]
      expect(names.length).toBeGreaterThan(3)
      const token = await other.adminToken(['admin'])
      for (const name of names) {
        const [here, there, asAdmin] = await Promise.all(
          [
            fetch(control.url(`/console/${name}`)),
            fetch(other.url(`/console/${name}`)),
            fetch(other.url(`/console/${name}`), { headers: bearer(token) }),
          ].map(async (response) => Buffer.from(await (await response).arrayBuffer()).toString()),
        )
        expect([name, here === there, there === asAdmin, there?.includes('marker-tenant')]).toEqual([
          name,
          true,
          true,
          false,
        ])
      }
    } finally {
      await other.gateway.close()
    }
  })

  test('health and the public keys are', async () => {
    // Its first key came after its start: the gateway sees it within a second.
    await expect.poll(async () => (await fetch(control.url('/readyz'))).status, { timeout: 5_000 }).toBe(200)
    for (const route of ['/healthz', '/.well-known/jwks.json'])
      expect([route, (await fetch(control.url(route))).status]).toEqual([route, 200])
  })
})

describe('a page in a browser that reaches the admin socket through a forwarded port', () => {
  test('is refused under its own name, whatever that resolves to; an address or localhost is served', async () => {
    const folder = mkdtempSync('/tmp/sp-socket-')
    const socketPath = path.join(folder, 'admin.sock')
    const fresh = await startTestGateway({ listen: { admin: `unix:${socketPath}` } })
    try {
      const status = (host: string, route = '/v1/tunnels'): Promise<number | undefined> =>
        new Promise((resolve, reject) => {
          const request = http.get({ socketPath, path: route, headers: { host } }, (response) => {
            response.resume()
            resolve(response.statusCode)
          })
          request.on('error', reject)
        })
      for (const host of [
        'evil.example',
        'evil.example:9090',
        'EVIL.example.',
        '127.0.0.1.nip.example',
        '127.0.0.1.',
        '0x7f.1',
        'a.b',
      ])
        for (const route of ['/v1/tunnels', '/metrics', '/openapi.json'])
          expect([host, route, await status(host, route)]).toEqual([host, route, 401])
      for (const host of ['localhost', 'localhost:9090', '127.0.0.1:9090', '[::1]:9090', 'admin'])
        expect([host, await status(host)]).toEqual([host, 200])
    } finally {
      await fresh.close()
      rmSync(folder, { recursive: true, force: true })
    }
  })
})

describe('a page of another origin in a browser that needs no token', () => {
  test('has nothing done by it, with a body or without; the console beside it goes on', async () => {
    const folder = mkdtempSync('/tmp/sp-socket-')
    const socketPath = path.join(folder, 'admin.sock')
    let reloads = 0
    const fresh = await startTestGateway(
      { listen: { admin: `unix:${socketPath}` } },
      {
        reload: () => {
          reloads++
          return Promise.resolve()
        },
      },
    )
    try {
      const status = (method: string, route: string, headers: http.OutgoingHttpHeaders): Promise<number | undefined> =>
        new Promise((resolve, reject) => {
          const asked = { socketPath, method, path: route, headers: { host: 'localhost:9090', ...headers } }
          const request = http.request(asked, (response) => {
            response.resume()
            resolve(response.statusCode)
          })
          request.on('error', reject)
          request.end()
        })
      for (const headers of [
        { origin: 'http://evil.example' },
        { origin: 'null' },
        { origin: 'http://localhost:3000' },
        { origin: 'http://localhost:9090.evil.example' },
        { origin: 'http://localhost:9090', 'sec-fetch-site': 'cross-site' },
        { 'sec-fetch-site': 'same-site' },
        { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'no-cors' },
      ])
        for (const [method, route] of [
          ['POST', '/v1/reload'],
          ['POST', '/v1/audit:verify'],
          ['GET', '/v1/tunnels'],
          ['GET', '/metrics'],
        ] as const)
          expect([headers, method, route, await status(method, route, headers)]).toEqual([headers, method, route, 401])
      expect(reloads).toBe(0)
      for (const headers of [
        {},
        { origin: 'http://localhost:9090', 'sec-fetch-site': 'same-origin' },
        { origin: 'http://LOCALHOST:9090' },
        { 'sec-fetch-site': 'none' },
      ])
        expect([headers, await status('POST', '/v1/reload', headers)]).toEqual([headers, 200])
    } finally {
      await fresh.close()
      rmSync(folder, { recursive: true, force: true })
    }
  })
})

describe('a token is good on one side alone', () => {
  test('one that the gateway itself minted for a sandbox, with every claim of an administrator, is refused', async () => {
    const fresh = await startControl()
    try {
      const key = await (await openKeys(fresh.gateway.config({}).state)).signingKey()
      if (key === undefined) throw new Error('no key')
      for (const options of [
        { issuer: OWN_ISSUER },
        { issuer: OWN_ISSUER, audience: 'sallyport-admin' },
        { issuer: 'sallyport-admin', audience: 'sallyport-admin' },
      ]) {
        const { token } = await mintToken({ key, sandbox: 'admin', egress: { kind: 'allow-all' }, ...options })
        const response = await fetch(fresh.url('/v1/tunnels'), { headers: bearer(token) })
        expect([options, response.status]).toEqual([options, 401])
      }
    } finally {
      await fresh.gateway.close()
    }
  })

  test('an admin token lets nobody out, and neither does one with the audience of both', async () => {
    for (const token of [
      await control.adminToken(['admin']),
      await signed({ aud: ['sallyport', 'sallyport-admin'], egress: { kind: 'allow-all' } }),
      await signed({ iss: OWN_ISSUER, aud: 'sallyport', egress: { kind: 'allow-all' } }),
    ]) {
      const head = await connectAs(token)
      expect(head).toMatch(/^HTTP\/1\.1 407 Token (Issuer Unknown|Malformed)/)
      expect(head).not.toContain(token)
    }
  })

  test('no issuer can be configured under the name or with the audience of the control API', async () => {
    for (const issuer of [
      { issuer: 'sallyport-admin', algorithms: ['ES256' as const], stateKeys: true as const },
      { issuer: 'x', audience: 'sallyport-admin', algorithms: ['ES256' as const], stateKeys: true as const },
      {
        issuer: 'x',
        audience: ['sallyport', 'sallyport-admin'],
        algorithms: ['ES256' as const],
        stateKeys: true as const,
      },
    ])
      await expect(startControl({ issuers: [issuer] })).rejects.toMatchObject({ code: 'SALLYPORT_CONFIG_INVALID' })
  })
})

/** When this file was read; the tests below may run a while later. */
const SOON = Math.floor(Date.now() / 1000)

describe('a token that was made up', () => {
  test.each([
    ['no scope', { scope: undefined }, {}, 'token_claims_invalid'],
    ['a scope that only looks like one', { scope: 'readadmin' }, {}, 'token_claims_invalid'],
    ['a list of scopes', { scope: ['admin'] }, {}, 'token_claims_invalid'],
    ['an unknown scope beside a known one', { scope: 'admin root' }, {}, 'token_claims_invalid'],
    ['two blanks', { scope: 'read  admin' }, {}, 'token_claims_invalid'],
    ['another audience', { aud: 'sallyport' }, {}, 'token_audience_mismatch'],
    ['no audience', { aud: undefined }, {}, 'token_claims_invalid'],
    ['no id', { jti: undefined }, {}, 'token_claims_invalid'],
    ['the typ of a sandbox', {}, { typ: 'egress+jwt' }, 'token_malformed'],
    ['the typ of anything', {}, { typ: 'JWT' }, 'token_malformed'],
    ['no typ', {}, { typ: undefined }, 'token_malformed'],
    ['too long a life', { exp: Math.floor(Date.now() / 1000) + 90_000 }, {}, 'token_claims_invalid'],
    ['an end long ago', { iat: 1_000, exp: 2_000 }, {}, 'token_expired'],
    ['a beginning in the future', { nbf: SOON + 80_000, exp: SOON + 80_060 }, {}, 'token_not_yet_valid'],
    ['a binding to another address', { cnf: { ip: '198.51.100.7' } }, {}, 'token_binding_mismatch'],
    ['a binding that nobody knows', { cnf: { jkt: 'x' } }, {}, 'token_claims_invalid'],
  ])('with %s is refused', async (_what, claims, header, reason) => {
    const fresh = await startControl()
    const before = control
    control = fresh
    try {
      expect(await answer(await signed(claims, header))).toBe(`401 credentials_invalid ${reason}`)
      expect(await answer(await signed({}))).toBe('200')
    } finally {
      control = before
      await fresh.gateway.close()
    }
  })

  test('by another key, without a signature, or by a secret that is the public key, is refused', async () => {
    const fresh = await startControl()
    const before = control
    control = fresh
    try {
      const { privateKey } = crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' })
      expect(await answer(await signed({}, {}, privateKey))).toContain('token_signature_invalid')
      const good = await signed({})
      const [, payload = ''] = good.split('.')
      const none = Buffer.from(JSON.stringify({ alg: 'none', typ: 'admin+jwt' })).toString('base64url')
      expect(await answer(`${none}.${payload}.`)).toContain('401')
      const [{ keys }] = [(await (await fetch(control.url('/.well-known/jwks.json'))).json()) as { keys: object[] }]
      const secret = crypto.createSecretKey(Buffer.from(JSON.stringify(keys[0])))
      expect(await answer(await signed({}, { alg: 'HS256' }, secret))).toContain('token_signature_invalid')
      expect(await answer(await signed({}, { jwk: { kty: 'EC' }, jku: 'http://127.0.0.1:1/' }))).toBe('200')
    } finally {
      control = before
      await fresh.gateway.close()
    }
  })

  test('leaves no stream behind when its bearer goes before it is looked at', async () => {
    const fresh = await startControl({ admin: { requestsPerSecond: 1_000 } })
    try {
      const { hostname: host, port } = new URL(fresh.url('/'))
      const tokens = await Promise.all(Array.from({ length: 100 }, () => fresh.adminToken(['read'])))
      const left = tokens.map(async (token) => {
        const socket = net.connect(Number(port), host)
        await once(socket, 'connect')
        const head = `GET /v1/audit/stream?tenant=nobody HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${token}\r\n\r\n`
        await new Promise((resolve) => socket.write(head, resolve))
        socket.resetAndDestroy()
      })
      await Promise.all(left)
      const headers = bearer(await fresh.adminToken(['read']))
      // All that there may be at a time.
      const statuses = async (): Promise<readonly number[]> => {
        const gone = new AbortController()
        const asked = { headers, signal: gone.signal }
        const streams = Array.from({ length: 32 }, () => fetch(fresh.url('/v1/audit/stream?tenant=nobody'), asked))
        const found = (await Promise.all(streams)).map(({ status }) => status)
        gone.abort()
        return [...new Set(found)]
      }
      await expect.poll(statuses, { timeout: 10_000 }).toEqual([200])
    } finally {
      await fresh.gateway.close()
    }
  })

  test('is not accepted any more once it was revoked, or its key removed', async () => {
    const fresh = await startControl()
    try {
      const token = await fresh.adminToken(['read'])
      const { jti } = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()) as { jti: string }
      const status = async (which: string) => (await fetch(fresh.url('/v1/tunnels'), { headers: bearer(which) })).status
      expect(await status(token)).toBe(200)
      const stream = await fetch(fresh.url('/v1/audit/stream'), { headers: bearer(token) })
      await fresh.call('POST', '/v1/revocations', { tokenId: jti })
      expect(await status(token)).toBe(401)
      // A stream that it opened ends too.
      await stream.text().catch(() => '')
      const other = await fresh.adminToken(['read'])
      const keys = await openKeys(fresh.gateway.config({}).state)
      for (const { kid } of keys.list()) await keys.remove(kid)
      await expect.poll(() => status(other), { timeout: 10_000 }).toBe(401)
    } finally {
      await fresh.gateway.close()
    }
  })
})

describe('a scope', () => {
  test('opens the routes that the document says, and no other', async () => {
    const scopes = ['read', 'policy', 'token'] as const
    for (const scope of scopes) {
      const fresh = await startControl({ admin: { requestsPerSecond: 10_000 } })
      try {
        const token = await fresh.adminToken([scope])
        for (const [template, methods] of Object.entries(fresh.document.paths))
          for (const [method, operation] of Object.entries(methods)) {
            if (template.endsWith('/stream')) continue
            const { description } = operation as unknown as { description: string }
            const isOpen = description.includes(`\`${scope}\``)
            const { status } = await fresh.call(
              method.toUpperCase(),
              template.replaceAll(/\{[a-zA-Z]+\}/g, 'some'),
              undefined,
              { token },
            )
            expect([scope, method, template, status === 403]).toEqual([scope, method, template, !isOpen])
          }
      } finally {
        await fresh.gateway.close()
      }
    }
  })

  test('to read shuts nobody out: asking about bad tokens costs the addresses that are named nothing', async () => {
    // Budgets that are spent stay spent, however slow this is.
    const clock = { wallMs: () => Date.now(), monotonicMs: () => 0 }
    const fresh = await startControl({ admin: { requestsPerSecond: 1_000 } }, { clock })
    const before = control
    control = fresh
    try {
      const token = await fresh.adminToken(['read'])
      const { privateKey } = crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' })
      const claims = { iss: OWN_ISSUER, aud: 'sallyport' }
      const bad = await Promise.all(
        Array.from({ length: 300 }, (_, index) =>
          signed({ ...claims, jti: `bad-${index}` }, { typ: 'egress+jwt' }, privateKey),
        ),
      )
      const client = { address: '127.0.0.1' }
      const reasonOf = async (one: string, index: number): Promise<unknown> => {
        if (index % 2 === 0)
          return (await fresh.call('POST', '/v1/tokens:inspect', { token: one, client }, { token })).body['reason']
        const asked = { token: one, client, host: 'x.example', port: 443 }
        const { decision } = (await fresh.call('POST', '/v1/explain', asked, { token })).body
        return (decision as Record<string, unknown>)['reason']
      }
      const reasons = await Promise.all(bad.map(reasonOf))
      expect(new Set(reasons)).toEqual(new Set(['token_signature_invalid', 'rate_limit']))
      expect(await connectAs(await fresh.gateway.token({ egress: { kind: 'deny-all' } }))).toContain('host_not_allowed')
    } finally {
      control = before
      await fresh.gateway.close()
    }
  })

  test('does not grow by who it was minted for: the name of a holder is a name', async () => {
    const fresh = await startControl()
    try {
      const token = await fresh.adminToken(['read'], { name: 'admin' })
      expect((await fresh.call('POST', '/v1/revocations', { tenant: 'x' }, { token })).status).toBe(403)
      // Nor is a sandbox of the same name its holder.
      await fresh.call('POST', '/v1/revocations', { sandbox: 'admin' })
      expect((await fresh.call('GET', '/v1/tunnels', undefined, { token })).status).toBe(200)
    } finally {
      await fresh.gateway.close()
    }
  })
})

describe('bad input', () => {
  test('a body that is too large, no JSON, or of another type is refused, before credentials only the head is read', async () => {
    const fresh = await startControl()
    try {
      const large = JSON.stringify({ sandbox: 's'.repeat(70_000) })
      expect(await fresh.call('POST', '/v1/revocations', large)).toMatchObject({
        status: 413,
        body: { error: 'body_too_large' },
      })
      const policy = { kind: 'static', allowedHosts: Array.from({ length: 100_001 }, (_, at) => `h${at}.example`) }
      expect(await fresh.call('PUT', '/v1/policies/a', { policy, replaces: null })).toMatchObject({ status: 400 })
      expect(await fresh.call('PUT', '/v1/policies/a', JSON.stringify('x'.repeat(4_200_000)))).toMatchObject({
        status: 413,
      })
      expect(await fresh.call('POST', '/v1/revocations', '{"a":')).toMatchObject({ status: 400 })
      expect(await fresh.call('POST', '/v1/revocations', '{"__proto__":{"tokenId":"x"}}')).toMatchObject({
        status: 400,
      })
      const named = await fresh.call('POST', '/v1/explain', '{"a\\u001b\\u007f\\u009b\\u202e":1}')
      const told = { message: `unknown: \`${String.raw`a\u001b\u007f\u009b\u202e`}\`` }
      expect(named.body['faults']).toContainEqual(expect.objectContaining(told))
      const form = await fetch(fresh.url('/v1/revocations'), {
        method: 'POST',
        headers: { ...bearer(await fresh.adminToken(['admin'])), 'content-type': 'text/plain' },
        body: '{"tokenId":"x"}',
      })
      expect([form.status, await form.json()]).toMatchObject([415, { error: 'media_type_not_supported' }])
      expect(await endless(fresh.gateway.adminPort)).toMatch(/^HTTP\/1\.1 401/)
    } finally {
      await fresh.gateway.close()
    }
  })

  test('bad tokens of one address cost little: after some they are not read, and good callers elsewhere are served', async () => {
    const fresh = await startControl()
    try {
      const { privateKey } = crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' })
      const before = control
      control = fresh
      const bad = await signed({}, {}, privateKey)
      control = before
      const statuses = new Set<number>()
      for (let count = 0; count < 400; count++)
        statuses.add((await fetch(fresh.url('/v1/tunnels'), { headers: bearer(bad) })).status)
      expect([...statuses]).toEqual([401, 429])
    } finally {
      await fresh.gateway.close()
    }
  })

  test('one caller’s requests have a rate, and another’s are served meanwhile', async () => {
    const fresh = await startControl({ admin: { requestsPerSecond: 5 } })
    try {
      const eager = await fresh.adminToken(['read'], { name: 'eager' })
      const statuses: number[] = []
      for (let count = 0; count < 30; count++)
        statuses.push((await fetch(fresh.url('/v1/tunnels'), { headers: bearer(eager) })).status)
      expect(statuses).toContain(429)
      const calm = await fresh.adminToken(['read'], { name: 'calm' })
      expect((await fresh.call('GET', '/v1/tunnels', undefined, { token: calm })).status).toBe(200)
    } finally {
      await fresh.gateway.close()
    }
  })

  test('no token is in the audit log, in an answer to somebody else, or in the metrics', async () => {
    const fresh = await startControl()
    try {
      const own = await fresh.adminToken(['admin'], { name: 'marker' })
      const minted = await fresh.call('POST', '/v1/tokens', { sandbox: 's', handle: true }, { token: own })
      const { token, handle } = minted.body as { token: string; handle: string }
      await fresh.call('POST', '/v1/tokens:inspect', { token }, { token: own })
      await fresh.call('POST', '/v1/explain', { token, host: 'x.example' }, { token: own })
      const metrics = await (await fetch(fresh.url('/metrics'), { headers: bearer(own) })).text()
      const { audit } = fresh.gateway.config({})
      const { readdirSync } = await import('node:fs')
      const log = readdirSync(audit.path)
        .filter((name) => name.endsWith('.jsonl'))
        .map((name) => readFileSync(path.join(audit.path, name), 'utf8'))
        .join('')
      for (const secret of [own, token, handle]) for (const text of [metrics, log]) expect(text).not.toContain(secret)
      expect(log).toContain('"author":"marker"')
    } finally {
      await fresh.gateway.close()
    }
  })
})

/** A head without credentials and a body that never ends. */
async function endless(port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const request = http.request({
      port,
      host: '127.0.0.1',
      method: 'POST',
      path: '/v1/tokens',
      headers: { 'content-type': 'application/json', 'content-length': 1_000 },
    })
    request.write('{')
    request.on('response', (response) => {
      resolve(`HTTP/1.1 ${response.statusCode ?? 0}`)
      request.destroy()
    })
    request.on('error', reject)
  })
}

async function connectAs(token: string): Promise<string> {
  const socket = net.connect({ port: control.gateway.port, host: '127.0.0.1' })
  socket.write(`CONNECT x.example:443 HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`)
  return new Promise((resolve, reject) => {
    socket.once('data', (data) => {
      resolve(data.toString())
      socket.destroy()
    })
    socket.once('error', reject)
  })
}
