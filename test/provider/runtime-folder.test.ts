import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import {
  checkRuntimeRoot,
  claim,
  defaultRuntimeRoot,
  isSandboxId,
  makeRuntimeFolder,
  newSandboxId,
  openRuntimeRoot,
  readMeta,
  readMetas,
  removeRuntimeFolder,
  type SandboxMeta,
  unclaim,
} from '../../provider/runtime-folder.ts'
import { otherProcess } from './other-process.ts'

let root: string
beforeEach(() => {
  root = fs.mkdtempSync(path.join(os.tmpdir(), 'sp-'))
})
afterEach(() => {
  vi.unstubAllEnvs()
  fs.rmSync(root, { recursive: true, force: true })
})

const meta = (over: Partial<SandboxMeta> = {}): SandboxMeta => ({
  version: 1,
  id: newSandboxId(),
  backend: 'fake',
  owner: 'a.b.c.1.2',
  createdAtMs: 1,
  labels: {},
  ...over,
})

describe('ids', () => {
  test('are all different, and fit for paths and labels', () => {
    const ids = Array.from({ length: 1000 }, newSandboxId)
    expect(new Set(ids).size).toBe(1000)
    for (const id of ids) expect(isSandboxId(id)).toBe(true)
  })

  test.each([
    '',
    'sbx_',
    'sbx_../../../../../x',
    'sbx_AAAAAAAAAAAAAAAA',
    'sbx_aaaaaaaaaaaaaaaa/x',
    'sbx_aaaaaaaaaaaaaaaa\n',
  ])('%o is none', (text) => {
    expect(isSandboxId(text)).toBe(false)
  })

  test('nothing is removed by what is none', async () => {
    await expect(removeRuntimeFolder(root, '..')).rejects.toThrow(TypeError)
    await expect(removeRuntimeFolder(root, '')).rejects.toThrow(TypeError)
    expect(fs.existsSync(root)).toBe(true)
  })
})

describe('the root', () => {
  test('is in the user’s runtime folder, or in /tmp under the user’s number', () => {
    vi.stubEnv('XDG_RUNTIME_DIR', '/run/user/7')
    expect(defaultRuntimeRoot()).toBe('/run/user/7/sallyport')
    vi.stubEnv('XDG_RUNTIME_DIR', undefined)
    expect(defaultRuntimeRoot()).toBe(`/tmp/sallyport-${os.userInfo().uid}`)
  })

  test.each(['relative', `/${'long/'.repeat(14)}`])('%o is refused', (text) => {
    expect(() => checkRuntimeRoot(text)).toThrow(TypeError)
  })

  test('leaves room for sockets, to the byte', () => {
    const longest = `/${'r'.repeat(103 - 1 - '/sbx_aaaaaaaaaaaaaaaa/egress/gateway.sock'.length)}`
    expect(checkRuntimeRoot(longest)).toBe(longest)
    expect(() => checkRuntimeRoot(`${longest}r`)).toThrow(TypeError)
  })

  test('is made for its user alone', async () => {
    await openRuntimeRoot(path.join(root, 'a/b'))
    expect(fs.statSync(path.join(root, 'a/b')).mode & 0o777).toBe(0o700)
  })

  test.each([
    ['a link to somewhere', (target: string) => fs.symlinkSync(root, target)],
    ['a folder that others may look into', (target: string) => fs.mkdirSync(target, { mode: 0o750 })],
    ['a file', (target: string) => fs.writeFileSync(target, '')],
    ...(os.userInfo().uid === 0
      ? [
          [
            'a folder of somebody else',
            (target: string) => {
              fs.mkdirSync(target, { mode: 0o700 })
              fs.chownSync(target, 65_534, 65_534)
            },
          ] as const,
        ]
      : []),
  ] as const)('%s is refused', async (_name, prepare) => {
    const target = path.join(root, 'target')
    prepare(target)
    await expect(openRuntimeRoot(target)).rejects.toMatchObject({ code: 'SALLYPORT_STATE_UNUSABLE' })
  })
})

describe('the folder of a sandbox', () => {
  test('keeps the bearer from everybody else, and lets the sandbox see its gateway', async () => {
    const own = meta()
    const paths = makeRuntimeFolder(root, own, 'the bearer')
    const mode = (file: string): number => fs.statSync(file).mode & 0o777
    expect([mode(paths.folder), mode(paths.workerToken), mode(paths.control), mode(paths.egress)]).toEqual([
      0o700, 0o600, 0o700, 0o755,
    ])
    expect(fs.readFileSync(path.join(paths.folder, 'meta.json'), 'utf8')).not.toContain('the bearer')
    expect(await readMeta(root, own.id)).toEqual(own)
  })

  test.each([
    ['is torn', '{"version":1,'],
    ['is of another version', JSON.stringify({ ...meta(), version: 2 })],
    ['has a policy that is none', JSON.stringify({ ...meta(), egress: { kind: 'open' } })],
    ['is another one’s', JSON.stringify(meta())],
  ])('a record that %s is no record', async (_name, text) => {
    const { id } = meta()
    fs.mkdirSync(path.join(root, id))
    fs.writeFileSync(path.join(root, id, 'meta.json'), text)
    expect(await readMeta(root, id)).toBeUndefined()
    expect(await readMetas(root, 'fake')).toEqual([])
  })

  test('only one of those that claim an orphan gets it, unless it is gone as well or gives it back', async () => {
    const own = meta()
    makeRuntimeFolder(root, own, 't')
    const claims = await Promise.all([claim(root, own), claim(root, own), claim(root, own)])
    expect(claims.filter(Boolean)).toHaveLength(1)
    await unclaim(root, own)
    const other = await otherProcess()
    fs.writeFileSync(path.join(root, own.id, `claim-${own.owner}`), other.owner)
    expect(await claim(root, own)).toBe(false)
    await other.end()
    expect(await claim(root, own)).toBe(true)
  })
})
