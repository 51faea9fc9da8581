/** Where control groups may be made: by what the kernel says of a machine, and with folders that stand for its hierarchies. */
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { findCgroupPlace, makeCgroup, removeCgroup } from '../../../provider/backends/cgroup.ts'
import {
  DEFAULT_MAX_PROCESSES,
  findLimitSupport,
  limitGaps,
  memoryFolderMb,
  openLimits,
} from '../../../provider/backends/limits.ts'

let root: string
beforeEach(async () => (root = await fs.mkdtemp(path.join(os.tmpdir(), 'spc-'))))
afterEach(() => fs.rm(root, { recursive: true }))

const mount = (mountPoint: string, type: string, options: string, part = '/'): string =>
  `31 23 0:27 ${part} ${mountPoint} rw,relatime shared:9 - ${type} cgroup rw,${options}`

async function folders(...names: readonly string[]): Promise<void> {
  for (const name of names) await fs.mkdir(path.join(root, name), { recursive: true })
}

async function group(name: string, handedDown: string): Promise<void> {
  await folders(name)
  await fs.writeFile(path.join(root, name, 'cgroup.subtree_control'), `${handedDown}\n`)
  await fs.writeFile(path.join(root, name, 'cgroup.procs'), '')
}

describe('version 2', () => {
  test('the nearest group above that hands both controllers to its children', async () => {
    await group('', 'cpu memory pids')
    await group('user.slice/app.slice', 'memory pids')
    await group('user.slice/app.slice/shell.scope', '')
    const facts = { own: '0::/user.slice/app.slice/shell.scope\n', mounts: mount(root, 'cgroup2', 'nsdelegate') }
    expect(findCgroupPlace(facts)).toEqual({
      version: 2,
      parents: [{ controllers: ['memory', 'pids'], folder: path.join(root, 'user.slice/app.slice') }],
    })
  })

  test('none where a controller is not handed down', async () => {
    await group('', 'cpu pids')
    expect(findCgroupPlace({ own: '0::/\n', mounts: mount(root, 'cgroup2', 'nsdelegate') })).toBeUndefined()
  })

  test('a container sees its own part of the hierarchy', async () => {
    await group('', 'memory pids')
    const facts = { own: '0::/docker/abc\n', mounts: mount(root, 'cgroup2', 'nsdelegate', '/docker/abc') }
    expect(findCgroupPlace(facts)?.parents[0]?.folder).toBe(root)
  })

  test('an empty second version beside the first does not count', async () => {
    await group('unified', '')
    await folders('memory/mine', 'pids')
    const mounts = [
      mount(`${root}/memory`, 'cgroup', 'memory'),
      mount(`${root}/pids`, 'cgroup', 'pids'),
      mount(`${root}/unified`, 'cgroup2', 'rw'),
    ].join('\n')
    const own = '8:pids:/\n4:memory:/mine\n0::/\n'
    expect(findCgroupPlace({ own, mounts })).toEqual({
      version: 1,
      parents: [
        { controllers: ['memory'], folder: `${root}/memory/mine` },
        { controllers: ['pids'], folder: `${root}/pids` },
      ],
    })
  })
})

test('version 1 without one of the two controllers is none', async () => {
  await folders('memory')
  expect(findCgroupPlace({ own: '4:memory:/\n', mounts: mount(`${root}/memory`, 'cgroup', 'memory') })).toBeUndefined()
})

test('a machine without control groups has none', () => {
  expect(findCgroupPlace({ own: '', mounts: '36 35 98:0 / / rw - ext4 /dev/root rw\n' })).toBeUndefined()
})

test('a step that fails leaves no group behind', async () => {
  await folders('memory', 'pids')
  const place = { version: 1, parents: [{ controllers: ['memory'], folder: `${root}/memory` }, { controllers: ['pids'], folder: `${root}/pids` }] } as const // prettier-ignore
  // Plain folders have none of the kernel's files.
  await expect(makeCgroup(place, 'sbx_1', { memoryBytes: 1, tasks: 1 })).rejects.toMatchObject({ code: 'ENOENT' })
  expect(await fs.readdir(`${root}/memory`)).toEqual([])
  expect(await fs.readdir(`${root}/pids`)).toEqual([])
})

test('removing what is not there is fine', async () => {
  await removeCgroup([path.join(root, 'gone')])
})

describe('without control groups', () => {
  const none = { own: '', mounts: '' }

  test('processes are counted by a resource limit, and memory is refused', async () => {
    const support = findLimitSupport(none, 1000)
    expect(support).toMatchObject({ method: 'prlimit', memory: false, processes: true })
    expect(limitGaps(support)).toHaveLength(1)
    const { resourceLimits, joinFiles } = await openLimits(support, 'sbx_1', { maxProcesses: 10 })
    expect(resourceLimits).toEqual({ tasks: 34 })
    await expect(openLimits(support, 'sbx_1', { memoryLimitMb: 256 })).rejects.toMatchObject({
      code: 'SALLYPORT_SANDBOX_NOT_SUPPORTED',
    })
    expect(joinFiles).toEqual([])
    expect((await openLimits(support, 'sbx_1', {})).resourceLimits.tasks).toBeGreaterThan(DEFAULT_MAX_PROCESSES)
  })

  test('root is told that its processes can not be counted, before anything starts', async () => {
    const support = findLimitSupport(none, 0)
    expect(support.processes).toBe(false)
    expect(limitGaps(support)).toHaveLength(2)
    await expect(openLimits(support, 'sbx_1', { maxProcesses: 10 })).rejects.toMatchObject({
      code: 'SALLYPORT_SANDBOX_NOT_SUPPORTED',
    })
  })

  test.each([
    { memoryLimitMb: 8 },
    { memoryLimitMb: Number.NaN },
    { memoryLimitMb: Number.POSITIVE_INFINITY },
    { maxProcesses: 0 },
    { maxProcesses: 1.5 },
    { maxProcesses: Number.POSITIVE_INFINITY },
  ])('limits that make no sense: %j', async (request) => {
    await expect(openLimits(findLimitSupport(none, 1000), 'sbx_1', request)).rejects.toMatchObject({
      code: 'SALLYPORT_SANDBOX_NOT_SUPPORTED',
    })
  })
})

test.each([
  [1024, 2, undefined, 1024],
  [1024, 2, 2048, 1024],
  [1024, 2, 2047, 511],
  [1024, 2, 256, 64],
  [1024, 1, 256, 128],
  [1, 1, 8, 1],
])('of %i MiB in each of %i folders in memory, a limit of %s leaves %i', (wanted, count, limit, left) => {
  expect(memoryFolderMb(wanted, count, limit)).toBe(left)
})
