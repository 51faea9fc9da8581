import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { EmbeddedGatewayOptions } from '../../provider/egress/embedded.ts'
import { createSandboxProvider, SandboxError, type SandboxProvider } from '../../provider/index.ts'
import { fakeBackend, type FakeBackend, type FakeTroubles } from './fake-backend.ts'

const NO_SETS = { sets: { npm: [], apt: [] }, notes: [] }

let root: string
let backend: FakeBackend
let provider: SandboxProvider

beforeEach(() => {
  root = fs.mkdtempSync(path.join(os.tmpdir(), 'sp-'))
  backend = fakeBackend(root)
  provider = createSandboxProvider({ backend, runtimeRoot: root, gateway: { machineSets: NO_SETS } })
})

afterEach(async () => {
  await Promise.resolve(provider[Symbol.asyncDispose]()).catch(() => undefined)
  fs.rmSync(root, { recursive: true, force: true })
})

/** What is left of sandboxes, anywhere; a socket that is listened on counts also when its file is gone. */
function leftovers(): readonly string[] {
  const sockets = fs.readFileSync('/proc/net/unix', 'utf8').split('\n')
  return [
    ...backend.platform,
    ...fs.readdirSync(root).filter((name) => name.startsWith('sbx_')),
    ...sockets.filter((line) => line.includes(`${root}/sbx_`)),
  ]
}

describe('create is all or nothing', () => {
  const STEPS: readonly (readonly [name: string, troubles: FakeTroubles, code: string])[] = [
    [
      'the backend misses something',
      { check: new SandboxError('SALLYPORT_SANDBOX_BACKEND_MISSING', 'no bwrap') },
      'SALLYPORT_SANDBOX_BACKEND_MISSING',
    ],
    [
      'the platform fails half way',
      { start: new SandboxError('SALLYPORT_SANDBOX_BACKEND_FAILED', 'disk full') },
      'SALLYPORT_SANDBOX_BACKEND_FAILED',
    ],
    [
      'the system fails',
      { start: Object.assign(new Error('ENOSPC: no space left'), { syscall: 'mkdir', code: 'ENOSPC' }) },
      'SALLYPORT_SANDBOX_CREATE_FAILED',
    ],
    ['the worker does not know its host', { health: 'refused' }, 'SALLYPORT_SANDBOX_BACKEND_FAILED'],
    ['a connection over TCP gets out', { probe: { tcp: 'connected' } }, 'SALLYPORT_SANDBOX_EGRESS_UNENFORCED'],
    [
      'a connection is dropped on its way, where there should be no route',
      { probe: { tcp: 'timeout' } },
      'SALLYPORT_SANDBOX_EGRESS_UNENFORCED',
    ],
    ['there is a route', { probe: { udp: 'connected' } }, 'SALLYPORT_SANDBOX_EGRESS_UNENFORCED'],
    [
      'the gateway does not answer',
      { probe: { gateway: { error: 'ECONNREFUSED' } } },
      'SALLYPORT_SANDBOX_CREATE_FAILED',
    ],
    [
      'the gateway does not know the sandbox',
      { probe: { gateway: { status: 407, reason: 'token_missing' } } },
      'SALLYPORT_SANDBOX_CREATE_FAILED',
    ],
    [
      'something else answers in the place of the gateway',
      { probe: { gateway: { status: 200 } } },
      'SALLYPORT_SANDBOX_CREATE_FAILED',
    ],
  ]

  test.each(STEPS)('%s', async (_name, troubles, code) => {
    Object.assign(backend.troubles, troubles)
    await expect(provider.create()).rejects.toMatchObject({ code })
    expect(leftovers()).toEqual([])
    expect(await provider.list()).toEqual([])

    // And what was mended works.
    for (const key of Object.keys(backend.troubles)) Reflect.deleteProperty(backend.troubles, key)
    const sandbox = await provider.create()
    expect(sandbox.status).toBe('ready')
  })

  test('the children can not be told where the gateway is', async () => {
    const elsewhere = fakeBackend(root, {}, { host: '127.0.0.1', port: 40_000 })
    elsewhere.troubles.configure = false
    await using other = createSandboxProvider({
      backend: elsewhere,
      runtimeRoot: root,
      gateway: { machineSets: NO_SETS },
    })
    await expect(other.create()).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_BACKEND_FAILED' })
    expect([...elsewhere.platform]).toEqual([])
    expect(leftovers()).toEqual([])
  })

  test('a policy that the gateway can not read', async () => {
    const egress = { kind: 'static', allowedHosts: ['*.com', 'ok.example'] } as const
    await expect(provider.create({ egress })).rejects.toMatchObject({ code: 'SALLYPORT_POLICY_INVALID' })
    expect(leftovers()).toEqual([])
  })

  test('a resolver that throws: its own error, and no sandbox', async () => {
    const fault = new Error('tenant service is down')
    await expect(provider.create({ egress: { kind: 'resolver', resolve: () => Promise.reject(fault) } })).rejects.toBe(
      fault,
    )
    expect(leftovers()).toEqual([])
  })

  test('a resolver that gives no list', async () => {
    const egress = { kind: 'resolver', resolve: () => Promise.resolve('api.example' as unknown as string[]) } as const
    await expect(provider.create({ egress })).rejects.toMatchObject({ code: 'SALLYPORT_POLICY_INVALID' })
    expect(leftovers()).toEqual([])
  })

  test('a runtime folder that others may look into', async () => {
    fs.chmodSync(root, 0o755)
    await expect(provider.create()).rejects.toMatchObject({ code: 'SALLYPORT_STATE_UNUSABLE' })
    expect(backend.log).toEqual([])
    fs.chmodSync(root, 0o700)
    await provider.create()
  })

  test('the caller changes its mind while the platform works', async () => {
    backend.troubles.hangs = true
    const controller = new AbortController()
    const creating = provider.create({ signal: controller.signal })
    await expect.poll(() => backend.log).toContain('start')
    const reason = new Error('enough')
    controller.abort(reason)
    await expect(creating).rejects.toBe(reason)
    expect(leftovers()).toEqual([])
  })

  test('the caller changes its mind while the worker does not answer', async () => {
    backend.troubles.health = 'never'
    const controller = new AbortController()
    const creating = provider.create({ signal: controller.signal })
    await expect.poll(() => backend.asked.length).toBeGreaterThan(0)
    controller.abort()
    await expect(creating).rejects.toMatchObject({ name: 'AbortError' })
    expect(leftovers()).toEqual([])
  })

  test('the caller had changed its mind before: nothing is begun', async () => {
    await expect(provider.create({ signal: AbortSignal.abort() })).rejects.toMatchObject({ name: 'AbortError' })
    expect(backend.log).toEqual([])
  })

  test('what can not be taken away is said, with both faults, and reap finds it', async () => {
    Object.assign(backend.troubles, {
      probe: { udp: 'connected' },
      stop: new Error('engine is gone'),
    } satisfies FakeTroubles)
    const error: unknown = await provider.create().catch((thrown: unknown) => thrown)
    expect(error).toMatchObject({
      code: 'SALLYPORT_SANDBOX_CREATE_FAILED',
      message: expect.stringContaining('`start` could not be taken away') as string,
    })
    const { cause } = error as { cause: AggregateError }
    expect(cause.errors.map((each: Error) => each.message)).toEqual([
      expect.stringContaining('not stopped'),
      'engine is gone',
    ])
    expect(await provider.list()).toHaveLength(1)
  })
})

describe('a backend whose start looks for itself whether anything is missing', () => {
  const lacking = new SandboxError('SALLYPORT_SANDBOX_BACKEND_MISSING', 'no bwrap')
  const gateways = (): readonly string[] => fs.readdirSync(root).filter((name) => name.startsWith('gw_'))
  const resolver = (resolve: () => Promise<readonly string[]>) => ({ kind: 'resolver', resolve }) as const
  let steps: string[]
  /** Made for each test, since a part of it may be another. */
  let quick: SandboxProvider

  const provide = (start?: FakeBackend['start'], config: EmbeddedGatewayOptions['config'] = {}): void => {
    quick = createSandboxProvider({
      backend: {
        ...backend,
        startsAtOnce: true,
        start:
          start ??
          (async (request) => {
            // As a start that has processes to ask first.
            await new Promise((resolve) => setImmediate(resolve))
            steps.push(gateways().length === 0 ? 'launched' : 'launched behind the gateway')
            request.launched?.()
            return backend.start(request)
          }),
      },
      runtimeRoot: root,
      gateway: { machineSets: NO_SETS, config },
    })
  }

  beforeEach(() => {
    steps = []
  })
  afterEach(async () => {
    await quick[Symbol.asyncDispose]()
  })

  test('is not asked before, and the gateway is opened while its start waits', async () => {
    backend.troubles.check = lacking
    provide()
    const egress = resolver(() => Promise.resolve(steps.push('way out') > 0 ? ['api.example.com'] : []))
    expect((await quick.create({ egress })).status).toBe('ready')
    expect(steps).toEqual(['launched', 'way out'])
    expect(gateways()).toHaveLength(1)
  })

  test('what is missing is said, no gateway is opened, and what was mended works', async () => {
    let missing = true
    provide((request) => (missing ? Promise.reject(lacking) : backend.start(request)))
    await expect(quick.create()).rejects.toBe(lacking)
    expect([leftovers(), gateways()]).toEqual([[], []])
    missing = false
    expect((await quick.create()).status).toBe('ready')
  })

  test('what fails while the gateway opens is told, once both have ended', async () => {
    backend.troubles.start = lacking
    provide()
    const egress = resolver(() => Promise.resolve(['api.example.com']))
    await expect(quick.create({ egress })).rejects.toBe(lacking)
    expect(leftovers()).toEqual([])
  })

  test('a gateway that can not be opened ends what has been launched', async () => {
    backend.troubles.hangs = true
    provide()
    const fault = new Error('tenant service is down')
    await expect(quick.create({ egress: resolver(() => Promise.reject(fault)) })).rejects.toBe(fault)
    expect(steps).toEqual(['launched'])
    expect(leftovers()).toEqual([])
  })

  test('a gateway that can not write its log ends what has been launched', async () => {
    backend.troubles.hangs = true
    provide(undefined, { audit: { path: path.join(root, 'taken') } })
    fs.writeFileSync(path.join(root, 'taken'), '')
    await expect(quick.create()).rejects.toMatchObject({ code: 'SALLYPORT_AUDIT_UNWRITABLE' })
    expect(steps).toEqual(['launched'])
    expect(leftovers()).toEqual([])
  })

  test('the caller changes its mind between the launch and the way out', async () => {
    backend.troubles.hangs = true
    provide()
    const controller = new AbortController()
    const reason = new Error('enough')
    const egress = resolver(() => {
      controller.abort(reason)
      return Promise.resolve([])
    })
    await expect(quick.create({ egress, signal: controller.signal })).rejects.toBe(reason)
    expect(leftovers()).toEqual([])
  })

  test('one that never says that it launched gets its way out when it has started', async () => {
    provide((request) => backend.start(request))
    expect((await quick.create()).status).toBe('ready')
  })
})

describe('what the worker found at its start', () => {
  const CLOSED = {
    tcp: ['ENETUNREACH', 'EACCES'],
    udp: ['no_device', 'no_device'],
    gateway: { status: 403, reason: 'host_not_allowed' },
  }
  const probes = (): number => backend.asked.filter(({ route }) => route === 'POST /probe').length

  test('is enough when nothing gets out and the gateway answers; it was asked for what is looked for later', async () => {
    backend.troubles.probed = CLOSED
    await provider.create()
    expect(probes()).toBe(0)
    delete backend.troubles.probed
    await provider.create()
    expect(probes()).toBe(1)
    const [asked] = backend.asked.filter(({ route }) => route === 'POST /probe')
    expect(backend.requests.map(({ probe }) => probe)).toEqual(Array(2).fill(JSON.parse(asked!.body)))
  })

  test.each([
    ['a connection gets out', { ...CLOSED, tcp: ['ENETUNREACH', 'connected'] }],
    ['a datagram gets out', { ...CLOSED, udp: ['connected', 'ENETUNREACH'] }],
    ['an outcome is missing', { ...CLOSED, tcp: ['ENETUNREACH'] }],
    ['the gateway is not there yet', { ...CLOSED, gateway: { error: 'closed' } }],
    ['the gateway does not know it', { ...CLOSED, gateway: { status: 407, reason: 'token_missing' } }],
  ])('is looked for again when %s, and only that counts', async (_name, probed) => {
    backend.troubles.probed = probed
    await provider.create()
    expect(probes()).toBe(1)
    backend.troubles.probe = { tcp: 'connected' }
    await expect(provider.create()).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_EGRESS_UNENFORCED' })
  })

  test('does not count for a sandbox that is elsewhere than it was asked about', async () => {
    const elsewhere = fakeBackend(root, {}, { host: '127.0.0.1', port: 40_000 })
    elsewhere.troubles.probed = CLOSED
    elsewhere.troubles.probe = { tcp: 'connected' }
    await using other = createSandboxProvider({
      backend: elsewhere,
      runtimeRoot: root,
      gateway: { machineSets: NO_SETS },
    })
    await expect(other.create()).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_EGRESS_UNENFORCED' })
  })
})

describe('what a sandbox is started with', () => {
  test('the bearer is in no label and no variable, and another one each time', async () => {
    await provider.create()
    await provider.create()
    const tokens = backend.requests.map(({ workerToken }) => workerToken)
    expect(new Set(tokens).size).toBe(2)
    for (const { labels, env, workerToken } of backend.requests) {
      expect(workerToken).toMatch(/^[\w-]{43}$/)
      expect(JSON.stringify({ labels, env })).not.toContain(workerToken)
    }
  })

  test('the way to the gateway without credentials, and the caller’s variables over it', async () => {
    await provider.create({ env: { NODE_OPTIONS: '--no-warnings', http_proxy: 'mine', JAVA_TOOL_OPTIONS: '-Xmx1g' } })
    const env: Readonly<Record<string, string>> = backend.requests[0]?.env ?? {}
    expect(env).toMatchObject({
      HTTP_PROXY: 'http://127.0.0.1:3128',
      NO_PROXY: 'localhost,127.0.0.1,::1',
      NODE_OPTIONS: '--no-warnings',
      http_proxy: 'mine',
    })
    expect(env['JAVA_TOOL_OPTIONS']).toMatch(/^-Dhttp\.proxyHost=127\.0\.0\.1 .* -Xmx1g$/)
    expect(env).not.toHaveProperty('SALLYPORT_TOKEN')
  })

  test.each([
    ['a name with `=`', { 'A=B': 'c' }],
    ['no name', { '': 'c' }],
    ['a value with NUL', { A: 'b\0c' }],
  ])('a variable that no environment holds: %s', async (_name, env) => {
    await expect(provider.create({ env })).rejects.toThrow(TypeError)
    expect(leftovers()).toEqual([])
  })

  test('who made it and until when, beside the caller’s labels', async () => {
    const sandbox = await provider.create({ labels: { job: 'nightly' }, timeoutMs: 60_000 })
    const { labels = {} } = backend.requests[0] ?? {}
    expect(Object.keys(labels).sort()).toEqual(['created-at', 'expires-at', 'job', 'owner'])
    expect(Date.parse(labels['expires-at'] ?? '') - Date.parse(labels['created-at'] ?? '')).toBe(60_000)
    expect(await provider.list()).toEqual([
      {
        id: sandbox.id,
        createdAtMs: Date.parse(labels['created-at'] ?? ''),
        expiresAtMs: Date.parse(labels['expires-at'] ?? ''),
        labels: { job: 'nightly' },
      },
    ])
  })

  test.each([
    ['a label of our own', { labels: { owner: 'me' } }],
    ['a label that is none', { labels: { 'a b': 'c' } }],
    ['a label with a line feed', { labels: { a: 'b\nc' } }],
    ['a time of no length', { timeoutMs: 0 }],
    ['half a megabyte', { memoryLimitMb: 0.5 }],
  ])('%s is refused', async (_name, options) => {
    await expect(provider.create(options)).rejects.toThrow(TypeError)
  })

  test('a limit that the backend does not keep is refused, and nothing is begun', async () => {
    await expect(provider.create({ maxProcesses: 10 })).rejects.toMatchObject({
      code: 'SALLYPORT_SANDBOX_NOT_SUPPORTED',
    })
    expect(backend.log).toEqual([])
  })

  test('a gateway at another place inside is told to the children', async () => {
    const elsewhere = fakeBackend(root, {}, { host: '127.0.0.1', port: 40_000 })
    await using other = createSandboxProvider({
      backend: elsewhere,
      runtimeRoot: root,
      gateway: { machineSets: NO_SETS },
    })
    await other.create({ env: { A: 'b' } })
    const { body = '' } = elsewhere.asked.find(({ route }) => route === 'POST /configure') ?? {}
    expect((JSON.parse(body) as { env: Record<string, string> }).env).toMatchObject({
      https_proxy: 'http://127.0.0.1:40000',
      A: 'b',
    })
  })
})

describe('what nobody enforces', () => {
  const unenforced = { enforcement: 'none' } as const
  const gateway = { machineSets: NO_SETS }

  test.each([
    undefined,
    { kind: 'deny-all' },
    { kind: 'static', allowedHosts: ['a.example'] },
    { kind: 'named', name: 'x' },
  ] as const)('a default policy of %o is refused at construction', (defaultEgress) => {
    const make = (): SandboxProvider =>
      createSandboxProvider({
        backend: fakeBackend(root, unenforced),
        runtimeRoot: root,
        gateway,
        ...(defaultEgress && { defaultEgress }),
      })
    expect(make).toThrow(expect.objectContaining({ code: 'SALLYPORT_SANDBOX_EGRESS_UNENFORCED' }) as Error)
  })

  test('`allow-all` is not, but every other policy later is', async () => {
    const fake = fakeBackend(root, unenforced)
    await using lax = createSandboxProvider({
      backend: fake,
      runtimeRoot: root,
      gateway,
      defaultEgress: { kind: 'allow-all' },
    })
    await expect(lax.create({ egress: { kind: 'deny-all' } })).rejects.toMatchObject({
      code: 'SALLYPORT_SANDBOX_EGRESS_UNENFORCED',
    })
    // Nothing is tried from inside: it would get out.
    fake.troubles.probe = { tcp: 'connected', udp: 'connected' }
    const sandbox = await lax.create()
    await expect(sandbox.setEgress({ kind: 'deny-all' })).rejects.toMatchObject({
      code: 'SALLYPORT_SANDBOX_EGRESS_UNENFORCED',
    })
  })
})
