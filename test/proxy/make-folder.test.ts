/** Folders where they can be made, and one clear word where they can't. */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { systemClock } from '../../proxy/clock.ts'
import { openAuditLog } from '../../proxy/audit/log.ts'
import { makeFolder } from '../../proxy/make-folder.ts'
import { openFolder } from '../../proxy/state/folder.ts'
import { testKey } from './audit/support.ts'

let folder: string
beforeEach(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-folders-'))
})
afterEach(() => fs.rmSync(folder, { recursive: true, force: true }))

test('all that are missing are made, for the owner alone', () => {
  makeFolder(path.join(folder, 'a/b/c'))
  for (const made of ['a', 'a/b', 'a/b/c']) expect(fs.statSync(path.join(folder, made)).mode & 0o777).toBe(0o700)
  makeFolder(path.join(folder, 'a/b/c'))
  fs.symlinkSync('a', path.join(folder, 'link'))
  makeFolder(path.join(folder, 'link/d'))
  expect(fs.existsSync(path.join(folder, 'a/d'))).toBe(true)
})

test.each([
  ['a file', 'file', 'EEXIST'],
  ['below a file', 'file/below', 'ENOTDIR'],
  ['a link that leads nowhere', 'dangling', 'EEXIST'],
  ['a link in a circle', 'circle/below', 'ELOOP'],
])('%s is no folder', (_what, name, code) => {
  fs.writeFileSync(path.join(folder, 'file'), '')
  fs.symlinkSync('nowhere', path.join(folder, 'dangling'))
  fs.symlinkSync('circle', path.join(folder, 'circle'))
  expect(() => makeFolder(path.join(folder, name))).toThrow(expect.objectContaining({ code }) as Error)
})

test.skipIf(process.platform !== 'linux')(
  'below /proc: an error at once, of the state folder and of the audit log',
  async () => {
    const nowhere = '/proc/nowhere/at/all'
    await expect(openFolder(nowhere)).rejects.toThrow(
      `state \`${nowhere}\` can't be made or read (no folder can be made there)`,
    )
    const log = openAuditLog({
      path: nowhere,
      instance: 'a',
      onFailure: 'deny',
      maxFileBytes: 1_000_000,
      signingKey: testKey.key,
      clock: systemClock,
    })
    await expect(log).rejects.toThrow(`the audit log can't be written to \`${nowhere}\` (no folder can be made there)`)
  },
)
