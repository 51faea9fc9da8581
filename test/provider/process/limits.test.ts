/** Fork bombs and memory hogs against the limits, as root with control groups and as nobody without. */
import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { findLimitSupport } from '../../../provider/backends/limits.ts'
import { workerFile } from '../../../provider/worker-file.ts'
import { compileProbe, parseAttempts } from '../compile-probe.ts'
import { describeNeeding } from '../needs.ts'
import type { OneOrder, OneReport } from './one-driver.ts'

vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 })

const NOBODY = 65_534
const MAX_PROCESSES = 40
const MEMORY_MB = 192

describeNeeding(['bubblewrap', 'gcc', 'root', 'namespaces'], 'limits of the process backend', () => {
  let folder: string
  let probe: string

  beforeAll(async () => {
    folder = await fs.mkdtemp(path.join(os.tmpdir(), 'spl-'))
    await fs.chmod(folder, 0o755)
    probe = compileProbe(folder)
    await workerFile()
  })
  afterAll(() => fs.rm(folder, { recursive: true }))

  async function run(uid: number, request: OneOrder['request'], commands: OneOrder['commands']): Promise<OneReport> {
    const runtimeRoot = await fs.mkdtemp(path.join(folder, 'run-'))
    await fs.chown(runtimeRoot, uid, uid)
    const order: OneOrder = { options: { runtimeRoot }, request, program: probe, commands }
    const args = [
      '--reuid',
      String(uid),
      '--regid',
      String(uid),
      '--clear-groups',
      '--',
      process.execPath,
      path.join(import.meta.dirname, 'one-driver.ts'),
      JSON.stringify(order),
    ]
    const { stdout } = await promisify(execFile)('setpriv', args, { env: { PATH: process.env['PATH'], HOME: folder } })
    return JSON.parse(stdout) as OneReport
  }

  describe.each([
    ['root', 0],
    ['nobody', NOBODY],
  ])('made by %s', (_user, uid) => {
    test('a fork bomb ends at the limit, and the sandbox goes on', async () => {
      const { results, ended } = await run(uid, { maxProcesses: MAX_PROCESSES }, [
        ['./probe', 'tasks|500'],
        ['./probe', 'tasks|20'],
        ['echo', 'still here'],
      ])
      const bomb = parseAttempts(results[0]!.stdout).get('tasks|500')!
      expect(bomb).toMatchObject({ open: false, why: expect.stringMatching(/^EAGAIN \d+$/) as unknown })
      const made = Number(bomb.why.split(' ')[1])
      expect(made).toBeGreaterThanOrEqual(20)
      // The worker's own part is on top, so a bomb gets a little of what the worker does not use.
      expect(made).toBeLessThan(MAX_PROCESSES + 24)
      expect(parseAttempts(results[1]!.stdout).get('tasks|20')).toMatchObject({ open: true })
      expect(results[2]).toEqual({ exitCode: 0, stdout: 'still here\n' })
      expect(ended).toBe(false)
    })
  })

  test('memory is refused where nothing can hold it', async () => {
    await expect(run(NOBODY, { memoryLimitMb: MEMORY_MB }, [['true']])).rejects.toThrow(
      'memoryLimitMb can not be enforced',
    )
  })

  test('a program that takes too much memory is stopped, and the sandbox goes on', async (context) => {
    if (!findLimitSupport().memory) context.skip('no control group is writable here')
    const { results } = await run(0, { memoryLimitMb: MEMORY_MB }, [
      ['./probe', 'memory|40'],
      ['./probe', 'memory|300'],
      ['echo', 'still here'],
    ])
    expect(parseAttempts(results[0]!.stdout).get('memory|40')).toMatchObject({ open: true })
    expect(parseAttempts(results[1]!.stdout).get('memory|300')).toMatchObject({ open: false })
    expect(results[2]).toEqual({ exitCode: 0, stdout: 'still here\n' })
  })

  test('without a limit the same programs are not stopped', async () => {
    const { results } = await run(0, {}, [['./probe', 'tasks|500', 'memory|300']])
    expect([...parseAttempts(results[0]!.stdout).values()].map(({ open }) => open)).toEqual([true, true])
  })

  test('files in memory count too, and so do several programs together', async (context) => {
    if (!findLimitSupport().memory) context.skip('no control group is writable here')
    const { results } = await run(0, { memoryLimitMb: MEMORY_MB }, [
      ['sh', '-c', 'for each in 1 2 3 4; do head -c 80M /dev/zero > /tmp/$each || exit 1; done; echo all of it'],
      ['sh', '-c', 'head -c 300M /dev/zero > /dev/shm/all && echo all of it'],
      // What is in them stays, and must leave room: for the worker and for the next command.
      ['./probe', 'memory|20'],
      ['echo', 'still here'],
    ])
    expect(results[0]?.stdout).not.toContain('all of it')
    expect(results[1]?.stdout).not.toContain('all of it')
    expect(parseAttempts(results[2]!.stdout).get('memory|20')).toMatchObject({ open: true })
    expect(results[3]).toEqual({ exitCode: 0, stdout: 'still here\n' })
  })

  test('no control group is left behind', async (context) => {
    const { place } = findLimitSupport()
    if (place === undefined) context.skip('no control group is writable here')
    const { id } = await run(0, { memoryLimitMb: MEMORY_MB, maxProcesses: MAX_PROCESSES }, [['true']])
    for (const parent of place?.parents ?? []) expect(await fs.readdir(parent.folder)).not.toContain(`sallyport-${id}`)
  })
})
