/** Which host folders no sandbox gets to see, however they are asked for. */
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { resolveMount } from '../../../provider/backends/mounts.ts'

let root: string
let context: { runtimeRoot: string; home: string }

beforeAll(async () => {
  root = await fs.realpath(await fs.mkdtemp(path.join(os.tmpdir(), 'spm-')))
  context = { runtimeRoot: path.join(root, 'run/sallyport'), home: path.join(root, 'users/me') }
  for (const folder of ['run/sallyport/sbx_1', 'users/me/project', 'other'])
    await fs.mkdir(path.join(root, folder), { recursive: true })
  await fs.symlink(path.join(root, 'users'), path.join(root, 'other/link'))
  await fs.symlink(path.join(root, 'users/me/project'), path.join(root, 'other/project'))
  await fs.symlink('nowhere', path.join(root, 'other/dangling'))
  await fs.writeFile(path.join(root, 'other/file'), '')
})
afterAll(() => fs.rm(root, { recursive: true }))

const at = (name: string): string => path.join(root, name)

describe('refused', () => {
  test.each([
    ['a home', 'users/me', 'is or contains'],
    ['what contains a home', 'users', 'is or contains'],
    ['a link to what contains a home', 'other/link', 'is or contains'],
    ['the runtime folders', 'run/sallyport', 'is or contains'],
    ['what contains the runtime folders', 'run', 'is or contains'],
    ['a runtime folder', 'run/sallyport/sbx_1', 'is in'],
    ['what is not there', 'gone', 'is not there'],
    ['a link to nothing', 'other/dangling', 'is not there'],
  ])('%s', (_what, name, message) => {
    expect(() => resolveMount({ hostPath: at(name) }, context)).toThrow(
      expect.objectContaining({
        code: 'SALLYPORT_SANDBOX_NOT_SUPPORTED',
        message: expect.stringContaining(message) as unknown,
      }) as Error,
    )
  })

  test.each(['/', '/etc', '/proc', '/proc/self', '/dev', '/dev/shm', '/dev/null', '/run'])(
    '%s of the host',
    (hostPath) => {
      expect(() => resolveMount({ hostPath }, context)).toThrow(
        expect.objectContaining({ code: 'SALLYPORT_SANDBOX_NOT_SUPPORTED' }) as Error,
      )
    },
  )

  test.each([
    '/',
    '/run',
    '/run/sallyport',
    '/run/sallyport/control',
    '/proc/self',
    '/dev/shm/x',
    '/sys',
    '/run/../run/sallyport/egress',
    'relative',
  ])('%s as a place inside', (inside) => {
    expect(() => resolveMount({ hostPath: at('other'), path: inside }, context)).toThrow(
      expect.objectContaining({ code: 'SALLYPORT_SANDBOX_NOT_SUPPORTED' }) as Error,
    )
  })
})

describe('shown', () => {
  test('a project below a home, read-only unless it says otherwise', () => {
    expect(resolveMount({ hostPath: at('users/me/project') }, context)).toEqual({
      hostPath: at('users/me/project'),
      path: at('users/me/project'),
      writable: false,
    })
    expect(resolveMount({ hostPath: at('other'), path: '/data', writable: true }, context)).toEqual({
      hostPath: at('other'),
      path: '/data',
      writable: true,
    })
  })

  test('by the real path, so that nobody can turn a link elsewhere afterwards', () => {
    expect(resolveMount({ hostPath: at('other/project') }, context).hostPath).toBe(at('users/me/project'))
  })

  test('a file', () => {
    expect(resolveMount({ hostPath: at('other/file'), path: '/etc/tool.conf' }, context).path).toBe('/etc/tool.conf')
  })
})
