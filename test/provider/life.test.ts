import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { createSandboxProvider, type SandboxProvider } from '../../provider/index.ts'
import { fakeBackend, type FakeBackend } from './fake-backend.ts'
import { otherProcess } from './other-process.ts'

const gateway = { machineSets: { sets: { npm: [], apt: [] }, notes: [] } }

let root: string
let backend: FakeBackend
let provider: SandboxProvider

beforeEach(() => {
  root = fs.mkdtempSync(path.join(os.tmpdir(), 'sp-'))
  backend = fakeBackend(root)
  provider = createSandboxProvider({ backend, runtimeRoot: root, gateway })
})

afterEach(async () => {
  Reflect.deleteProperty(backend.troubles, 'stop')
  await Promise.resolve(provider[Symbol.asyncDispose]()).catch(() => undefined)
  fs.rmSync(root, { recursive: true, force: true })
})

const folders = (): string[] => fs.readdirSync(root).filter((name) => name.startsWith('sbx_'))
const metaFile = (id: string): string => path.join(root, id, 'meta.json')
const edit = (id: string, over: object): void => {
  const meta = JSON.parse(fs.readFileSync(metaFile(id), 'utf8')) as object
  fs.writeFileSync(metaFile(id), JSON.stringify({ ...meta, ...over }))
}
/** Another provider over the same sandboxes, as another process would have it. */
const another = (): SandboxProvider => createSandboxProvider({ backend, runtimeRoot: root, gateway })
const HANG = ['hang'] as const

describe('destroy', () => {
  test('closes the way out first, ends the sandbox, and leaves nothing', async () => {
    const sandbox = await provider.create()
    await sandbox.destroy()
    expect(backend.log).toEqual(['start', 'answered after 1 requests', 'stop after its way out was closed'])
    expect({ status: sandbox.status, platform: [...backend.platform], folders: folders() }).toEqual({
      status: 'destroyed',
      platform: [],
      folders: [],
    })
  })

  test('any number of calls are one', async () => {
    const sandbox = await provider.create()
    await Promise.all([sandbox.destroy(), sandbox.destroy(), sandbox[Symbol.asyncDispose]()])
    await sandbox.destroy()
    expect(backend.log.filter((line) => line.startsWith('stop'))).toHaveLength(1)
  })

  test('it is destroyed from the first moment on, and whatever is asked then fails by name', async () => {
    const sandbox = await provider.create()
    const destroying = sandbox.destroy()
    expect(sandbox.status).toBe('destroyed')
    const code = 'SALLYPORT_SANDBOX_DESTROYED'
    await expect(sandbox.exec('true')).rejects.toMatchObject({ code, outcome: 'known' })
    await expect(sandbox.setEgress({ kind: 'allow-all' })).rejects.toMatchObject({ code })
    await expect(sandbox.readFileStream('x')[Symbol.asyncIterator]().next()).rejects.toMatchObject({ code })
    await destroying
  })

  test('a command that runs meanwhile fails by name, with an unknown outcome', async () => {
    const sandbox = await provider.create()
    const running = sandbox.exec('sleep', HANG)
    await expect.poll(() => backend.asked.some(({ route }) => route === 'POST /execute')).toBe(true)
    expect(sandbox.status).toBe('busy')
    const failing = expect(running).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_DESTROYED', outcome: 'unknown' })
    await sandbox.destroy()
    await failing
    expect(sandbox.status).toBe('destroyed')
  })

  test('a platform that fails is told to the caller, and what is known of it stays for another try', async () => {
    const sandbox = await provider.create()
    backend.troubles.stop = new Error('engine is gone')
    await expect(sandbox.destroy()).rejects.toThrow('engine is gone')
    expect(sandbox.status).toBe('destroyed')
    expect(folders()).toEqual([sandbox.id])
    expect(fs.existsSync(path.join(root, sandbox.id, 'egress', 'gateway.sock'))).toBe(false)
  })

  test('a sandbox that ends by itself is taken away without being asked', async () => {
    const sandbox = await provider.create()
    backend.end(sandbox.id)
    await expect.poll(folders).toEqual([])
    expect(sandbox.status).toBe('destroyed')
    await sandbox.destroy()
  })

  test('closing the provider destroys all of its sandboxes, also one that is being made, and makes no more', async () => {
    await provider.create()
    const creating = provider.create()
    await provider[Symbol.asyncDispose]()
    await creating.catch(() => undefined)
    expect([...backend.platform, ...folders()]).toEqual([])
    await expect(provider.create()).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_DESTROYED' })
  })

  test('the audit log outlives the provider', async () => {
    await provider.create()
    await provider[Symbol.asyncDispose]()
    const [folder = ''] = fs.readdirSync(root)
    const audit = path.join(root, folder, 'state', 'audit')
    const [file = ''] = fs.readdirSync(audit)
    expect(fs.readFileSync(path.join(audit, file), 'utf8')).toContain('"action":"stop"')
  })
})

describe('status', () => {
  test('is busy while any command runs', async () => {
    const sandbox = await provider.create()
    expect(sandbox.status).toBe('ready')
    const controller = new AbortController()
    const hanging = sandbox.exec('sleep', HANG, { signal: controller.signal })
    const quick = sandbox.exec('true', [])
    expect(sandbox.status).toBe('busy')
    expect((await quick).exitCode).toBe(7)
    expect(sandbox.status).toBe('busy')
    controller.abort()
    await expect(hanging).rejects.toMatchObject({ name: 'AbortError' })
    expect(sandbox.status).toBe('ready')
  })

  test.each([0, -1, 1.5, NaN, Infinity])('a timeout of %d is none', async (timeout) => {
    const sandbox = await provider.create()
    await expect(sandbox.spawn('true', [], { timeout })).rejects.toThrow(TypeError)
    await expect(sandbox.exec('true', [], { timeout })).rejects.toThrow(TypeError)
  })
})

describe('attach', () => {
  test('the same provider has the same sandbox', async () => {
    const sandbox = await provider.create()
    expect(await provider.attach(sandbox.id)).toBe(sandbox)
  })

  test.each(['sbx_aaaaaaaaaaaaaaaa', '../etc', 'sbx_../../../../etc/x', ''])('%o is not there', async (id) => {
    await expect(provider.attach(id)).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_NOT_FOUND' })
  })

  test('while its host lives, another one runs commands but leaves the policy alone, and closing lets it live', async () => {
    const sandbox = await provider.create()
    const other = another()
    const attached = await other.attach(sandbox.id)
    expect((await attached.exec('true', [])).exitCode).toBe(7)
    await expect(attached.setEgress({ kind: 'allow-all' })).rejects.toMatchObject({
      code: 'SALLYPORT_SANDBOX_NOT_SUPPORTED',
    })
    await other[Symbol.asyncDispose]()
    expect(sandbox.status).toBe('ready')
    expect((await sandbox.exec('true', [])).exitCode).toBe(7)
  })

  test('another one may destroy it, and its host notices', async () => {
    const sandbox = await provider.create()
    await using other = another()
    await (await other.attach(sandbox.id)).destroy()
    await expect.poll(() => sandbox.status).toBe('destroyed')
    expect(folders()).toEqual([])
  })

  test('when its host is gone, whoever attaches goes on with the policy that was in force', async () => {
    const sandbox = await provider.create()
    await sandbox.setEgress({ kind: 'static', allowedHosts: ['b.example'] })
    expect(JSON.parse(fs.readFileSync(metaFile(sandbox.id), 'utf8'))).toMatchObject({
      egress: { allowedHosts: ['b.example'] },
    })
    const host = await otherProcess()
    await host.end()
    edit(sandbox.id, { owner: host.owner })
    // As after a crash: the socket file is there, and nobody behind it.
    fs.rmSync(path.join(root, sandbox.id, 'egress', 'gateway.sock'))

    await using other = another()
    const attached = await other.attach(sandbox.id)
    await attached.setEgress({ kind: 'deny-all' })
    expect(JSON.parse(fs.readFileSync(metaFile(sandbox.id), 'utf8'))).not.toMatchObject({ owner: host.owner })

    // And a third finds it taken.
    await using third = another()
    await expect((await third.attach(sandbox.id)).setEgress({ kind: 'allow-all' })).rejects.toMatchObject({
      code: 'SALLYPORT_SANDBOX_NOT_SUPPORTED',
    })
  })
})

describe('list and reap', () => {
  test('every provider of the backend sees all sandboxes, oldest first, without labels of our own', async () => {
    const first = await provider.create({ labels: { n: '1' } })
    const second = await provider.create({ labels: { n: '2' } })
    edit(first.id, { createdAtMs: 1 })
    const listed = await another().list()
    expect(listed.map(({ id, labels }) => [id, labels])).toEqual([
      [first.id, { n: '1' }],
      [second.id, { n: '2' }],
    ])
  })

  test('sandboxes of another backend are not its own', async () => {
    const sandbox = await provider.create()
    edit(sandbox.id, { backend: 'other' })
    backend.platform.delete(sandbox.id)
    expect(await another().list()).toEqual([])
    expect(await another().reap({ olderThanMs: 0 })).toEqual([])
    await expect(another().attach(sandbox.id)).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_NOT_FOUND' })
  })

  test('a sandbox of a living host that is young stays', async () => {
    await provider.create()
    expect(await another().reap({ olderThanMs: 60_000 })).toEqual([])
    expect(folders()).toHaveLength(1)
  })

  test.each([
    [
      'whose host is gone',
      async (id: string) => {
        const host = await otherProcess()
        await host.end()
        edit(id, { owner: host.owner })
      },
    ],
    ['that is past its end', (id: string) => edit(id, { expiresAtMs: Date.now() - 1 })],
    ['that is too old', (id: string) => edit(id, { createdAtMs: Date.now() - 61_000 })],
  ])('one %s goes, with all that is left of it', async (_name, prepare: (id: string) => unknown) => {
    const sandbox = await provider.create()
    const young = await provider.create()
    await prepare(sandbox.id)
    expect(await another().reap({ olderThanMs: 60_000 })).toEqual([sandbox.id])
    expect({ platform: [...backend.platform], folders: folders() }).toEqual({
      platform: [young.id],
      folders: [young.id],
    })
    expect(backend.log.at(-1)).toBe('stop after its way out was closed')
  })

  test('what only the platform knows of goes by its labels', async () => {
    const sandbox = await provider.create()
    fs.rmSync(path.join(root, sandbox.id, 'meta.json'))
    expect(await another().reap({ olderThanMs: 60_000 })).toEqual([])
    expect(await another().reap({ olderThanMs: 0 })).toEqual([sandbox.id])
    expect([...backend.platform]).toEqual([])
  })

  test('what was made half and lost its host goes', async () => {
    const id = 'sbx_aaaabbbbccccdddd'
    const host = await otherProcess()
    await host.end()
    await provider.create()
    const [template = ''] = folders()
    fs.cpSync(metaFile(template), path.join(root, id, 'meta.json'))
    edit(id, { id, owner: host.owner })
    expect(await another().reap({ olderThanMs: 60_000 })).toEqual([id])
    expect(folders()).toEqual([template])
  })

  test('one that can not be taken away does not keep the others', async () => {
    const first = await provider.create()
    const second = await provider.create()
    edit(first.id, { createdAtMs: 1 })
    edit(second.id, { createdAtMs: 2 })
    backend.troubles.stop = new Error('engine is gone')
    await expect(another().reap({ olderThanMs: 60_000 })).rejects.toThrow('engine is gone')
    expect(backend.log.filter((line) => line.startsWith('stop'))).toHaveLength(2)
  })

  test('folders of gateways go when their process is gone and they are old enough', async () => {
    await provider.create()
    const [folder = ''] = fs.readdirSync(root).filter((name) => name.startsWith('gw_'))
    const gone = path.join(root, 'gw_aaaaaaaaaaaa')
    const host = await otherProcess()
    await host.end()
    fs.mkdirSync(gone)
    fs.writeFileSync(path.join(gone, 'owner'), host.owner)
    await provider.reap({ olderThanMs: 60_000 })
    expect(fs.existsSync(gone)).toBe(true)
    fs.utimesSync(path.join(gone, 'owner'), 1, 1)
    await provider.reap({ olderThanMs: 60_000 })
    expect([fs.existsSync(gone), fs.existsSync(path.join(root, folder))]).toEqual([false, true])
  })
})
