/** Pipes that are handed to a worker at its start, and what else may be open under their numbers. */
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { throughGroups } from '../../../provider/backends/through-groups.ts'
import { takeHandedPipes } from '../../../provider/worker/handed-pipes.ts'
import { startWorker, type StartedWorker } from './start-worker.ts'

const MARK = '0123456789abcdef0123456789abcdef'
const pipes = { descriptors: [6, 7, 8, 9], mark: MARK }
/** As they are handed by the product. */
const handed = throughGroups([], [], pipes)
/** Lines of a shell that leave something else open, and then the worker. */
const after = (lines: string): readonly string[] => ['sh', '-c', `${lines}\nexec "$@"`, 'sh']
const document = (descriptor: number, content = MARK): string => `exec ${descriptor}<<E\n${content}\nE\n`

/** Inodes of the pipes that a process has open, by descriptor. */
function pipesOf(pid: number | 'self'): ReadonlyMap<number, string> {
  const found = new Map<number, string>()
  for (const fd of fs.readdirSync(`/proc/${pid}/fd`).map(Number)) {
    try {
      const target = fs.readlinkSync(`/proc/${pid}/fd/${fd}`)
      if (target.startsWith('pipe:')) found.set(fd, target)
    } catch {
      // The descriptor of the list itself.
    }
  }
  return found
}

/** Of a worker: pipes that it opened for both directions, which no child inherits. */
const storedIn = (pid: number): number =>
  [...pipesOf(pid).keys()].filter((fd) =>
    /^flags:\s+02104002$|^flags:\s+02004002$/m.test(fs.readFileSync(`/proc/${pid}/fdinfo/${fd}`, 'utf8')),
  ).length

async function worksThrice({ client }: StartedWorker): Promise<void> {
  for (let round = 0; round < 3; round += 1) {
    const line = `cat; echo out${round} > /dev/stdout; echo err${round} > /dev/stderr; ls /proc/self/fd`
    expect(await client.execute({ command: line }, { stdin: 'in ' })).toMatchObject({
      exitCode: 0,
      stdout: `in out${round}\n0\n1\n2\n3\n`,
      stderr: `err${round}\n`,
    })
  }
}

describe('pipes that are handed to a worker', () => {
  it('are what the first commands write to: no shell is started for them, and no command has another one', async () => {
    await using worker = await startWorker({ wrapper: handed, pipes })
    // A shell makes seven.
    expect(storedIn(worker.pid)).toBe(4)
    await worksThrice(worker)
  })

  it('are made by the worker itself when there are none', async () => {
    await using worker = await startWorker()
    await worksThrice(worker)
  })

  it.each([
    [
      'nothing, so that Node has the numbers',
      '',
      [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21],
    ],
    ['the streams of the worker', '', [1023, 999, 3, 4]],
    ['a pipe with another mark', document(6, MARK.replace('0', '1')), [6]],
    ['a pipe with more in it', document(6, `${MARK}\nand more`), [6]],
    ['a pipe with less in it', document(6, MARK.slice(1)), [6]],
    ['an empty pipe', `exec 6<<E\nE\n`, [6]],
    ['the same pipe twice, which somebody else may read', `${document(6)}exec 7<&6`, [6, 7]],
    [
      'a file with the mark in it',
      `echo ${MARK} > "$TMPDIR/marked-$$"; exec 6< "$TMPDIR/marked-$$"; rm "$TMPDIR/marked-$$"`,
      [6],
    ],
    ['a device', 'exec 6</dev/zero', [6]],
  ])('are left where there is something else in their place: %s', async (_what, lines, descriptors) => {
    await using worker = await startWorker({
      wrapper: ['env', `TMPDIR=${os.tmpdir()}`, ...after(lines)],
      pipes: { descriptors, mark: MARK },
    })
    // Those of a shell, and none of them.
    await expect.poll(() => storedIn(worker.pid), { timeout: 20_000 }).toBe(7)
    // Signals and ends of processes come to Node by pipes of its own.
    await worksThrice(worker)
    expect((await worker.client.execute({ command: 'sleep 1000', timeoutMs: 50 })).timedOut).toBe(true)
  })

  it('leave nothing of one command in another, whoever holds on to a pipe', async () => {
    await using worker = await startWorker({ wrapper: handed, pipes })
    const go = path.join(worker.root, 'go')
    const holder = `(trap '' HUP; while [ ! -e ${go} ]; do sleep 0.01; done; while echo held; do :; done) &`
    expect(await worker.client.execute({ command: `${holder} echo first; exec >&- 2>&-` })).toMatchObject({
      stdout: 'first\n',
    })
    fs.writeFileSync(go, '')
    for (let round = 0; round < 8; round += 1)
      expect(await worker.client.execute({ command: `cat; echo ${round}; sleep 0.05` }, { stdin: 'x' })).toMatchObject({
        stdout: `x${round}\n`,
        stderr: '',
      })
  })

  it('are no way to another descriptor for a command that closes, swaps and shares its own', async () => {
    await using worker = await startWorker({ wrapper: handed, pipes })
    const swap = 'exec 3>&1 1>&2 2>&3 3>&-; echo to-err; echo to-out >&2; exec 0<&1; exec 1>&- 2>&-; exit 3'
    expect(await worker.client.execute({ command: swap })).toMatchObject({
      exitCode: 3,
      stdout: 'to-out\n',
      stderr: 'to-err\n',
    })
    const close = 'for fd in 0 1 2 3 4 5 6 7 8 9; do eval "exec $fd>&-"; done; exit 4'
    expect(await worker.client.execute({ command: close })).toMatchObject({ exitCode: 4, stdout: '', stderr: '' })
    await worksThrice(worker)
  })
})

describe('descriptors of a process that was handed nothing', () => {
  it('are none of them taken, closed or read', () => {
    const before = pipesOf('self')
    expect(before.size).toBeGreaterThan(0)
    expect(takeHandedPipes({ descriptors: [...before.keys()].filter((fd) => fd > 2), mark: MARK })).toEqual([])
    expect(pipesOf('self')).toEqual(before)
    expect(spawnSync('sh', ['-c', 'echo still'], { encoding: 'utf8' }).stdout).toBe('still\n')
  })
})
