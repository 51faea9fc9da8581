/** What goes wrong with E2B, each told from the others, with its own words and our advice; and nothing is left of what was begun. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { PlatformError } from '../../../provider/backends/platform/platform-error.ts'
import { SandboxError } from '../../../provider/index.ts'
import { type E2bBench, MARKER_KEY, openE2bBench } from './bench.ts'
import { NO_CONTRACTS } from './contract.ts'
import type { Misbehaviour } from './contract-server.ts'

if (NO_CONTRACTS !== undefined) console.log(NO_CONTRACTS)

let bench: E2bBench
beforeAll(async () => {
  bench = await openE2bBench({ quota: 2 })
}, 60_000)
afterAll(() => bench.close(), 60_000)
afterEach(() => {
  expect(bench.server.running()).toEqual([])
  expect(bench.server.faults).toEqual([])
})

const json =
  (status: number, value: unknown, headers: Record<string, string> = {}): Misbehaviour =>
  (_request, response) =>
    void response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(value))

/** What a PlatformError has beside the others. */
type Failure = SandboxError & Partial<Pick<PlatformError, 'fault' | 'status'>>

async function failure(promise: Promise<unknown>): Promise<Failure> {
  const error: unknown = await promise.then(
    () => new Error('nothing was thrown'),
    (thrown: unknown) => thrown,
  )
  if (!(error instanceof SandboxError)) throw error
  // However deep.
  expect(JSON.stringify(error, Object.getOwnPropertyNames(error))).not.toContain(MARKER_KEY)
  expect(`${error.stack ?? ''} ${String(error.cause)}`).not.toContain(MARKER_KEY)
  return error
}

const CREATE = 'POST /v2/sandboxes'

describe('before anything is made', () => {
  test('a key that the platform does not take: its own words, and what to check', async () => {
    const error = await failure(bench.provider({ apiKey: 'e2b_anotherkeythatnobodyknows' }).create())
    expect(error).toMatchObject({ code: 'SALLYPORT_SANDBOX_BACKEND_MISSING', fault: 'credentials_refused' })
    expect(error.message).toMatch(/check `apiKey`.*Invalid API key/)
  })
  test('a gateway without TLS, unless that is asked for', async () => {
    const error = await failure(bench.provider({ unsafeTokenInClear: false }).create())
    expect(error).toMatchObject({ code: 'SALLYPORT_SANDBOX_EGRESS_UNENFORCED', fault: 'network_unsafe' })
    expect(error.message).toContain('unsafeTokenInClear')
  })
  test.each([
    ['at a private address', 'http://10.1.2.3:3128', /10\.1\.2\.3 \(private\)/],
    ['at loopback', 'http://127.0.0.1:3128', /127\.0\.0\.1 \(loopback\)/],
    ['at the metadata address', 'http://169.254.169.254:3128', /169\.254\.169\.254/],
    ['at an IPv6 address', 'http://[2606:4700::1]:3128', /IPv4 alone/],
    ['under a name that has no address', 'http://gateway.invalid:3128', /no IPv4 address/],
    ['under a name that is this machine', 'http://localhost:3128', /127\.0\.0\.1 \(loopback\)/],
  ])('a gateway %s', async (_where, url, said) => {
    const error = await failure(bench.provider({ unsafePrivateGateway: false }, { ...bench.remote, url }).create())
    expect(error).toMatchObject({ fault: 'network_unsafe' })
    expect(error.message).toMatch(said)
    expect(bench.server.calls.some(({ method, path }) => `${method} ${path}` === CREATE)).toBe(false)
  })
  test('an authority that commands could not be told of', async () => {
    const error = await failure(bench.provider({}, { ...bench.remote, ca: 'PEM' }).create())
    expect(error).toMatchObject({ code: 'SALLYPORT_SANDBOX_NOT_SUPPORTED' })
  })
  test('a limit that the platform does not keep', async () => {
    expect(await failure(bench.provider().create({ memoryLimitMb: 256 }))).toMatchObject({
      code: 'SALLYPORT_SANDBOX_NOT_SUPPORTED',
    })
  })
  test.each([
    ['no key', { apiKey: '' }],
    ['a template with a line feed', { template: 'a\nb' }],
    ['an address that is not encrypted', { apiUrl: 'http://api.example' }],
    ['an address with a password', { apiUrl: 'https://a:b@api.example' }],
    ['a lease of a second', { leaseMs: 1_000 }],
    ['another way of egress', { egress: 'allow-out' as never }],
  ])('%s is a mistake of the caller', (_what, config) => {
    expect(() => bench.provider(config)).toThrow(TypeError)
  })
})

describe('while a machine is made', () => {
  test('a template that is not there', async () => {
    const error = await failure(bench.provider({ template: 'no-such-template' }).create())
    expect(error).toMatchObject({ fault: 'not_found' })
    expect(error.message).toMatch(/no template `no-such-template`.*template 'no-such-template' not found/)
  })
  test('more machines than the team may have', async () => {
    const provider = bench.provider()
    const both = await Promise.all([provider.create(), provider.create()])
    const error = await failure(provider.create())
    expect(error).toMatchObject({ fault: 'quota_exhausted' })
    expect(error.message).toContain('sallyport sandbox reap --backend e2b')
    await Promise.all(both.map((sandbox) => sandbox.destroy()))
  }, 60_000)
  test('asked too often, it waits as long as it is told, and makes it', async () => {
    bench.server.misbehave(CREATE, json(429, { code: 429, message: 'slow down' }, { 'retry-after': '1' }), 1)
    const before = Date.now()
    const sandbox = await bench.provider().create()
    expect(Date.now() - before).toBeGreaterThanOrEqual(1_000)
    await sandbox.destroy()
  }, 60_000)
  test('asked too often without end', async () => {
    bench.server.misbehave(CREATE, json(429, { code: 429, message: 'slow down' }))
    expect(await failure(bench.provider().create())).toMatchObject({ fault: 'rate_limited' })
    bench.server.misbehave(CREATE, undefined)
  })
  test('a reply that is lost: the machine is found by its labels and ended', async () => {
    const server = bench.server
    server.loseReply(CREATE)
    const error = await failure(bench.provider().create())
    expect(error).toMatchObject({ fault: 'unreachable', outcome: 'unknown' })
    expect(server.calls.filter(({ method, status }) => method === 'DELETE' && status === 204).length).toBeGreaterThan(0)
  }, 60_000)
  test.each<[string, Misbehaviour, Partial<PlatformError>]>([
    ['a failure of the platform', json(500, { code: 500, message: 'it is\nraining' }), { fault: 'operation_failed', outcome: 'unknown', status: 500 }], // prettier-ignore
    ['a refusal of the team', json(403, { code: 403, message: 'not enabled for this team' }), { fault: 'request_refused', status: 403 }], // prettier-ignore
    ['a page of HTML', (_request, response) => void response.writeHead(200, { 'content-type': 'text/html' }).end('<html>'), { fault: 'unreadable_reply' }], // prettier-ignore
    ['half a reply', (_request, response) => void response.writeHead(201, { 'content-length': 500, 'content-type': 'application/json' }).write('{"sand', () => response.destroy()), { fault: 'unreachable', outcome: 'unknown' }], // prettier-ignore
    ['an echo of the key', json(400, { code: 400, message: `bad key ${MARKER_KEY}` }), { fault: 'request_refused' }], // prettier-ignore
  ])(
    '%s',
    async (_what, how, expected) => {
      bench.server.misbehave(CREATE, how, 1)
      expect(await failure(bench.provider().create())).toMatchObject(expected)
    },
    60_000,
  )
  test('a direct connection that is not stopped: there is no sandbox', async () => {
    const { port } = new URL(bench.server.apiUrl)
    const error = await failure(bench.provider({ directTargets: [{ host: '127.0.0.1', port: Number(port) }] }).create())
    expect(error.code).toBe('SALLYPORT_SANDBOX_EGRESS_UNENFORCED')
  }, 60_000)
  test('a machine whose envd does not take commands', async () => {
    bench.server.misbehave('/process.Process/Start', json(502, { code: 502, message: 'sandbox not found' }))
    expect((await failure(bench.provider().create())).code).toBe('SALLYPORT_SANDBOX_CONNECTION_LOST')
    bench.server.misbehave('/process.Process/Start', undefined)
  }, 60_000)
})

describe('while it lives', () => {
  test('a failure that passes is asked again where that does no harm', async () => {
    const provider = bench.provider()
    const sandbox = await provider.create()
    bench.server.misbehave('GET /v2/sandboxes', json(503, { code: 503, message: 'later' }), 1)
    expect((await provider.list()).map(({ id }) => id)).toEqual([sandbox.id])
    bench.server.misbehave('DELETE /sandboxes/{id}', json(500, { code: 500, message: 'later' }), 1)
    await sandbox.destroy()
  }, 60_000)
  test('a stream that is cut has no exit code', async () => {
    const sandbox = await bench.provider().create()
    const START = '/process.Process/Start'
    bench.server.misbehave(START, (_request, response) => void response.writeHead(200, { 'content-type': 'application/connect+json' }).write(Buffer.from([0, 0, 0, 0, 27, ...Buffer.from('{"event":{"start":{"pid":1}}')]), () => response.destroy()), 1) // prettier-ignore
    expect(await failure(sandbox.exec('true'))).toMatchObject({ code: 'SALLYPORT_SANDBOX_CONNECTION_LOST', outcome: 'unknown' }) // prettier-ignore
    await sandbox.destroy()
  }, 60_000)
  test('a machine in which no command runs any more can still be taken away, by another host too', async () => {
    const sandbox = await bench.provider().create()
    bench.server.misbehave('/process.Process/Start', json(502, { code: 502, message: 'sandbox not found' }))
    const other = bench.provider()
    await expect(other.attach(sandbox.id)).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_CONNECTION_LOST' })
    expect(await other.reap({ olderThanMs: 0 })).toEqual([sandbox.id])
    bench.server.misbehave('/process.Process/Start', undefined)
    await expect.poll(() => sandbox.status, { timeout: 30_000 }).toBe('destroyed')
  }, 60_000)
  test('a machine that somebody else ended is gone here too, and so is one in a stale list', async () => {
    const provider = bench.provider()
    const sandbox = await provider.create()
    const [machine] = bench.server.running()
    await fetch(`${bench.server.apiUrl}/sandboxes/${machine?.id ?? ''}`, { method: 'DELETE', headers: { 'x-api-key': MARKER_KEY } }) // prettier-ignore
    await expect.poll(() => sandbox.status, { timeout: 30_000 }).toBe('destroyed')
    await sandbox.destroy()
    bench.server.goStale()
    const other = bench.provider()
    await expect(other.attach(sandbox.id)).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_NOT_FOUND' })
    // Ending what has ended is fine.
    expect(await other.reap({ olderThanMs: 0 })).toContain(sandbox.id)
  }, 60_000)
})
