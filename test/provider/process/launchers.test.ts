/** The shell that waits to become the next sandbox: whose it is, what it can be told, and when it ends. */
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { promisify } from 'node:util'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { createLaunchers, type Launchers } from '../../../provider/backends/launchers.ts'
import { readRecord } from '../../../provider/backends/process-record.ts'
import { describeNeeding } from '../needs.ts'
import { createTestBackend, type TestBackend, type TestSandbox } from './sandboxes.ts'

vi.setConfig({ testTimeout: 60_000 })
const POLL = { timeout: 30_000 }
const MODULE = path.resolve(import.meta.dirname, '../../../provider/backends/launchers.ts')

/** Shells that `host` started and that wait: they have no words yet. */
function waitingOf(host: number): readonly number[] {
  return fs
    .readdirSync('/proc')
    .map(Number)
    .filter((pid) => {
      try {
        const [, parent] = fs.readFileSync(`/proc/${pid}/stat`, 'latin1').split(') ')[1]?.split(' ') ?? []
        return Number(parent) === host && /\0sallyport\0$/.test(fs.readFileSync(`/proc/${pid}/cmdline`, 'latin1'))
      } catch {
        return false
      }
    })
}

async function oneWaiting(host: number): Promise<number> {
  await expect.poll(() => waitingOf(host), POLL).toHaveLength(1)
  return waitingOf(host)[0]!
}

const ends = (pid: number): Promise<void> => expect.poll(() => fs.existsSync(`/proc/${pid}`), POLL).toBe(false)

/** What a process that waited, and one that did not, write when they are told to run something. */
async function bothWays(command: readonly string[], groups: readonly string[] = []): Promise<readonly string[]> {
  const launchers = createLaunchers()
  try {
    const said: string[] = []
    for (const isAhead of [true, false]) {
      if (isAhead) {
        launchers.prepare()
        await oneWaiting(process.pid)
      }
      const { child } = launchers.launch(groups, command)
      child.stdin?.write('the input that follows\n')
      const [out] = await Promise.all([text(child.stdout!), once(child, 'exit')])
      said.push(out)
    }
    return said
  } finally {
    launchers.close()
  }
}

describe('a shell that waits', () => {
  let launchers: Launchers
  let folder: string
  beforeEach(() => {
    launchers = createLaunchers()
    folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spl-'))
  })
  afterEach(() => {
    launchers.close()
    fs.rmSync(folder, { recursive: true })
  })

  test.each([
    ['spaces', [' a  b ', '', '\t', ' ']],
    [
      'what a shell would read',
      ['$(touch broken)', '`touch broken`', '"; touch broken; "', "'", '\\', '\\n', '*', '-e'],
    ],
    ['a line feed', ['a\ntouch broken\n', 'b']],
    ['other characters', ['é', '日本', '\u{1f600}', '\x01\x7f']],
  ])('takes words as they are: %s', async (_what, words) => {
    const print = `printf '<%s>' "$@"; read -r rest; printf '%s' "$rest"`
    const expected = `${words.map((word) => `<${word}>`).join('')}the input that follows`
    expect(await bothWays(['sh', '-c', `cd ${folder} && ${print}`, 'sh', ...words])).toEqual([expected, expected])
    expect(fs.readdirSync(folder)).toEqual([])
  })

  test('enters its groups first, and runs nothing when it can not', async () => {
    const group = path.join(folder, 'tasks')
    fs.writeFileSync(group, '')
    expect(await bothWays(['cat', group], [group])).toEqual(['0\n', '0\n'])
    expect(await bothWays(['echo', 'outside'], [path.join(folder, 'absent/tasks')])).toEqual(['', ''])
  })

  test('has nothing of this process: no variable but PATH, no descriptor but streams and pipes', async () => {
    process.env['MARKER'] = 'marker-of-the-host'
    const secret = fs.openSync(path.join(folder, 'secret'), 'w')
    launchers.prepare()
    const pid = await oneWaiting(process.pid)
    delete process.env['MARKER']
    fs.closeSync(secret)
    expect(fs.readFileSync(`/proc/${pid}/environ`, 'latin1')).toMatch(/^PATH=[^\0]*\0$/)
    const open = fs.readdirSync(`/proc/${pid}/fd`).map((fd) => fs.readlinkSync(`/proc/${pid}/fd/${fd}`))
    expect(open.filter((target) => !/^(socket|pipe):/.test(target))).toEqual([])
  })

  test('is one, however often it is asked for, and is not there again once it was used', async () => {
    for (let time = 0; time < 3; time += 1) launchers.prepare()
    const pid = await oneWaiting(process.pid)
    launchers.prepare()
    const { child } = launchers.launch([], ['true'])
    expect(child.pid).toBe(pid)
    await once(child, 'exit')
    expect(waitingOf(process.pid)).toEqual([])
  })

  test('that somebody killed is not used', async () => {
    launchers.prepare()
    const pid = await oneWaiting(process.pid)
    process.kill(pid, 'SIGKILL')
    await ends(pid)
    const { child } = launchers.launch([], ['echo', 'done'])
    expect(await text(child.stdout!)).toBe('done\n')
    expect(child.pid).not.toBe(pid)
  })

  test('ends with its owner, and when it is not needed any more', async () => {
    launchers.prepare()
    const pid = await oneWaiting(process.pid)
    launchers.close()
    await ends(pid)
    launchers.prepare()
    const { child } = launchers.launch([], ['true'])
    await once(child, 'exit')
    expect(waitingOf(process.pid)).toEqual([])
  })

  test('ends with the process that started it, and is no reason for that to go on', async () => {
    const start = `const { createLaunchers } = await import(${JSON.stringify(MODULE)}); const launchers = createLaunchers(); launchers.prepare(); setTimeout(() => console.log('waits'), 500)`
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', start])
    expect(stdout).toBe('waits\n')
    const host = spawn(process.execPath, ['--input-type=module', '-e', `${start}; setInterval(() => undefined, 1000)`])
    const pid = await oneWaiting(host.pid ?? 0)
    host.kill('SIGKILL')
    await ends(pid)
  })
})

describeNeeding(['bubblewrap', 'root'], 'a sandbox that begins in a shell that waited', () => {
  let backend: TestBackend
  beforeEach(async () => (backend = await createTestBackend()))
  afterEach(() => backend.close())

  /** The process of this machine that bubblewrap is. */
  async function wallOf({ runtimeFolder }: TestSandbox): Promise<number> {
    const { pid } = (await readRecord(runtimeFolder))!
    return Number(fs.readFileSync(`/proc/${pid}/stat`, 'latin1').split(') ')[1]?.split(' ')[1])
  }

  test('is as any other, and in its own group alone', async () => {
    await backend.start()
    const pid = await oneWaiting(process.pid)
    const sandbox = await backend.start({ maxProcesses: 40 })
    expect(await wallOf(sandbox)).toBe(pid)
    expect(await sandbox.shell('echo out; echo err > /dev/stderr; ulimit -c')).toBe('out\n0\nerr\n')
    const { cgroups } = (await readRecord(sandbox.runtimeFolder))!
    for (const group of cgroups) expect(fs.readFileSync(path.join(group, 'cgroup.procs'), 'utf8')).toContain(`${pid}\n`)
    await sandbox.close()
    await ends(pid)
  })

  test('nothing waits once the backend is closed', async () => {
    await backend.start()
    const pid = await oneWaiting(process.pid)
    await backend.close()
    await ends(pid)
  })
})
