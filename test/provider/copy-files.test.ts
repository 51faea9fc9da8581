/** Copying out of a sandbox that lies about what it has. What an honest one does is in the conformance suite. */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { copyIn, copyOut } from '../../provider/copy-files.ts'
import type { WorkerClient } from '../../provider/worker-client.ts'

type Files = Parameters<typeof copyOut>[0]

let folder: string
beforeEach(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sp-'))
  fs.mkdirSync(path.join(folder, 'out'))
})
afterEach(() => fs.rmSync(folder, { recursive: true, force: true }))

/** A worker that has the folder `/work` and lists these paths, each with the content `evil`. */
function lying(paths: readonly string[], mode = 0o644): Files {
  const stat: WorkerClient['stat'] = (each) =>
    Promise.resolve({
      path: each === 'all' ? '/work' : each,
      size: 4,
      kind: each === 'all' ? 'directory' : 'file',
      mode,
      modifiedMs: 0,
    })
  return {
    stat,
    listFiles: () => Promise.resolve(paths.map((each) => ({ path: each, size: 4 }))),
    readFileStream: async function* () {
      yield await Promise.resolve(Buffer.from('evil'))
    },
    writeFile: () => Promise.reject(new Error('not asked for')),
    mkdir: () => Promise.reject(new Error('not asked for')),
  }
}

const FAILED = { code: 'SALLYPORT_SANDBOX_FILE_FAILED' }
const out = (): string => path.join(folder, 'out')

describe('copying out', () => {
  test.each([
    '/work/../escape',
    '/work/a/../../escape',
    '/elsewhere/file',
    '/workshop/file',
    '/work//file',
    '/work/./file',
    '/work',
    '/work/a\0b',
    '/work/\ud800',
  ])('a list with %o is refused', async (each) => {
    await expect(copyOut(lying([each]), 'all', out())).rejects.toMatchObject(FAILED)
    expect(fs.readdirSync(out())).toEqual([])
    expect(fs.readdirSync(folder)).toEqual(['out'])
  })

  test('no link that is on the host already is followed, neither as a file nor as a folder', async () => {
    const secret = path.join(folder, 'secret')
    fs.writeFileSync(secret, 'mine')
    fs.symlinkSync(secret, path.join(out(), 'link'))
    await expect(copyOut(lying(['/work/link']), 'all', out())).rejects.toMatchObject(FAILED)
    fs.symlinkSync(folder, path.join(out(), 'up'))
    await expect(copyOut(lying(['/work/up/secret']), 'all', out())).rejects.toMatchObject(FAILED)
    await expect(copyOut(lying([]), '/work/file', path.join(out(), 'link'))).rejects.toMatchObject(FAILED)
    expect(fs.readFileSync(secret, 'utf8')).toBe('mine')
  })

  test('nothing comes out with another user’s rights', async () => {
    await copyOut(lying(['/work/tool'], 0o106_755), 'all', out())
    expect(fs.statSync(path.join(out(), 'tool')).mode & 0o7777).toBe(0o755)
  })

  test('bytes that are not UTF-8 stay what they are', async () => {
    await copyOut(lying(['/work/a\udcff']), 'all', out())
    expect(fs.readdirSync(out(), { encoding: 'buffer' })).toEqual([Buffer.from([0x61, 0xff])])
  })

  test('what is in the way is left as it is', async () => {
    fs.mkdirSync(path.join(out(), 'tool'))
    await expect(copyOut(lying(['/work/tool']), 'all', out())).rejects.toMatchObject(FAILED)
    fs.writeFileSync(path.join(out(), 'file'), 'mine')
    await expect(copyOut(lying(['/work/file/below']), 'all', out())).rejects.toMatchObject(FAILED)
    expect(fs.readFileSync(path.join(out(), 'file'), 'utf8')).toBe('mine')
  })
})

test.each(['nothing-here', 'pipe'])('copying in: %s is refused by name', async (name) => {
  fs.symlinkSync('/dev/null', path.join(folder, 'pipe'))
  await expect(copyIn(lying([]), path.join(folder, name), 'x')).rejects.toMatchObject(FAILED)
})
