/** One command from start to end, on a real worker. */
import fs from 'node:fs'
import { once } from 'node:events'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { WorkerOutput } from '../../../provider/worker-client.ts'
import { isAlive, startWorker, until, type StartedWorker } from './start-worker.ts'

let worker: StartedWorker
beforeAll(async () => void (worker = await startWorker()))
afterAll(async () => worker[Symbol.asyncDispose]())

const run = (command: string, more: object = {}) => worker.client.execute({ command, ...more })

async function pidIn(file: string): Promise<number> {
  const place = path.join(worker.root, file)
  await until(() => fs.existsSync(place) && /^\d+\n$/.test(fs.readFileSync(place, 'utf8')), `${file} holds a pid`)
  return Number(fs.readFileSync(place, 'utf8'))
}

describe('a command', () => {
  it('gets its arguments as they are, with no shell between', async () => {
    const args = ['%s|', 'a b', '"q"', "'", '$HOME', '`id`', '*', '', 'ü\n\t', '-n', '\\']
    expect((await worker.client.execute({ command: 'printf', args })).stdout).toBe(
      args
        .slice(1)
        .map((arg) => `${arg}|`)
        .join(''),
    )
  })

  it('without arguments is a line for the shell', async () => {
    expect(await run('echo out; echo err >&2; exit 7')).toMatchObject({
      exitCode: 7,
      stdout: 'out\n',
      stderr: 'err\n',
      timedOut: false,
    })
  })

  it.each([
    ['kill -TERM $$', 143, 'SIGTERM'],
    ['kill -9 $$', 137, 'SIGKILL'],
    ['kill -SEGV $$', 139, 'SIGSEGV'],
  ])('ended by a signal says which: %s', async (line, exitCode, signal) => {
    expect(await run(line)).toMatchObject({ exitCode, signal, timedOut: false })
  })

  it('starts in the root, or where it is told', async () => {
    fs.mkdirSync(path.join(worker.root, 'deep'), { recursive: true })
    expect((await run('pwd')).stdout).toBe(`${worker.root}\n`)
    expect((await run('pwd', { cwd: 'deep' })).stdout).toBe(`${worker.root}/deep\n`)
    expect((await run('pwd', { cwd: '/usr' })).stdout).toBe('/usr\n')
  })

  it('has the environment it is given and nothing of the worker', async () => {
    const { stdout } = await run('env', { env: { MINE: 'a=b\nc', HOME: '/elsewhere' } })
    expect(stdout).toContain('MINE=a=b\nc\n')
    expect(stdout).toContain('HOME=/elsewhere\n')
    expect(stdout).not.toContain(worker.token)
    const names = stdout.split('\n').map((line) => line.split('=')[0]!)
    // The shell adds PWD, and some add OLDPWD, SHLVL and _.
    expect(names.filter((name) => !['', 'c', 'PWD', 'OLDPWD', 'SHLVL', '_'].includes(name)).sort()).toEqual([
      'HOME',
      'MINE',
      'PATH',
      'SALLYPORT_EXEC',
    ])
  })

  it.each([
    [{ command: 'no-such-program', args: [] }, 'ENOENT', 'cannot run `no-such-program`: no such program'],
    [{ command: '/etc/passwd', args: [] }, 'EACCES', 'cannot run `/etc/passwd`: may not be executed'],
    [{ command: 'true', cwd: '/nowhere' }, 'ENOENT', 'the working folder does not exist'],
    [{ command: '' }, 'bad_request', '`command` is missing'],
    [{ command: 'true', timeoutMs: 0 }, 'bad_request', '`timeoutMs` is not a whole number from 1 to 2147483647'],
    [{ command: 'true', env: { 'A=B': '' } }, 'bad_request', '`env` has a name that is empty or holds `=` or NUL'],
    [{ command: 'a\0b' }, 'bad_request', '`command` is not a text without NUL'],
    [
      { command: 'true', args: ['x'.repeat(3_000_000)] },
      'E2BIG',
      'cannot run `true`: arguments and environment are too long',
    ],
  ])('that cannot be started is an error with a reason, and no result: %o', async (command, code, message) => {
    await expect(worker.client.execute(command)).rejects.toMatchObject({
      code: 'SALLYPORT_SANDBOX_EXEC_FAILED',
      outcome: 'known',
      message,
      cause: { code },
    })
  })

  it('can open /dev/stdin, /dev/stdout and /dev/stderr', async () => {
    const result = await worker.client.execute(
      { command: 'cat /dev/stdin > /dev/stdout; echo err > /dev/stderr; echo more >> /dev/stdout' },
      { stdin: 'in\n' },
    )
    expect(result).toMatchObject({ exitCode: 0, stdout: 'in\nmore\n', stderr: 'err\n' })
  })

  it('does not ignore SIGPIPE', async () => {
    expect((await run('yes | head -1; yes | true; echo done')).stdout).toBe('y\ndone\n')
  })

  it('runs beside nineteen others', async () => {
    const results = await Promise.all(Array.from({ length: 20 }, (_, index) => run(`echo ${index}; exit ${index}`)))
    expect(results.map(({ stdout, exitCode }) => [stdout, exitCode])).toEqual(
      results.map((_, index) => [`${index}\n`, index]),
    )
  })
})

describe('stdin', () => {
  it('is empty unless something is given', async () => {
    expect(await run('cat; readlink /proc/self/fd/0')).toMatchObject({ exitCode: 0, stdout: '/dev/null\n' })
  })

  it('carries any bytes, many of them, from a source that takes its time', async () => {
    const piece = Buffer.alloc(1024 * 1024, Buffer.from([0, 255, 10, 13, 128]))
    async function* source() {
      for (let index = 0; index < 20; index++) {
        yield piece
        await new Promise((resolve) => setImmediate(resolve))
      }
    }
    const { stdout } = await worker.client.execute({ command: 'wc -c' }, { stdin: source() })
    expect(Number(stdout)).toBe(20 * 1024 * 1024)
  })

  it('that nobody reads does not hold up the end', async () => {
    const result = await worker.client.execute(
      { command: 'exec 0<&-; echo closed' },
      { stdin: Buffer.alloc(8 * 1024 * 1024) },
    )
    expect(result).toMatchObject({ exitCode: 0, stdout: 'closed\n' })
  })

  it('whose source fails lets the caller know that, and ends the command', async () => {
    async function* source() {
      yield Buffer.from('a')
      await pidIn('fails')
      throw new RangeError('the source is dry')
    }
    const line = 'echo $$ > fails.new; mv fails.new fails; exec sleep 1000'
    await expect(worker.client.execute({ command: line }, { stdin: source() })).rejects.toThrow(
      new RangeError('the source is dry'),
    )
    const pid = await pidIn('fails')
    await until(() => !isAlive(pid), 'the command is dead')
  })
})

describe('output', () => {
  const collect = async (command: string): Promise<{ chunks: WorkerOutput[]; stdout: string }> => {
    const chunks: WorkerOutput[] = []
    const { stdout } = await worker.client.execute({ command }, { onOutput: (chunk) => chunks.push(chunk) })
    return { chunks, stdout }
  }

  it('comes as it is written', async () => {
    let seen = ''
    const go = path.join(worker.root, 'go')
    await worker.client.execute(
      { command: `printf first; while ! [ -e ${go} ]; do sleep 0.02; done; printf second` },
      {
        onOutput: ({ data }) => {
          seen += data
          if (seen === 'first') fs.writeFileSync(go, '')
        },
      },
    )
    expect(seen).toBe('firstsecond')
  })

  it('never splits a character, however it was written', async () => {
    const { chunks, stdout } = await collect(
      String.raw`for byte in '\360' '\237' '\231' '\202' '\303' '\244'; do printf "$byte"; sleep 0.03; done`,
    )
    expect(stdout).toBe('🙂ä')
    expect(chunks.map((chunk) => chunk.data)).toEqual(['🙂', 'ä'])
    expect(chunks.every((chunk) => chunk.bytes === undefined)).toBe(true)
  })

  it('keeps bytes that are not UTF-8', async () => {
    const { stdout, stdoutBytes, stderr, stderrBytes } = await run(String.raw`printf 'a\377b\300'; printf 'fine' >&2`)
    expect(Buffer.from(stdoutBytes!).toString('hex')).toBe('61ff62c0')
    expect([stdout, stderr, stderrBytes]).toEqual(['a\uFFFDb\uFFFD', 'fine', undefined])
    const { chunks } = await collect(String.raw`printf 'a\377'`)
    expect(Buffer.concat(chunks.map((chunk) => chunk.bytes!)).toString('hex')).toBe('61ff')
  })

  it('beyond the limit is counted and left out, at the end of a whole character', async () => {
    const result = await run(`printf 'äöü'; printf 'error' >&2`, { maxOutputBytes: 3 })
    expect(result).toMatchObject({ stdout: 'ä', stdoutTruncated: 4, stderr: 'err', stderrTruncated: 2, exitCode: 0 })
    expect(result.stdoutBytes).toBeUndefined()
    expect(await run(`printf abc`, { maxOutputBytes: 3 })).not.toHaveProperty('stdoutTruncated')
    expect(await run(`printf abc`, { maxOutputBytes: 0 })).toMatchObject({ stdout: '', stdoutTruncated: 3 })
  })

  it('of a process left behind is not waited for, and does not kill it', async () => {
    const line = `(sh -c 'echo $$ > left.new; mv left.new left; while :; do echo noise; sleep 0.01; done' &) ; sleep 0.2; echo end`
    const result = await run(line, { timeoutMs: 20_000 })
    expect(result.timedOut).toBe(false)
    expect(result.stdout).toContain('end\n')
    const pid = await pidIn('left')
    await run('true')
    expect(isAlive(pid)).toBe(true)
    process.kill(pid, 'SIGKILL')
  })

  it('that floods after the end is cut', async () => {
    const result = await run(`yes & echo $! > flood.new; mv flood.new flood`, { timeoutMs: 20_000 })
    expect(result).toMatchObject({ timedOut: false, exitCode: 0 })
    process.kill(await pidIn('flood'), 'SIGKILL')
  })

  it('handed to a callback that throws ends the command with its error', async () => {
    const thrown = new Error('no more')
    const line = 'echo $$ > thrower.new; mv thrower.new thrower; echo x; exec sleep 1000'
    await expect(
      worker.client.execute(
        { command: line },
        {
          onOutput: () => {
            throw thrown
          },
        },
      ),
    ).rejects.toBe(thrown)
    const pid = await pidIn('thrower')
    await until(() => !isAlive(pid), 'the command is dead')
  })
})

describe('the end of a command takes everything along', () => {
  // A child of the group, one in a session of its own, and one that left session and tree.
  const family = (name: string) => `
    sh -c 'echo $$ > ${name}-child.new; mv ${name}-child.new ${name}-child; exec sleep 1000' &
    setsid sh -c 'echo $$ > ${name}-session.new; mv ${name}-session.new ${name}-session; exec sleep 1000' &
    (setsid sh -c 'echo $$ > ${name}-orphan.new; mv ${name}-orphan.new ${name}-orphan; exec sleep 1000' &)
    echo $$ > ${name}.new; mv ${name}.new ${name}; trap '' TERM INT HUP; while :; do sleep 1000; done`
  const pids = (name: string) => Promise.all([name, `${name}-child`, `${name}-session`, `${name}-orphan`].map(pidIn))
  const allGone = async (all: readonly number[]) => until(() => !all.some(isAlive), 'all of it is dead')

  it('on a time-out', async () => {
    const running = run(family('late'), { timeoutMs: 3_000 })
    const all = await pids('late')
    expect(await running).toMatchObject({ timedOut: true, exitCode: 137, signal: 'SIGKILL' })
    await allGone(all)
  })

  it('on an abort, before the call rejects, with the reason of the signal', async () => {
    const controller = new AbortController()
    const reason = new Error('changed my mind')
    const running = worker.client.execute({ command: family('aborted') }, { signal: controller.signal })
    running.catch(() => undefined)
    const all = await pids('aborted')
    controller.abort(reason)
    await expect(running).rejects.toBe(reason)
    expect(all.filter(isAlive)).toEqual([])
  })

  it('when it is cancelled by id', async () => {
    const raw = await worker.connect()
    const body = JSON.stringify({ command: family('cancelled'), id: 'mine' })
    const send = (socket: typeof raw, head: string, text = '') =>
      socket.write(
        `${head} HTTP/1.1\r\nhost: w\r\nauthorization: Bearer ${worker.token}\r\ncontent-length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
      )
    send(raw, 'POST /execute', body)
    let events = ''
    raw.on('data', (chunk) => (events += String(chunk)))
    const all = await pids('cancelled')
    const other = await worker.connect()
    send(other, 'DELETE /execute/mine')
    const [answer] = (await once(other, 'data')) as [Buffer]
    expect(String(answer)).toMatch(/^HTTP\/1\.1 204 /)
    expect(all.filter(isAlive)).toEqual([])
    await once(raw, 'close')
    expect(events).toContain('"exitCode":137')
    expect(events).toContain('"cancelled":true')
  })

  it('when its caller goes away', async () => {
    const raw = await worker.connect()
    const body = JSON.stringify({ command: family('lonely') })
    raw.write(
      `POST /execute HTTP/1.1\r\nhost: w\r\nauthorization: Bearer ${worker.token}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
    )
    const all = await pids('lonely')
    raw.destroy()
    await allGone(all)
    await until(async () => (await worker.client.health()).running === 0, 'nothing runs')
  })

  it('but not what carries the mark of another command', async () => {
    const other = run('echo $$ > other.new; mv other.new other; exec sleep 2.5')
    const pid = await pidIn('other')
    await run('sleep 1000', { timeoutMs: 50 })
    expect(isAlive(pid)).toBe(true)
    expect((await other).exitCode).toBe(0)
  })

  it('and a signal that was raised before sends nothing at all', async () => {
    const signal = AbortSignal.abort(new Error('too late'))
    await expect(worker.client.execute({ command: 'touch never' }, { signal })).rejects.toThrow('too late')
    expect(fs.existsSync(path.join(worker.root, 'never'))).toBe(false)
  })
})
