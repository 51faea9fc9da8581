import { spawnSync } from 'node:child_process'
import { statSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import http from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, expect, test } from 'vitest'
import { z } from 'zod'
import { AdminError } from '../../../proxy/admin/admin-error.ts'
import { defineRoute } from '../../../proxy/admin/route.ts'
import { createAdminServer, type AdminOptions, type AdminServer } from '../../../proxy/admin/server.ts'

const LOOPBACK = { kind: 'tcp', host: '127.0.0.1', port: 0 } as const
const undo: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const step of undo.splice(0).toReversed()) await step()
})

function make(options: Partial<AdminOptions> = {}): AdminServer {
  const server = createAdminServer({
    metrics: { render: () => Promise.resolve('sallyport_x 1\n'), contentType: 'text/plain; version=0.0.4' },
    notReady: () => [],
    publicKeys: () => ({ keys: [{ kty: 'OKP', kid: 'k1' }] }),
    open: () => ['jwks', 'metrics'],
    access: { identify: () => Promise.reject(new AdminError('credentials_missing', 'nobody is let in')) },
    routes: [],
    version: '1.2.3',
    ...options,
  })
  undo.push(() => server.close())
  return server
}

async function start(options: Partial<AdminOptions> = {}): Promise<number> {
  const address = await make(options).listen(LOOPBACK)
  return address.kind === 'tcp' ? address.port : 0
}

test('health says that the process answers', async () => {
  const response = await fetch(`http://127.0.0.1:${await start({ notReady: () => ['draining'] })}/healthz`)
  expect([response.status, await response.json()]).toEqual([200, { status: 'ok' }])
  expect(response.headers.get('cache-control')).toBe('no-store')
})

test('readiness names what is missing', async () => {
  let reasons: string[] = []
  const port = await start({ notReady: () => reasons })
  expect((await fetch(`http://127.0.0.1:${port}/readyz`)).status).toBe(200)
  reasons = ['audit_unavailable']
  const response = await fetch(`http://127.0.0.1:${port}/readyz`)
  expect([response.status, await response.json()]).toEqual([
    503,
    { status: 'not_ready', reasons: ['audit_unavailable'] },
  ])
})

test('metrics and public keys have their content types', async () => {
  const port = await start()
  const metrics = await fetch(`http://127.0.0.1:${port}/metrics`)
  expect(metrics.headers.get('content-type')).toContain('version=0.0.4')
  expect(await metrics.text()).toBe('sallyport_x 1\n')
  const keys = await fetch(`http://127.0.0.1:${port}/.well-known/jwks.json`)
  expect(keys.headers.get('content-type')).toContain('application/jwk-set+json')
  expect(await keys.json()).toEqual({ keys: [{ kty: 'OKP', kid: 'k1' }] })
})

test('metrics and public keys need credentials where the operator wants it', async () => {
  const port = await start({ open: () => [] })
  for (const path of ['/metrics', '/.well-known/jwks.json', '/openapi.json'])
    expect([path, (await fetch(`http://127.0.0.1:${port}${path}`)).status]).toEqual([path, 401])
  for (const path of ['/healthz', '/readyz']) expect((await fetch(`http://127.0.0.1:${port}${path}`)).status).toBe(200)
})

test('an answer of any length is the same JSON, under the same headers', async () => {
  const list = z.object({ list: z.array(z.string()) })
  const lengths = [0, 10, 100_000]
  const routes = lengths.map((length) =>
    defineRoute({
      method: 'GET',
      path: `/v1/list${length}`,
      id: `list${length}`,
      tag: 'gateway',
      summary: 'A list',
      scopes: ['read'],
      errors: [],
      reply: list,
      handle: () => ({ list: Array.from({ length }, (_none, at) => `ü${at}.example.test`) }),
    }),
  )
  const scopes = new Set(['admin' as const])
  const caller = { author: 'a', client: 'c', scopes, tokenId: undefined, expiresAtMs: undefined, isGood: () => true }
  const port = await start({ routes, access: { identify: () => Promise.resolve(caller) } })
  for (const length of lengths) {
    const response = await fetch(`http://127.0.0.1:${port}/v1/list${length}`)
    expect(response.headers.get('content-type')).toBe('application/json; charset=utf-8')
    expect(response.headers.get('cache-control')).toBe('no-store')
    expect(await response.text()).toBe(
      JSON.stringify({ list: Array.from({ length }, (_none, at) => `ü${at}.example.test`) }),
    )
  }
})

test('anything else is not found, and nothing can be changed', async () => {
  const port = await start()
  expect((await fetch(`http://127.0.0.1:${port}/v1/secrets`)).status).toBe(404)
  expect((await fetch(`http://127.0.0.1:${port}/healthz`, { method: 'POST', body: 'x' })).status).toBe(404)
})

test('a fault inside is not told to whoever asks', async () => {
  const port = await start({ publicKeys: () => Promise.reject(new Error('marker-of-a-fault')) })
  const response = await fetch(`http://127.0.0.1:${port}/.well-known/jwks.json`)
  expect(response.status).toBe(500)
  const text = await response.text()
  expect(JSON.parse(text)).toMatchObject({ error: 'internal' })
  expect(text).not.toContain('marker-of-a-fault')
})

test('it is no proxy: CONNECT and absolute targets lead nowhere', async () => {
  const port = await start()
  const closed = new Promise<string>((resolve) => {
    const request = http.request({ port, host: '127.0.0.1', method: 'CONNECT', path: '127.0.0.1:1' })
    request.on('connect', () => resolve('connected'))
    request.on('response', (response) => resolve(String(response.statusCode)))
    request.on('error', () => resolve('refused'))
    request.end()
  })
  expect(await closed).not.toBe('connected')
})

test('a port in use is one clear line', async () => {
  const port = await start()
  await expect(make().listen({ ...LOOPBACK, port })).rejects.toMatchObject({
    code: 'SALLYPORT_LISTEN_FAILED',
    message: `admin listener: can't listen on \`127.0.0.1:${port}\`: it is in use`,
  })
})

test('it listens on a unix socket', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sallyport-admin-'))
  undo.push(() => rm(folder, { recursive: true }))
  const path = join(folder, 'admin.sock')
  await make().listen({ kind: 'unix', path })
  expect(statSync(path).mode & 0o777).toBe(0o600)
  const status = await new Promise((resolve, reject) => {
    http
      .get({ socketPath: path, path: '/healthz' }, (response) => resolve(response.resume().statusCode))
      .on('error', reject)
  })
  expect(status).toBe(200)
})

test('a socket that a dead gateway left is replaced, and anything else at that path stays', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sallyport-admin-'))
  undo.push(() => rm(folder, { recursive: true }))
  const path = join(folder, 'admin.sock')
  // A process that ends without a word leaves its socket.
  const script = `require('node:net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL'))`
  spawnSync(process.execPath, ['-e', script])
  expect(statSync(path).isSocket()).toBe(true)
  await make().listen({ kind: 'unix', path })
  await expect(make().listen({ kind: 'unix', path })).rejects.toMatchObject({ code: 'SALLYPORT_LISTEN_FAILED' })
  await writeFile(join(folder, 'file'), 'mine')
  await expect(make().listen({ kind: 'unix', path: join(folder, 'file') })).rejects.toMatchObject({
    code: 'SALLYPORT_LISTEN_FAILED',
  })
  expect(await readFile(join(folder, 'file'), 'utf8')).toBe('mine')
})
