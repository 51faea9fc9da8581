/** What goes wrong on the way of E2B's SOCKS5 proxy: nobody gets out by it, what was begun is taken away, and no handle is in what is said. */
import dgram from 'node:dgram'
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import type { PlatformError } from '../../../provider/backends/platform/platform-error.ts'
import type { Sandbox } from '../../../provider/index.ts'
import { SallyportError, SandboxError } from '../../../provider/index.ts'
import { describeNeeding } from '../needs.ts'
import type { Misbehaviour } from './contract-server.ts'
import { bootHere } from './machines.ts'
import { ALLOWED, REFUSED } from './own-gateway.ts'
import { openSocks5Bench, type Socks5Bench } from './socks5-bench.ts'

vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 })

const json =
  (status: number, value: unknown, headers: Record<string, string> = {}): Misbehaviour =>
  (request, response) => {
    request.resume()
    response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(value))
  }
const gone: Misbehaviour = (_request, response) => void response.destroy()
const CREATE = 'POST /v2/sandboxes'
const NETWORK = 'PUT /sandboxes/{id}/network'

type Failure = Error & Partial<Pick<PlatformError, 'fault' | 'status' | 'code' | 'outcome'>>

describeNeeding(['root', 'bubblewrap', 'nftables', 'namespaces', 'python3', 'curl'], 'E2B’s SOCKS5 proxy', () => {
  let bench: Socks5Bench
  beforeAll(async () => {
    bench = await openSocks5Bench()
  })
  afterAll(() => bench.close())
  afterEach(() => {
    former = bench.handles().length
    bench.gateway.spoilControl(/./, undefined)
    bench.server.misbehave(NETWORK, undefined)
    expect(bench.server.running()).toEqual([])
    expect(bench.server.faults).toEqual([])
  })

  async function failure(promise: Promise<unknown>): Promise<Failure> {
    const error: unknown = await promise.then(
      () => new Error('nothing was thrown'),
      (thrown: unknown) => thrown,
    )
    if (!(error instanceof SandboxError || error instanceof SallyportError)) throw error
    const said = [error.stack, JSON.stringify(error, Object.getOwnPropertyNames(error)), String(error.cause)].join(' ')
    for (const handle of bench.handles()) expect(said).not.toContain(handle)
    expect(said).not.toMatch(/sph_|eyJ/)
    return error
  }
  /** How many there were before this test. */
  let former = 0
  /** Every handle of this test is dead. */
  async function allDead(): Promise<void> {
    for (const handle of bench.handles().slice(former)) expect(await bench.tryHandle(handle)).toBe('not taken')
  }
  const get = async (sandbox: Sandbox, host = ALLOWED): Promise<string> => {
    const { stdout, exitCode } = await sandbox.exec(`curl -s --max-time 20 http://${host}/`)
    return exitCode === 0 ? stdout : 'nothing'
  }
  const GOT = `origin of ${ALLOWED}`

  test('a gateway without a control API is refused when the provider is made', () => {
    const { url } = bench.gateway.remote
    expect(() => bench.provider({}, { url })).toThrow(expect.objectContaining({ code: 'SALLYPORT_SANDBOX_NOT_SUPPORTED', message: expect.stringContaining('gateway: { url, control }') as string })) // prettier-ignore
    expect(() => bench.provider({ egress: 'gateway-address' })).toThrow(expect.objectContaining({ code: 'SALLYPORT_SANDBOX_NOT_SUPPORTED', message: expect.stringContaining('issuerKey') as string })) // prettier-ignore
    expect(() => bench.provider({ egress: 'socks5' as never })).toThrow(TypeError)
  })
  test.each([
    ['at `https:`, which E2B’s SOCKS5 does not speak', {}, 'https://gateway.example', /without TLS: give the `http:` URL/], // prettier-ignore
    ['to which handles would go in the clear, unless that is asked for', { unsafeTokenInClear: false }, undefined, /unsafeTokenInClear: true/], // prettier-ignore
    ['at a private address', { unsafePrivateGateway: false }, 'http://10.1.2.3:3128', /10\.1\.2\.3 \(private\)/],
  ])('a gateway %s', async (_what, config, url, said) => {
    const remote = { ...bench.gateway.remote, ...(url !== undefined && { url }) }
    const error = await failure(bench.provider(config, remote).create())
    expect(error).toMatchObject({ code: 'SALLYPORT_SANDBOX_EGRESS_UNENFORCED', fault: 'network_unsafe' })
    expect(error.message).toMatch(said)
    expect(bench.server.calls.some(({ method, path }) => `${method} ${path}` === CREATE)).toBe(false)
  })

  test('the control API is down: nothing is made', async () => {
    bench.gateway.spoilControl(/./, gone)
    expect(await failure(bench.provider().create())).toMatchObject({ code: 'SALLYPORT_GATEWAY_UNREACHABLE' })
    expect(bench.server.calls.some(({ method, path }) => `${method} ${path}` === CREATE)).toBe(false)
  })
  test.each<[string, Misbehaviour, RegExp]>([
    ['does not let us mint', json(403, { error: 'scope_missing', message: 'the scope `token` is missing' }), /scope_missing/], // prettier-ignore
    ['has no key', json(409, { error: 'conflict', message: 'there is no key' }), /there is no key/],
    ['answers without a handle', json(201, { token: 'eyJhbGciOiJFUzI1NiJ9.e30.AAAA', tokenId: 'x', expiresAt: 'never' }), /without a handle/], // prettier-ignore
    ['answers with something else for one', json(201, { handle: 'sph_short', tokenId: 'x', expiresAt: 'never' }), /without a handle/], // prettier-ignore
  ])('a control API that %s: nothing is made', async (_what, how, said) => {
    bench.gateway.spoilControl(/^POST \/v1\/tokens$/, how)
    const error = await failure(bench.provider().create())
    expect(error).toMatchObject({ code: 'SALLYPORT_GATEWAY_REFUSED', message: expect.stringMatching(said) as string })
  })
  test('a control API that does not let us see the audit log: the machine is ended, and its handle dead', async () => {
    bench.gateway.spoilControl(/^GET \/v1\/audit/, json(403, { error: 'scope_missing', message: 'read' }))
    expect(await failure(bench.provider().create())).toMatchObject({ code: 'SALLYPORT_GATEWAY_REFUSED' })
    await allDead()
  })
  test('a handle that the gateway does not know: the machine is ended', async () => {
    bench.gateway.spoilControl(/^POST \/v1\/tokens$/, json(201, { handle: `sph_${'A'.repeat(32)}`, tokenId: 'x', expiresAt: new Date().toISOString() })) // prettier-ignore
    const error = await failure(bench.provider().create())
    expect(error).toMatchObject({ code: 'SALLYPORT_SANDBOX_CREATE_FAILED' })
    expect(error.message).toContain('not_reached')
  })
  test('a gateway that is down when the machine looks for it: the machine is ended', async () => {
    const { server } = bench
    const before = server.calls.length
    const making = failure(bench.provider().create())
    await expect.poll(() => server.calls.slice(before).some(({ method, status }) => method === 'POST' && status === 201), { timeout: 60_000 }).toBe(true) // prettier-ignore
    await bench.gateway.stop()
    const error = await making
    await bench.gateway.start()
    // The machine is ended; what could not be revoked is said, and goes with the token that it stands for.
    expect(error).toMatchObject({ code: 'SALLYPORT_SANDBOX_CREATE_FAILED', message: expect.stringContaining('`way out`') as string }) // prettier-ignore
    expect(server.running()).toEqual([])
  })

  test('a team that may name no proxy: the platform’s own words, and the handle is dead', async () => {
    bench.server.misbehave(CREATE, json(403, { code: 403, message: 'Egress proxy (network.egressProxy) is not enabled for this team' }), 1) // prettier-ignore
    const error = await failure(bench.provider().create())
    expect(error).toMatchObject({ fault: 'request_refused', status: 403 })
    expect(error.message).toMatch(/plan and its flags.*not enabled for this team/)
    await allDead()
  })
  test('a platform that echoes the handle in its refusal', async () => {
    const handle = `sph_${'E'.repeat(32)}`
    bench.gateway.spoilControl(/^POST \/v1\/tokens$/, json(201, { handle, tokenId: 'x', expiresAt: new Date().toISOString() })) // prettier-ignore
    bench.server.misbehave(CREATE, json(400, { code: 400, message: `the password "${handle}" is odd` }), 1)
    const error = await failure(bench.provider().create())
    expect(error).toMatchObject({ fault: 'request_refused' })
    expect(error.message).toContain('is odd')
  })
  test('a platform that carries nothing to the proxy: the gateway answers straight, and there is no sandbox', async () => {
    const direct = await openSocks5Bench({ boot: bootHere, internalProxies: true })
    const error = await failure(direct.provider({ directTargets: [] }).create())
    expect(error).toMatchObject({ code: 'SALLYPORT_SANDBOX_EGRESS_UNENFORCED', message: expect.stringContaining(`port ${direct.gateway.port}: connected`) as string }) // prettier-ignore
    expect(direct.server.running()).toEqual([])
    await direct.close()
  })
  test('datagrams that are not stopped: there is no sandbox', async () => {
    const service = dgram.createSocket('udp4')
    service.on('message', (_message, peer) => service.send('reached', peer.port, peer.address))
    await new Promise<void>((resolve) => service.bind(0, '127.0.0.1', resolve))
    const direct = await openSocks5Bench({ boot: bootHere })
    const error = await failure(direct.provider({ directTargets: [{ host: '127.0.0.1', port: service.address().port }] }).create()) // prettier-ignore
    expect(error.message).toContain('answered_over_udp')
    service.close()
    await direct.close()
  })

  test('an update that is refused for a moment, or whose reply is lost, is made again', async () => {
    const sandbox = await bench.provider().create()
    for (const spoil of [
      () => bench.server.misbehave(NETWORK, json(429, { code: 429, message: 'slow down' }, { 'retry-after': '1' }), 1),
      () => bench.server.misbehave(NETWORK, json(503, { code: 503, message: 'later' }), 1),
      () => bench.server.loseReply(NETWORK),
    ]) {
      spoil()
      await sandbox.setEgress({ kind: 'deny-all' })
      expect(await get(sandbox)).toBe('nothing')
      await sandbox.setEgress({ kind: 'static', allowedHosts: [ALLOWED] })
      expect(await get(sandbox)).toBe(GOT)
    }
    await sandbox.destroy()
    await allDead()
  })
  test('an update that never gets through: the sandbox has no way out at all, until there is one', async () => {
    const sandbox = await bench.provider().create()
    bench.server.misbehave(NETWORK, json(400, { code: 400, message: 'no' }))
    expect(await failure(sandbox.setEgress({ kind: 'static', allowedHosts: [REFUSED] }))).toMatchObject({ fault: 'request_refused' }) // prettier-ignore
    expect([await get(sandbox), await get(sandbox, REFUSED)]).toEqual(['nothing', 'nothing'])
    bench.server.misbehave(NETWORK, undefined)
    await sandbox.setEgress({ kind: 'static', allowedHosts: [ALLOWED] })
    expect(await get(sandbox)).toBe(GOT)
    await sandbox.destroy()
  })
  test('the control API is down for another policy: the one before holds', async () => {
    const sandbox = await bench.provider().create()
    bench.gateway.spoilControl(/./, gone)
    expect(await failure(sandbox.setEgress({ kind: 'allow-all' }))).toMatchObject({ code: 'SALLYPORT_GATEWAY_UNREACHABLE' }) // prettier-ignore
    expect([await get(sandbox), await get(sandbox, REFUSED)]).toEqual([GOT, 'nothing'])
    bench.gateway.spoilControl(/./, undefined)
    await sandbox.destroy()
  })
  test('a revocation that fails is made up for by the next policy', async () => {
    const sandbox = await bench.provider().create()
    const [first = ''] = bench.handles().slice(-1)
    bench.gateway.spoilControl(/^POST \/v1\/revocations/, gone)
    expect(await failure(sandbox.setEgress({ kind: 'deny-all' }))).toMatchObject({ code: 'SALLYPORT_GATEWAY_UNREACHABLE' }) // prettier-ignore
    expect(await get(sandbox)).toBe('nothing')
    expect(await bench.tryHandle(first)).toBe(0)
    bench.gateway.spoilControl(/./, undefined)
    await sandbox.setEgress({ kind: 'deny-all' })
    expect(await bench.tryHandle(first)).toBe('not taken')
    await sandbox.destroy()
  })
  test('the control API is down at the end: the machine goes all the same, and the next call revokes', async () => {
    const sandbox = await bench.provider().create()
    const handle = bench.handles().at(-1) ?? ''
    bench.gateway.spoilControl(/./, gone)
    expect(await failure(sandbox.destroy())).toMatchObject({ code: 'SALLYPORT_GATEWAY_UNREACHABLE' })
    expect(bench.server.running()).toEqual([])
    bench.gateway.spoilControl(/./, undefined)
    await sandbox.destroy()
    expect(await bench.tryHandle(handle)).toBe('not taken')
  })
  test('a handle that ends before there is another: no way out, and what is open is cut; the next one opens it', async () => {
    const own = await openSocks5Bench()
    const sandbox = await own.provider().create()
    const open = await sandbox.spawn(`curl -sN --max-time 60 http://${ALLOWED}/slow; echo "curl ended with $?"`)
    await expect.poll(() => own.gateway.auditLines().filter(({ decision }) => decision === 'allow').length, { timeout: 20_000 }).toBe(1) // prettier-ignore
    expect(await get(sandbox)).toBe(GOT)
    own.gateway.spoilControl(/./, gone)
    own.gateway.pass(11 * 60_000)
    expect((await open.wait()).stdout).toMatch(/curl ended with (18|52|56)\n$/)
    expect([await get(sandbox), await get(sandbox, REFUSED)]).toEqual(['nothing', 'nothing'])
    expect(own.gateway.auditLines().some((line) => line['close_reason'] === 'token_expired')).toBe(true)
    own.gateway.spoilControl(/./, undefined)
    await sandbox.setEgress({ kind: 'static', allowedHosts: [ALLOWED] })
    expect(await get(sandbox)).toBe(GOT)
    await own.close()
  })
  test('a gateway that is started anew knows its handles; while it is gone nobody gets out', async () => {
    const sandbox = await bench.provider().create()
    await bench.gateway.stop()
    expect(await get(sandbox)).toBe('nothing')
    await bench.gateway.start()
    expect(await get(sandbox)).toBe(GOT)
    await sandbox.destroy()
    await allDead()
  })
})
