/** The pipes of a sandbox's first commands, which the host's shell makes: nobody but the worker keeps them. */
import fs from 'node:fs'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { readRecord } from '../../../provider/backends/process-record.ts'
import { describeNeeding } from '../needs.ts'
import { createTestBackend, type TestBackend, type TestSandbox } from './sandboxes.ts'

vi.setConfig({ testTimeout: 60_000 })

/** Inodes of the pipes that a process of this machine has open; none when it is gone. */
function pipesOf(pid: number): readonly string[] {
  try {
    const folder = `/proc/${pid}/fd`
    return fs
      .readdirSync(folder)
      .map((fd) => fs.readlinkSync(`${folder}/${fd}`))
      .filter((target) => target.startsWith('pipe:'))
  } catch {
    return []
  }
}

const childrenOf = (pid: number): readonly number[] =>
  fs.readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').map(Number)

/** Of the host. */
async function workerOf({ runtimeFolder }: TestSandbox): Promise<number> {
  const { pid } = (await readRecord(runtimeFolder))!
  return childrenOf(pid)[0]!
}

describeNeeding(['bubblewrap', 'root'], 'the pipes that a sandbox is given', () => {
  let backend: TestBackend
  beforeEach(async () => (backend = await createTestBackend()))
  afterEach(() => backend.close())

  test('are four, and no other process has one of them', async () => {
    const sandbox = await backend.start()
    const worker = await workerOf(sandbox)
    const pipes = pipesOf(worker)
    const stored = pipes.filter((pipe) => pipes.indexOf(pipe) === pipes.lastIndexOf(pipe))
    expect(stored).toHaveLength(4)
    const others = fs
      .readdirSync('/proc')
      .map(Number)
      .filter((pid) => Number.isInteger(pid) && pid !== worker)
    await expect.poll(() => others.flatMap(pipesOf).filter((pipe) => stored.includes(pipe))).toEqual([])
  })

  test('are not those of another sandbox, and hold nothing but what the command writes', async () => {
    const [one, other] = [await backend.start(), await backend.start()]
    const [mine, theirs] = [pipesOf(await workerOf(one)), pipesOf(await workerOf(other))]
    expect(mine.filter((pipe) => theirs.includes(pipe))).toEqual([])
    expect(
      await one.client.execute({ command: 'cat; ls /proc/self/fd; echo e > /dev/stderr' }, { stdin: 'in ' }),
    ).toMatchObject({
      stdout: 'in 0\n1\n2\n3\n',
      stderr: 'e\n',
    })
  })

  test('stay the first command’s when it leaves somebody behind who goes on writing', async () => {
    const sandbox = await backend.start()
    const holder = '(setsid sh -c "until [ -e /tmp/go ]; do sleep 0.01; done; while echo held; do :; done" &)'
    expect(await sandbox.shell(`${holder}; echo first`)).toBe('first\n')
    for (let round = 0; round < 5; round += 1)
      expect(await sandbox.shell(`touch /tmp/go; echo ${round} > /dev/stdout; sleep 0.05`)).toBe(`${round}\n`)
  })
})
