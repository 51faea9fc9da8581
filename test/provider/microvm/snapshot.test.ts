/** Machines that go on from a snapshot, and a pool of those that wait: each with an identity and a seed of its own, and none left behind. */
import fs from 'node:fs'
import path from 'node:path'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { makeSnapshot } from '../../../provider/backends/microvm/make-snapshot.ts'
import { createSandboxProvider, MicrovmError, type SandboxProvider } from '../../../provider/index.ts'
import { describeNeeding } from '../needs.ts'
import { makeStubs, type Stubs } from './stubs.ts'

vi.setConfig({ testTimeout: 180_000 })

describeNeeding(['root', 'bubblewrap'], 'a snapshot', () => {
  let stubs: Stubs
  let runtimeRoot: string
  let snapshot: string
  beforeAll(async () => {
    stubs = makeStubs()
    runtimeRoot = path.join(stubs.folder, 'r')
    snapshot = path.join(stubs.folder, 'snapshot')
    await makeSnapshot(options(), snapshot)
  }, 180_000)
  afterAll(() => stubs.remove())

  const options = () => {
    const { tier: _tier, service: _service, ...rest } = stubs.config
    return { ...rest, runtimeRoot }
  }
  const provider = (more: object = {}): SandboxProvider =>
    createSandboxProvider({
      backend: { ...stubs.config, snapshot, ...more },
      runtimeRoot,
      gateway: { machineSets: { sets: { npm: [], apt: [] }, notes: [] }, config: { log: { level: 'silent' } } },
    })
  const asked = (): string[] => stubs.log().flatMap(({ method, path: route }) => (route === undefined ? [] : [`${method ?? ''} ${route}`])) // prettier-ignore
  const left = (): string[] => fs.readdirSync(runtimeRoot).filter((name) => /^(sbx|vm)_/.test(name))

  test('is the state and the memory of a machine that was stopped, and nothing is left of that', () => {
    expect(fs.readdirSync(snapshot).sort()).toEqual(['memory', 'snapshot.json', 'state'])
    expect(fs.statSync(path.join(snapshot, 'memory')).mode & 0o777).toBe(0o444)
    expect(asked().slice(-4)).toEqual(['PATCH /vm', 'GET /', 'PUT /snapshot/create', 'GET /version'])
    expect(left()).toEqual([])
    expect(fs.globSync(path.join(stubs.folder, 'jail/*/*'))).toEqual([])
  })

  test('is never written over', async () => {
    await expect(makeSnapshot(options(), snapshot)).rejects.toMatchObject({ fault: 'name_taken' })
    expect(fs.readdirSync(snapshot).length).toBe(3)
  })

  test('is gone on from with another place for vsock, and each machine has a bearer and a seed of its own', async () => {
    const before = stubs.log().length
    await using two = provider()
    const [one, other] = [await two.create(), await two.create()]
    expect((await one.exec('echo one')).stdout).toBe('one\n')
    expect((await other.exec('echo other')).stdout).toBe('other\n')
    const requests = stubs.log().slice(before)
    const loads = requests.filter(({ path: route }) => route === '/snapshot/load')
    expect(loads.length).toBe(2)
    for (const { body, faults } of loads) {
      expect(body).toMatchObject({ vsock_override: { uds_path: 'v.sock' }, resume_vm: false })
      expect(faults).toEqual([])
    }
    // Nothing is configured before a load.
    expect(requests.some(({ path: route }) => route === '/boot-source')).toBe(false)
    const seeds = requests.flatMap(({ seed }) => seed ?? [])
    expect(new Set(seeds).size).toBe(2)
    const tokens = [one, other].map(({ id }) => fs.readFileSync(path.join(runtimeRoot, id, 'worker-token'), 'utf8'))
    expect(tokens[0]).not.toBe(tokens[1])
    for (const token of tokens) expect(fs.readFileSync(path.join(snapshot, 'memory'), 'latin1')).not.toContain(token)
  })

  test('does not serve a sandbox of another size, which boots', async () => {
    const before = stubs.log().length
    await using one = provider()
    await one.create({ memoryLimitMb: 256 })
    const routes = stubs.log().slice(before).map(({ path: route }) => route) // prettier-ignore
    expect(routes).toContain('/boot-source')
    expect(routes).not.toContain('/snapshot/load')
  })

  test.each([
    ['of another memory', { memoryLimitMb: 1_024 }, '512 MiB'],
    ['of another number of processors', { cpus: 2 }, '`cpus` is 2'],
    ['of a machine without a network', { network: 'tap' }, 'its network is `none`'],
  ])('%s is refused before anything is made', async (_what, more, message) => {
    await using one = provider(more)
    await expect(one.create()).rejects.toMatchObject({ fault: 'snapshot_unusable', message: expect.stringContaining(message) as string }) // prettier-ignore
  })

  test('whose root file system has changed is refused', async () => {
    const rootfsImage = path.join(stubs.folder, 'another')
    fs.writeFileSync(rootfsImage, 'x')
    await using one = provider({ rootfsImage })
    await expect(one.create()).rejects.toMatchObject({ fault: 'snapshot_unusable', message: expect.stringContaining('root file system') as string }) // prettier-ignore
  })

  test.each([
    ['can not be loaded', 'load', 'api_refused', 'invalid snapshot version'],
    ['does not run after it was told to', 'lies', 'api_refused', 'not `Running`'],
  ])('that %s leaves nothing', async (_what, how, fault, message) => {
    stubs.misbehave(how)
    try {
      await using one = provider()
      const error: unknown = await one.create().catch((thrown: unknown) => thrown)
      expect(error).toBeInstanceOf(MicrovmError)
      expect(error).toMatchObject({ fault, message: expect.stringContaining(message) as string })
      expect(left()).toEqual([])
      expect(fs.globSync(path.join(stubs.folder, 'jail/*/*'))).toEqual([])
    } finally {
      stubs.misbehave(undefined)
    }
  })

  test('a machine that takes no connection after it went on is not handed out', async () => {
    stubs.misbehave('stalled')
    try {
      await using one = provider()
      await expect(one.create()).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_CONNECTION_LOST' })
      expect(left()).toEqual([])
    } finally {
      stubs.misbehave(undefined)
    }
  })

  test('a pool keeps machines stopped, hands each to one sandbox, and is empty in the end', async () => {
    const before = stubs.log().length
    const waiting = (): number => fs.readdirSync(runtimeRoot).filter((name) => name.startsWith('vm_') && fs.existsSync(path.join(runtimeRoot, name, 'machine.json'))).length // prettier-ignore
    {
      await using one = provider({ pool: { size: 1 } })
      const first = await one.create()
      const paused = (): number => stubs.log().slice(before).filter(({ body }) => body?.['state'] === 'Paused').length // prettier-ignore
      await expect.poll(paused, { timeout: 60_000, interval: 200 }).toBe(1)
      await expect.poll(waiting, { timeout: 60_000 }).toBe(1)
      const loads = (): number => stubs.log().slice(before).filter(({ path: route }) => route === '/snapshot/load').length // prettier-ignore
      const second = await one.create()
      expect((await second.exec('echo from the pool')).stdout).toBe('from the pool\n')
      expect((await one.list()).map(({ id }) => id).sort()).toEqual([first.id, second.id].sort())
      // Another takes its place.
      await expect.poll(loads, { timeout: 60_000, interval: 200 }).toBe(3)
      await second.destroy()
    }
    expect(left()).toEqual([])
    expect(fs.globSync(path.join(stubs.folder, 'jail/*/*'))).toEqual([])
  })
})
