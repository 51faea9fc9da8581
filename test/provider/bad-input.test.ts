/** What a caller gets wrong is said, and said clearly: a limit that is misspelt must not be no limit. */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createSandboxProvider, type Sandbox, type SandboxProvider } from '../../provider/index.ts'

const gateway = { machineSets: { sets: { npm: [], apt: [] }, notes: [] } }
const backend = { tier: 'passthrough' } as const
const defaultEgress = { kind: 'allow-all' } as const
let root: string
let provider: SandboxProvider
let sandbox: Sandbox

beforeAll(async () => {
  root = fs.mkdtempSync(path.join(os.tmpdir(), 'sp-'))
  provider = createSandboxProvider({ backend, defaultEgress, runtimeRoot: root, gateway })
  sandbox = await provider.create()
})
afterAll(async () => {
  await provider[Symbol.asyncDispose]()
  fs.rmSync(root, { recursive: true, force: true })
})

test.each<[string, () => unknown, RegExp]>([
  [
    'a provider',
    () => createSandboxProvider({ backend, defaultEgres: { kind: 'deny-all' } } as never),
    /`defaultEgres` is no option of a provider/,
  ],
  [
    'a backend',
    () => createSandboxProvider({ backend: { ...backend, workingfolder: '/tmp' } as never }),
    /`workingfolder` is no option of the backend `passthrough`; there are .*`workingFolder`/,
  ],
  [
    'a sandbox',
    () => provider.create({ memoryLimitMB: 128 } as never),
    /`memoryLimitMB` is no option of a sandbox; there are .*`memoryLimitMb`/,
  ],
  ['a command', () => sandbox.exec('true', [], { timeoutMs: 5 } as never), /`timeoutMs` is no option.*`timeout`/],
  [
    'a background process',
    () => sandbox.spawn('true', [], { signal: AbortSignal.abort() } as never),
    /`signal` is no option of a background process/,
  ],
  [
    'a command, in the place of its arguments',
    () => sandbox.exec('true', { timeout: 5 } as never),
    /options come third/,
  ],
  ['a provider, without any', () => createSandboxProvider(undefined as never), /options of a provider are an object/],
  ['a sandbox, null', () => provider.create(null as never), /options of a sandbox are an object/],
  ['a command, null', () => sandbox.exec('true', [], null as never), /options of a command are an object/],
])('an option that %s has not is refused by name', async (_what, act, message) => {
  const attempt = Promise.resolve().then(act)
  await expect(attempt).rejects.toThrow(message)
  await expect(attempt).rejects.toBeInstanceOf(TypeError)
})

test.each<[string, object, RegExp]>([
  ['none', {}, /`backend` says how sandboxes are made/],
  ['a tier', { backend: { tier: 'docker' } }, /`docker` is no tier of sandboxes/],
  ['a runtime', { backend: { tier: 'container', runtime: 'podman' } }, /`podman` is no runtime of containers/],
  ['a service', { backend: { tier: 'microvm', service: 'aws' } }, /`aws` is no service of microVMs/],
])('a backend that there is not is refused: %s', (_what, options, message) => {
  expect(() => createSandboxProvider(options as never)).toThrow(message)
})

const BAD_POLICIES: readonly [string, unknown, RegExp][] = [
  ['a kind', { kind: 'Allow-All' }, /expected `deny-all`, `allow-all`, `static`, `named` or `resolver`/],
  ['a text', 'allow-all', /expected object/],
  ['null', null, /expected object/],
  ['no list', { kind: 'static' }, /allowedHosts: is required/],
  ['a text for a list', { kind: 'static', allowedHosts: 'a.example' }, /allowedHosts: expected array/],
  ['a misspelt list', { kind: 'static', allowedHosts: [], denyHosts: ['a.example'] }, /denyHosts: unknown key/],
  ['no function', { kind: 'resolver' }, /resolve: is a function/],
  ['no name', { kind: 'named' }, /name: is required/],
]
test.each(BAD_POLICIES)(
  'a policy that is none is refused at once, and changes nothing: %s',
  async (_what, policy, message) => {
    const refused = { code: 'SALLYPORT_POLICY_INVALID', message: expect.stringMatching(message) as string }
    const wrong = { backend, runtimeRoot: root, gateway, defaultEgress: policy } as never
    expect(() => createSandboxProvider(wrong)).toThrow(expect.objectContaining(refused) as Error)
    await expect(provider.create({ egress: policy } as never)).rejects.toMatchObject(refused)
    await expect(sandbox.setEgress(policy as never)).rejects.toMatchObject(refused)
    expect(await provider.list()).toHaveLength(1)
  },
)

test('what is left undefined is no option', async () => {
  expect(await sandbox.exec('true', [], { timeoutMs: undefined } as never)).toMatchObject({ exitCode: 0 })
})

const OUTSIDE = 'the path leads out of the folders of this sandbox'
const MISSING = 'no such file or folder'
test.each<[string, (file: string) => unknown, string, string]>([
  ['readFile', (file) => sandbox.readFile(file), 'nothing', MISSING],
  ['readFileStream', (file) => sandbox.readFileStream(file)[Symbol.asyncIterator]().next(), 'nothing', MISSING],
  ['writeFile', (file) => sandbox.writeFile(file, ''), '/usr/x', OUTSIDE],
  ['mkdir', (file) => sandbox.mkdir(file), '/usr/x', OUTSIDE],
  ['remove', (file) => sandbox.remove(file), '/usr/bin', OUTSIDE],
  ['move', (file) => sandbox.move(file, 'there'), 'nothing', MISSING],
])('a fault of %s names the file', async (_method, act, file, reason) => {
  await expect(act(file)).rejects.toMatchObject({
    code: 'SALLYPORT_SANDBOX_FILE_FAILED',
    message: `\`${file}\`: ${reason}`,
  })
})

test('a name can not write a line of its own into a fault', async () => {
  const failing = sandbox.readFile('a\n\u001b[2Jb`c')
  await expect(failing).rejects.toMatchObject({ message: '`a??[2Jb?c`: no such file or folder' })
})
