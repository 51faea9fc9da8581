import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import {
  createSandboxProvider,
  type CreateSandboxOptions,
  type Sandbox,
  type SandboxProvider,
} from '../../provider/index.ts'
import { fakeBackend, type FakeBackend } from './fake-backend.ts'
import { describeNeeding } from './needs.ts'
import { otherProcess } from './other-process.ts'

const gateway = { machineSets: { sets: { npm: [], apt: [] }, notes: [] } }

let root: string
let provider: SandboxProvider | undefined

beforeEach(() => {
  root = fs.mkdtempSync(path.join(os.tmpdir(), 'sp-'))
})
afterEach(async () => {
  await provider?.[Symbol.asyncDispose]()
  provider = undefined
  expect(folders()).toEqual([])
  fs.rmSync(root, { recursive: true, force: true })
})

const folders = (): string[] => fs.readdirSync(root).filter((name) => name.startsWith('sbx_'))
const metaOf = (id: string) =>
  JSON.parse(fs.readFileSync(path.join(root, id, 'meta.json'), 'utf8')) as Record<string, unknown>
const waiting = (): string[] => folders().filter((id) => metaOf(id)['spare'] === true)

describe('sandboxes that were started ahead', () => {
  let backend: FakeBackend

  beforeEach(() => {
    backend = { ...fakeBackend(root), canBeSpare: true }
  })
  const make = (spares = 1): SandboxProvider => {
    provider = createSandboxProvider({ backend, runtimeRoot: root, gateway, spares })
    return provider
  }
  /** A provider whose spares are there. */
  const warm = async (spares = 1): Promise<SandboxProvider> => {
    const made = make(spares)
    await (await made.create()).destroy()
    // The last that is asked of one that starts.
    const answered = (): number => backend.log.filter((line) => line.startsWith('answered')).length
    await expect.poll(answered).toBe(1 + spares)
    await setImmediate()
    return made
  }

  test('wait from the first create on, and not before', async () => {
    make()
    expect(folders()).toEqual([])
    await warm()
  })

  test('are taken, and another takes their place', async () => {
    const made = await warm()
    const [id] = waiting()
    const started = backend.requests.length
    const sandbox = await made.create({ labels: { job: 'a' }, tenant: 't1' })
    expect(sandbox.id).toBe(id)
    expect(backend.requests).toHaveLength(started)
    expect(metaOf(sandbox.id)).toMatchObject({ labels: { job: 'a' }, tenant: 't1', egress: { kind: 'deny-all' } })
    expect(metaOf(sandbox.id)).not.toHaveProperty('spare')
    await expect.poll(waiting).toHaveLength(1)
    expect(waiting()).not.toContain(sandbox.id)
  })

  test('are told their environment, and are probed', async () => {
    const made = await warm()
    backend.asked.splice(0)
    await made.create({ env: { MINE: 'yes' } })
    const routes = backend.asked.map(({ route }) => route)
    expect(routes.slice(0, 2)).toEqual(['POST /configure', 'POST /probe'])
    expect(JSON.parse(backend.asked[0]?.body ?? '')).toMatchObject({ env: { MINE: 'yes' } })
  })

  test('one whose probe finds a way round the gateway is taken away, not handed out', async () => {
    const made = await warm()
    const [id = ''] = waiting()
    backend.troubles.probe = { tcp: 'connected' }
    await expect(made.create()).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_EGRESS_UNENFORCED' })
    expect([folders().includes(id), backend.platform.has(id)]).toEqual([false, false])
    delete backend.troubles.probe
  })

  test('two that are asked for at once are two', async () => {
    const made = await warm(2)
    const [one, two, three] = await Promise.all([made.create(), made.create(), made.create()])
    expect(new Set([one.id, two.id, three.id]).size).toBe(3)
  })

  test('one with a limit is started anew', async () => {
    const made = await warm()
    const [id] = waiting()
    const sandbox = await made.create({ memoryLimitMb: 100 })
    expect(sandbox.id).not.toBe(id)
    expect(waiting()).toEqual([id])
  })

  test('end in time, and the worker is told when', async () => {
    const made = await warm()
    const [id] = waiting()
    backend.asked.splice(0)
    const sandbox = await made.create({ timeoutMs: 300 })
    expect(sandbox.id).toBe(id)
    expect(JSON.parse(backend.asked[0]?.body ?? '')).toMatchObject({ timeToLiveMs: 300 })
    expect(metaOf(sandbox.id)['expiresAtMs']).toEqual(expect.any(Number))
    await expect.poll(() => backend.platform.has(sandbox.id)).toBe(false)
  })

  test('are nobody’s: not listed, not to be attached to', async () => {
    const made = await warm()
    const [id = ''] = waiting()
    expect(await made.list()).toEqual([])
    await expect(made.attach(id)).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_NOT_FOUND' })
  })

  test('have no way out while they wait', async () => {
    await warm()
    const [id = ''] = waiting()
    expect(fs.existsSync(path.join(root, id, 'egress', 'gateway.sock'))).toBe(false)
  })

  test('one that died is not handed out, and leaves nothing', async () => {
    const made = await warm()
    const [id = ''] = waiting()
    backend.end(id)
    await expect.poll(() => folders().includes(id)).toBe(false)
    const sandbox = await made.create()
    expect(sandbox.id).not.toBe(id)
  })

  test('one whose worker answers no more is not handed out either', async () => {
    const made = await warm()
    const [id = ''] = waiting()
    fs.rmSync(path.join(root, id, 'control', 'worker.sock'))
    const sandbox = await made.create()
    expect(sandbox.id).not.toBe(id)
    expect([folders().includes(id), backend.platform.has(id)]).toEqual([false, false])
  })

  test('end with the provider, also one that is being started', async () => {
    const made = make(2)
    await made.create()
    backend.troubles.hangs = true
    await expect.poll(() => backend.platform.size).toBeGreaterThan(1)
    await made[Symbol.asyncDispose]()
    expect([[...backend.platform], folders()]).toEqual([[], []])
  })

  test('of a process that is gone are reaped by another', async () => {
    const made = await warm()
    const [id = ''] = waiting()
    const other = await otherProcess()
    fs.writeFileSync(path.join(root, id, 'meta.json'), JSON.stringify({ ...metaOf(id), owner: other.owner }))
    const reaper = createSandboxProvider({ backend, runtimeRoot: root, gateway })
    expect(await reaper.reap({ olderThanMs: 3_600_000 })).toEqual([])
    await other.end()
    expect(await reaper.reap({ olderThanMs: 3_600_000 })).toEqual([id])
    await reaper[Symbol.asyncDispose]()
    await made[Symbol.asyncDispose]()
  })

  test.each([-1, 1.5, 33, Number.NaN])('%s is no number of them', (spares) => {
    expect(() => make(spares)).toThrow(TypeError)
  })

  test('a backend that can’t says so', () => {
    backend = fakeBackend(root)
    expect(() => make()).toThrow(expect.objectContaining({ code: 'SALLYPORT_SANDBOX_NOT_SUPPORTED' }) as Error)
  })
})

/** One that was started ahead. A folder is there before its sandbox is ready, so not the first one asked for need be such a one. */
async function taken(made: SandboxProvider, options: CreateSandboxOptions): Promise<Sandbox> {
  for (let attempt = 0; attempt < 5; attempt++) {
    await expect.poll(waiting, { timeout: 15_000 }).toHaveLength(1)
    const before = waiting()
    const sandbox = await made.create(options)
    if (before.includes(sandbox.id)) return sandbox
    await sandbox.destroy()
  }
  throw new Error('none of five was started ahead')
}

describeNeeding(['bubblewrap'], 'behind bubblewrap', () => {
  test('each has its own policy, environment and folder, and nothing of the one before', async () => {
    const made = createSandboxProvider({ backend: { tier: 'process' }, runtimeRoot: root, gateway, spares: 1 })
    provider = made
    const first = await made.create({ env: { WHOSE: 'first' } })
    const second = await taken(made, {
      env: { WHOSE: 'second' },
      egress: { kind: 'static', allowedHosts: ['allowed.example.test:443'] },
    })
    await first.writeFile('secret', 'of the first')
    const ask = (host: string) =>
      `exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT ${host}:443 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' >&3; head -1 <&3`
    const lines = async (sandbox: Sandbox, host: string) =>
      (await sandbox.exec('bash', ['-c', ask(host)])).stdout.trim()
    expect((await second.exec('echo $WHOSE; ls')).stdout).toBe('second\n')
    expect(await lines(second, 'other.example.test')).toContain('403')
    // Allowed, and there is no such name.
    expect(await lines(second, 'allowed.example.test')).toMatch(/50[24]/)
    expect(await lines(first, 'allowed.example.test')).toContain('403')
  })
})
