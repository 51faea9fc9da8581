/** What goes wrong with Fly, one by one: each has a fault of its own, advice, and leaves nothing behind. */
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import type { FlyMachinesBackendConfig, PlatformFault } from '../../../provider/index.ts'
import { describeNeeding } from '../needs.ts'
import { BROKEN_IMAGES } from './machine-guest.ts'
import type { Misbehaviour } from './machines-server.ts'
import { type FlyBench, openFlyBench } from './provider.ts'

vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 })

describeNeeding(['root', 'bubblewrap', 'nftables', 'namespaces'], 'Fly, when something is wrong', () => {
  let bench: FlyBench
  beforeAll(async () => {
    bench = await openFlyBench({ rateLimit: false })
  })
  afterAll(async () => {
    const faults = bench.server.faults()
    await bench.close()
    expect(faults).toEqual([])
  })
  afterEach(() => {
    expect(bench.server.machines().map(({ name, state }) => `${name} ${state}`)).toEqual([])
  })

  const refusals: readonly (readonly [string, Partial<FlyMachinesBackendConfig>, PlatformFault, RegExp])[] = [
    ['credentials that are wrong', { apiToken: 'fm2_wrongwrongwrong' }, 'credentials_refused', /Authenticate: token validation error.*fly tokens create deploy --app sandboxes/], // prettier-ignore
    ['an app that is not there', { app: 'nowhere' }, 'not_found', /app `nowhere`.*fly apps list/],
    ['an image that is not there', { image: 'registry.fly.io/sandboxes:none' }, 'image_unusable', /failed to get manifest.*deploy\/fly/], // prettier-ignore
    ['a region that is gone', { region: 'xyz' }, 'region_unavailable', /region xyz not found.*fly platform regions/],
    [
      'an image without our init',
      { image: BROKEN_IMAGES.withoutInit },
      'image_unusable',
      /no `\/opt\/sallyport\/init`/,
    ],
    [
      'an image without a worker',
      { image: BROKEN_IMAGES.withoutWorker },
      'image_unusable',
      /lacks what runs the worker/,
    ],
    ['a machine that fails to boot', { image: BROKEN_IMAGES.failing }, 'operation_failed', /the machine is `failed`/],
    ['an image without nftables', { image: BROKEN_IMAGES.withoutRules }, 'image_unusable', /rules of its network could not be loaded/], // prettier-ignore
    ['a worker of another version', { image: BROKEN_IMAGES.otherVersion }, 'worker_version', /speaks version 0/],
    ['something else on the port of the worker', { image: BROKEN_IMAGES.stranger }, 'image_unusable', /not this version's worker/], // prettier-ignore
    ['a worker that is silent', { image: BROKEN_IMAGES.silent, startTimeoutMs: 6_000 }, 'worker_silent', /sallyport: the network is closed/], // prettier-ignore
  ]
  test.each(refusals)('names %s', async (_name, more, fault, message) => {
    const making = bench.provider(more).create()
    await expect(making).rejects.toMatchObject({ name: 'SallyportError', fault })
    await expect(making).rejects.toThrow(message)
  })

  const answers: readonly (readonly [string, Misbehaviour, PlatformFault, RegExp])[] = [
    ['a quota that is used up', { status: 422, body: { error: 'your organization has reached its machine limit of 50' } }, 'quota_exhausted', /machine limit of 50.*higher limit/], // prettier-ignore
    ['a region that is full', { status: 422, body: { error: 'insufficient resources', status: 'insufficient_capacity' } }, 'capacity_exhausted', /another `region`/], // prettier-ignore
    ['a name that somebody else has', { status: 422, body: { error: 'already exists', status: 'name_taken' } }, 'name_taken', /has this name/], // prettier-ignore
    ['a reply that is not JSON', 'html', 'unreadable_reply', /not JSON/],
    ['a reply that is no machine', { status: 200, body: { id: 'not an id!' } }, 'unreadable_reply', /not a machine/],
    ['a platform that fails', 'error', 'operation_failed', /internal error/],
  ]
  test.each(answers)('names %s', async (_name, how, fault, message) => {
    bench.server.misbehave('POST', '/machines', how)
    const making = bench.provider().create()
    await expect(making).rejects.toMatchObject({ fault })
    await expect(making).rejects.toThrow(message)
  })

  test.each(['lost', 'half'] as const)('finds the machine again when the reply that it was made is %s', async (how) => {
    bench.server.misbehave('POST', '/machines', how)
    await using sandbox = await bench.provider().create()
    expect((await sandbox.exec('echo here')).stdout).toBe('here\n')
    expect(bench.server.machines()).toHaveLength(1)
  })

  test('finds it though the list is old', async () => {
    bench.server.misbehave('POST', '/machines', 'lost')
    bench.server.misbehave('GET', '/machines', 'stale', 2)
    await using sandbox = await bench.provider().create()
    expect((await sandbox.exec('echo here')).stdout).toBe('here\n')
  })

  test.each(['limit', 'error', 'lost', 'half'] as const)('goes on when reading is %s once', async (how) => {
    for (const end of ['/network_policies', '/wait', '/machines']) bench.server.misbehave('GET', end, how)
    await using sandbox = await bench.provider().create()
    expect((await sandbox.exec('echo here')).stdout).toBe('here\n')
    expect(await bench.provider().list()).toHaveLength(1)
  })

  test('asks for a machine again when there were too many requests, and only then', async () => {
    const before = bench.server.log().filter(({ method, path }) => method === 'POST' && path === '/machines').length
    bench.server.misbehave('POST', '/machines', 'limit', 2)
    await using sandbox = await bench.provider().create()
    expect(sandbox.status).toBe('ready')
    const asked = bench.server.log().filter(({ method, path }) => method === 'POST' && path === '/machines').length
    expect(asked - before).toBe(3)
  })

  test('gives up a machine that hangs while it is made, and leaves none', async () => {
    bench.server.misbehave('POST', '/machines', 'hang')
    await expect(bench.provider({ startTimeoutMs: 1_500 }).create()).rejects.toMatchObject({ fault: 'unreachable', outcome: 'unknown' }) // prettier-ignore
  })

  test('gives up when waiting hangs, within the time that it has', async () => {
    bench.server.misbehave('GET', '/wait', 'hang', 2)
    await expect(bench.provider({ startTimeoutMs: 1_000 }).create()).rejects.toMatchObject({ fault: 'unreachable' })
    // What is left of it must not meet the next test.
    bench.server.behave()
  })

  test('makes nothing in an app whose machines may do more, nor where no policy closes them and none is to be made', async () => {
    const before = bench.server.policies
    const made = () => bench.server.log().filter(({ method, path }) => method === 'POST' && path === '/machines').length
    const sofar = made()
    bench.server.policies = []
    await expect(bench.provider({ networkPolicy: 'verify' }).create()).rejects.toMatchObject({ fault: 'network_unsafe', code: 'SALLYPORT_SANDBOX_EGRESS_UNENFORCED' }) // prettier-ignore
    const rule = { action: 'allow', direction: 'egress', ports: [{ protocol: 'tcp', port: 443 }] }
    bench.server.policies = [...before, { id: 'p', name: 'web', selector: { all: true }, rules: [rule] }]
    await expect(bench.provider().create()).rejects.toThrow(/egress to tcp\/443/)
    expect(made()).toBe(sofar)
    bench.server.policies = before
  })

  test('waits for somebody else’s lease, and destroys then', async () => {
    const sandbox = await bench.provider().create()
    const [machine] = bench.server.machines()
    bench.server.lease(machine?.id ?? '', 3_000)
    await sandbox.destroy()
    const last = bench.server
      .log()
      .filter(({ method }) => method === 'DELETE')
      .at(-1)
    expect(last).toMatchObject({ status: 200, query: { force: 'true' } })
    expect(last?.headers['fly-machine-lease-nonce']).toMatch(/^[0-9a-f]+$/)
  })

  test('destroys once more when the order was lost', async () => {
    const sandbox = await bench.provider().create()
    bench.server.misbehave('DELETE', '', 'lost')
    await sandbox.destroy()
    expect(sandbox.status).toBe('destroyed')
  })

  test('is not fooled by an old list into taking a sandbox for ended', async () => {
    await using sandbox = await bench.provider().create()
    // Empty, as it was before.
    bench.server.misbehave('GET', '/machines', 'stale', 3)
    await expect.poll(() => bench.server.log().filter(({ path, status }) => path === '/machines' && status === 200).length, { timeout: 20_000 }).toBeGreaterThan(3) // prettier-ignore
    expect((await sandbox.exec('echo here')).stdout).toBe('here\n')
  })

  test('reads every page, also behind an empty one', async () => {
    const provider = bench.provider()
    const sandboxes = await Promise.all([1, 2, 3].map(() => provider.create()))
    const listed = (await bench.provider().list()).map(({ id }) => id)
    await Promise.all(sandboxes.map((sandbox) => sandbox.destroy()))
    // One of an earlier test may be on its way out.
    expect(listed).toEqual(expect.arrayContaining(sandboxes.map(({ id }) => id)))
  })
})
