/** Children that mean harm: to the worker's memory, its descriptors, its processes, its socket, its life. */
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { peakMemory, resetPeakMemory, startWorker, until, type StartedWorker } from './start-worker.ts'

const MB = 1024 * 1024

/** A worker is well when a command runs, and nothing of what was before is left. */
async function isWell(worker: StartedWorker): Promise<void> {
  expect(await worker.client.execute({ command: 'echo well' })).toMatchObject({ exitCode: 0, stdout: 'well\n' })
  await until(async () => (await worker.client.health()).running === 0, 'nothing runs')
}

const openDescriptors = (pid: number) => fs.readdirSync(`/proc/${pid}/fd`).length

describe('a signal', () => {
  it('opens no debugger in the worker', async () => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-said-'))
    const said = path.join(folder, 'stderr')
    try {
      await using worker = await startWorker({ wrapper: ['/bin/sh', '-c', `exec "$@" 2>${said}`, 'sh'] })
      // Long enough for Node to open it, which it says.
      await worker.client.execute({ command: `kill -USR1 ${worker.pid}; sleep 1` })
      await isWell(worker)
      expect(fs.readFileSync(said, 'utf8')).toBe('')
    } finally {
      fs.rmSync(folder, { recursive: true })
    }
  })
})

describe('a flood of output', () => {
  it('of 100 MB passes through, whole and in bounded memory on both sides', async () => {
    await using worker = await startWorker()
    await isWell(worker)
    resetPeakMemory(worker.pid)
    const ownBefore = process.memoryUsage().rss
    let ownPeak = 0
    let bytes = 0
    const command = 'head -c 100000000 /dev/zero | tr "\\\\000" "x"'
    const result = await worker.client.execute(
      { command, maxOutputBytes: 1000 },
      {
        onOutput: ({ data }) => {
          bytes += data.length
          ownPeak = Math.max(ownPeak, process.memoryUsage().rss)
        },
      },
    )
    expect(bytes).toBe(100_000_000)
    expect(result).toMatchObject({ exitCode: 0, stdoutTruncated: 99_999_000, stdout: 'x'.repeat(1000) })
    expect(peakMemory(worker.pid)).toBeLessThan(160 * MB)
    expect(ownPeak - ownBefore).toBeLessThan(160 * MB)
  }, 120_000)

  it('that goes on for ever is counted, not kept, and ends with its time', async () => {
    await using worker = await startWorker()
    resetPeakMemory(worker.pid)
    const result = await worker.client.execute({ command: 'yes >&2 & yes', timeoutMs: 1_500, maxOutputBytes: 100 })
    expect(result).toMatchObject({ timedOut: true, exitCode: 137 })
    expect(result.stdout).toHaveLength(100)
    expect(result.stdoutTruncated).toBeGreaterThan(100_000)
    expect(result.stderrTruncated).toBeGreaterThan(100_000)
    expect(peakMemory(worker.pid)).toBeLessThan(160 * MB)
    await isWell(worker)
  })

  it('to a reader that does not read stops the command, not the worker', async () => {
    await using worker = await startWorker()
    const raw = await worker.connect()
    const body = '{"command":"yes","maxOutputBytes":null}'
    raw.write(
      `POST /execute HTTP/1.1\r\nhost: w\r\nauthorization: Bearer ${worker.token}\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    )
    raw.pause()
    resetPeakMemory(worker.pid)
    for (let round = 0; round < 10; round++) await worker.client.execute({ command: 'sleep 0.1' })
    expect(peakMemory(worker.pid)).toBeLessThan(160 * MB)
    raw.destroy()
    await isWell(worker)
  })

  it('of a background process keeps its end alone', async () => {
    await using worker = await startWorker()
    resetPeakMemory(worker.pid)
    const id = await worker.client.spawn({ command: 'yes', args: [] })
    await worker.client.execute({ command: 'sleep 1.5' })
    await worker.client.signal(id, 'SIGKILL')
    const result = await worker.client.wait(id)
    expect(result.stdout.length).toBeLessThanOrEqual(MB)
    expect(result.stdoutTruncated).toBeGreaterThan(MB)
    expect(peakMemory(worker.pid)).toBeLessThan(200 * MB)
  })
})

describe('processes without end', () => {
  it('take all room there is, and the worker says so and goes on', async () => {
    const user = ['setpriv', '--reuid=54321', '--regid=54321', '--clear-groups', 'prlimit', '--nproc=60']
    try {
      execFileSync(user[0]!, [...user.slice(1), 'true'], { stdio: 'ignore' })
    } catch {
      console.log('skipped: another user needs root')
      return
    }
    await using worker = await startWorker({ wrapper: user, env: { PATH: '/usr/bin:/bin' } })
    await isWell(worker)
    let refusals = 0
    // One may fizzle out before anybody else wants a process.
    const bombs = (async () => {
      const ends: unknown[] = []
      while (refusals < 3 || ends.length === 0)
        ends.push(
          await worker.client
            .execute({ command: 'bomb() { bomb | bomb & }; bomb; sleep 1000', timeoutMs: 4_000 })
            .catch((error: unknown) => error),
        )
      return ends
    })()
    while (refusals < 3) {
      await worker.client.execute({ command: 'true', args: [] }).catch((error: unknown) => {
        expect(error).toMatchObject({
          code: 'SALLYPORT_SANDBOX_EXEC_FAILED',
          outcome: 'known',
          cause: { code: 'EAGAIN' },
        })
        refusals += 1
      })
    }
    await worker.client.writeFile('file', 'files still work')
    expect(Buffer.from(await worker.client.readFile('file')).toString()).toBe('files still work')
    // The shell gives up or is killed; either is an end that the worker saw.
    expect(await bombs).toContainEqual(expect.objectContaining({ exitCode: expect.any(Number) as number }))
    await worker.client.spawn({ command: 'true' }).catch(() => undefined)
  }, 180_000)
})

describe('descriptors', () => {
  it('that a child closes are its own, and it has no others', async () => {
    await using worker = await startWorker()
    await isWell(worker)
    const line = 'for fd in 0 1 2 3 4 5 6 7 8 9; do eval "exec $fd>&-"; done; sleep 0.1; exit 4'
    expect(await worker.client.execute({ command: line })).toMatchObject({ exitCode: 4, stdout: '' })
    const { stdout } = await worker.client.execute({ command: 'ls /proc/self/fd' })
    expect(stdout).toBe('0\n1\n2\n3\n')
    await isWell(worker)
  })

  it('are all given back', async () => {
    await using worker = await startWorker()
    const round = async () => {
      await Promise.all([
        worker.client.execute({ command: 'cat; echo x' }, { stdin: 'y' }),
        worker.client.execute({ command: 'no-such-program', args: [] }).catch(() => undefined),
        worker.client.execute({ command: 'sleep 1000', timeoutMs: 20 }),
        worker.client.writeFile('a/b', 'c').then(() => worker.client.readFile('a/b')),
        worker.client.readFile('nowhere').catch(() => undefined),
        worker.client.writeFile('/etc/nowhere', '').catch(() => undefined),
        worker.client.listFiles(),
        worker.client.spawn({ command: 'true' }).then((id) => worker.client.wait(id)),
      ])
    }
    for (let index = 0; index < 3; index++) await round()
    const before = openDescriptors(worker.pid)
    for (let index = 0; index < 8; index++) await round()
    // A batch of pipes may be in store or not.
    await until(() => openDescriptors(worker.pid) <= before + 8, `no more than ${before} descriptors are open`)
  }, 120_000)
})

describe('the socket', () => {
  it('tells nothing to who has no bearer', async () => {
    await using worker = await startWorker()
    const ask = async (head: string, body = ''): Promise<string> => {
      const socket = await worker.connect()
      let answer = ''
      socket.on('data', (chunk) => (answer += String(chunk)))
      socket.write(`${head}\r\nhost: w\r\ncontent-length: ${body.length}\r\n\r\n${body}`)
      await once(socket, 'close')
      return answer
    }
    const command = '{"command":"touch broken"}'
    for (const bearer of [
      '',
      '\r\nauthorization: Bearer ',
      `\r\nauthorization: Bearer ${'x'.repeat(48)}`,
      `\r\nauthorization: bearer ${worker.token}`,
      `\r\nauthorization: Bearer ${worker.token}x`,
    ]) {
      expect(await ask(`POST /execute HTTP/1.1${bearer}`, command)).toMatch(/^HTTP\/1\.1 401 /)
      expect(await ask(`GET /files?path=x HTTP/1.1${bearer}`)).toMatch(/^HTTP\/1\.1 401 /)
    }
    expect(await ask('GET /healthz HTTP/1.1')).toMatch(/\r\n\r\n\{"status":"ok"\}\n$/)
    expect(await ask('BREW /execute HTTP/1.1')).toBe('')
    expect(fs.readdirSync(worker.root)).toEqual([])
  })

  it('serves the host while strangers hold and churn connections', async () => {
    await using worker = await startWorker()
    const script = `
      const net = require('node:net')
      const open = () => { const s = net.connect(process.argv[1]); s.on('error', () => {}); s.on('close', () => setTimeout(open, 1)); s.write('POST /execute HTTP/1.1\\r\\n') }
      for (let i = 0; i < 600; i++) open()
      setTimeout(() => console.log('ready'), 200)`
    const attacker = spawn(process.execPath, ['-e', script, worker.socket], { stdio: ['ignore', 'pipe', 'inherit'] })
    await once(attacker.stdout, 'data')
    for (let index = 0; index < 10; index++) await isWell(worker)
    attacker.kill('SIGKILL')
    await once(attacker, 'exit')
    await until(() => openDescriptors(worker.pid) < 100, 'the connections are gone')
  })

  it('takes no request that is too large', async () => {
    await using worker = await startWorker()
    await expect(worker.client.execute({ command: 'true', args: ['x'.repeat(17 * MB)] })).rejects.toMatchObject({
      code: 'SALLYPORT_SANDBOX_EXEC_FAILED',
      cause: { code: 'too_large' },
    })
    await expect(worker.client.mkdir('x'.repeat(17 * MB))).rejects.toMatchObject({ cause: { code: 'too_large' } })
    await isWell(worker)
  })
})

describe('the bearer', () => {
  it('is in no environment, no argument and no file that a child can look at', async () => {
    await using worker = await startWorker()
    const line = `cat /proc/${worker.pid}/environ /proc/${worker.pid}/cmdline /proc/self/environ /proc/self/cmdline; cat ${worker.folder}/* 2>/dev/null; true`
    const { stdout, stderr } = await worker.client.execute({ command: line })
    expect(stdout).toContain('worker.cjs')
    expect(stdout + stderr).not.toContain(worker.token)
  })
})

describe('a worker that a child', () => {
  const lost = { code: 'SALLYPORT_SANDBOX_CONNECTION_LOST', outcome: 'unknown' }

  it('kills leaves an unknown outcome, never an exit code', async () => {
    await using worker = await startWorker()
    await expect(
      worker.client.execute({ command: `echo begun; kill -9 ${worker.pid}; sleep 1` }),
    ).rejects.toMatchObject(lost)
    await expect(worker.client.execute({ command: 'true' })).rejects.toMatchObject({
      code: lost.code,
      outcome: 'known',
    })
  })

  it('stops counts as lost when it gives no sign of life', async () => {
    await using worker = await startWorker({ silenceMs: 1_500 })
    await isWell(worker)
    await expect(worker.client.execute({ command: `kill -STOP ${worker.pid}; sleep 100` })).rejects.toMatchObject(lost)
    await expect(worker.client.stat('.')).rejects.toMatchObject(lost)
  })

  it('asks to end by a signal ends with all it started', async () => {
    await using worker = await startWorker()
    const pidFile = path.join(worker.root, 'pid')
    const line = `(setsid sh -c 'echo $$ > ${pidFile}.new; mv ${pidFile}.new ${pidFile}; exec sleep 1000' >/dev/null 2>&1 &); while ! [ -e ${pidFile} ]; do sleep 0.02; done; kill -TERM ${worker.pid}; sleep 100`
    await expect(worker.client.execute({ command: line })).rejects.toMatchObject(lost)
    const pid = Number(fs.readFileSync(pidFile, 'utf8'))
    await until(() => !fs.existsSync(`/proc/${pid}`), 'the orphan is dead')
  })

  it('impersonates gets no result believed that is no result', async () => {
    await using worker = await startWorker()
    const line = `kill -9 ${worker.pid}`
    await worker.client.execute({ command: line }).catch(() => undefined)
    fs.rmSync(worker.socket)
    const server = net
      .createServer((socket) => socket.end('HTTP/1.1 200 OK\r\n\r\n{"type":"stdout_delta","data":"done"}\n'))
      .listen(worker.socket)
    await once(server, 'listening')
    await expect(worker.client.execute({ command: 'true' })).rejects.toMatchObject(lost)
    server.close()
  })
})
