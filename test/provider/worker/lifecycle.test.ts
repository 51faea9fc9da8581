/** How a worker starts, what it carries, and how it ends. */
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { workerFile } from '../../../provider/worker-file.ts'
import { isAlive, startWorker, until } from './start-worker.ts'

const settings = (folder: string, more: object = {}) => ({
  token: 'marker-token-that-no-output-may-hold-0123',
  listen: { path: path.join(folder, 'w.sock') },
  roots: [{ path: folder, writable: true }],
  ...more,
})

const MARK = '0123456789abcdef0123456789abcdef'

async function inFolder(action: (folder: string) => Promise<void>): Promise<void> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-worker-'))
  try {
    await action(folder)
  } finally {
    fs.rmSync(folder, { recursive: true })
  }
}

describe('the settings', () => {
  it('in a file are read once and removed', () =>
    inFolder(async (folder) => {
      const file = path.join(folder, 'settings.json')
      fs.writeFileSync(file, JSON.stringify(settings(folder, { announce: true })))
      const child = spawn(process.execPath, [await workerFile(), file], { stdio: ['ignore', 'pipe', 'inherit'] })
      expect(String(((await once(child.stdout, 'data')) as [Buffer])[0])).toBe('ready\n')
      expect(fs.existsSync(file)).toBe(false)
      expect(fs.statSync(path.join(folder, 'w.sock')).mode & 0o777).toBe(0o600)
      const gone = once(child, 'exit')
      child.kill('SIGTERM')
      expect(await gone).toEqual([0, null])
    }))

  it.each([
    ['{', 'the settings are not JSON'],
    ['[]', '`settings` is not an object'],
    ['{}', '`token` is not 32 or more visible ASCII characters'],
    [{ token: 'marker-short' }, '`token` is not 32 or more visible ASCII characters'],
    [{ listen: 5 }, '`listen` is not an object'],
    [{ roots: [] }, 'there must be a root'],
    [{ roots: {} }, '`roots` is not a list'],
    [{ roots: [{ path: '/nowhere/at/all' }] }, 'ENOENT'],
    [{ probe: 5 }, '`probe` is not an object'],
    [{ probe: { tcp: [], udp: [], gateway: { host: 'a.example', port: 1 } } }, 'a target is an address and a port'],
    [{ timeToLiveMs: -1 }, '`timeToLiveMs` is not a whole number'],
    [{ env: { A: 5 } }, '`env` has a value that is not a text'],
    [{ forward: [{ host: '127.0.0.1', port: 1 }] }, '`path` is missing'],
    [{ forward: [{ host: '192.0.2.1', port: 1, path: '/a' }] }, 'EADDRNOTAVAIL'],
    [{ listen: { path: '/nowhere/at/all.sock' } }, 'EACCES'],
    [{ pipes: [] }, '`pipes` is not an object'],
    [{ pipes: { descriptors: 6, mark: MARK } }, '`descriptors` is not a list'],
    [{ pipes: { descriptors: [2], mark: MARK } }, '`descriptors` holds something else than numbers from 3 to 1023'],
    [{ pipes: { descriptors: ['6'], mark: MARK } }, '`descriptors` holds something else'],
    [{ pipes: { descriptors: [6] } }, '`mark` is missing'],
    [{ pipes: { descriptors: [6], mark: `${MARK}0` } }, '`mark` is not 32 hexadecimal digits'],
  ])('that are wrong stop the start in one line that does not quote them: %j', (wrong, message) =>
    inFolder(async (folder) => {
      const input = typeof wrong === 'string' ? wrong : JSON.stringify(settings(folder, wrong))
      const { status, stdout, stderr } = spawnSync(process.execPath, [await workerFile(), '-'], {
        input,
        encoding: 'utf8',
      })
      expect([status, stdout]).toEqual([1, ''])
      expect(stderr).toContain(`worker: ${message}`.replace(/^worker: (?=E[A-Z]+$)/, ''))
      expect(stderr.trim().split('\n')).toHaveLength(1)
      expect(stderr).not.toContain('marker')
    }),
  )

  it('may be changed later: environment and time', async () => {
    await using worker = await startWorker({ env: { PATH: '/usr/bin:/bin', OLD: '1' } })
    await worker.client.configure({ env: { NEW: '2' } })
    const { stdout } = await worker.client.execute({ command: 'echo "$OLD|$NEW"; true | cat' })
    expect(stdout).toBe('|2\n')
    await expect(worker.client.configure({ env: { '': 'x' } })).rejects.toMatchObject({
      code: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
    })
    const gone = once(worker.process, 'exit')
    await worker.client.configure({ timeToLiveMs: 200 })
    expect(await gone).toEqual([0, null])
  })

  it('decide whether children get what the worker itself was given', async () => {
    await using worker = await startWorker({
      inheritEnv: true,
      env: { MINE: '1' },
      wrapper: ['env', 'IMAGE=of the image', 'NODE_OPTIONS=--no-warnings'],
    })
    const { stdout } = await worker.client.execute({ command: 'echo "$MINE|$IMAGE|$NODE_OPTIONS"' })
    expect(stdout).toBe('1|of the image|\n')
  })
})

describe('what it is given at its start', () => {
  const TARGETS = [
    { host: '192.0.2.1', port: 443 },
    { host: '2001:db8::1', port: 443 },
  ]
  /** The line that a worker begins with. */
  async function firstLine(program: readonly [string, ...string[]], order: object): Promise<string> {
    const [command, ...args] = program
    const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] })
    child.stdin.write(`${JSON.stringify(order)}\n`)
    const [line] = (await once(child.stdout, 'data')) as [Buffer]
    const gone = once(child, 'exit')
    child.stdin.end()
    await gone
    return String(line)
  }

  it('to look for is looked for, and told behind `ready`', () =>
    inFolder(async (folder) => {
      const gateway = net.createServer((socket) => {
        socket.once('data', () => socket.end('HTTP/1.1 403 Forbidden\r\nx-deny-reason: host_not_allowed\r\n\r\n'))
      })
      gateway.listen(path.join(folder, 'gateway.sock'))
      await once(gateway, 'listening')
      const order = settings(folder, {
        announce: true,
        endWithStdin: true,
        forward: [{ host: '127.0.0.1', port: 3128, path: path.join(folder, 'gateway.sock') }],
        probe: { tcp: TARGETS, udp: TARGETS, gateway: { host: '127.0.0.1', port: 3128 }, destination: '0.0.0.0:1' },
      })
      const alone = [
        'bwrap',
        '--unshare-net',
        '--dev-bind',
        '/',
        '/',
        process.execPath,
        await workerFile(),
        '-',
      ] as const
      const [word, ...report] = (await firstLine([...alone], order)).split(' ')
      expect(word).toBe('ready')
      expect(JSON.parse(report.join(' '))).toEqual({
        tcp: ['ENETUNREACH', 'no_device'],
        udp: ['no_device', 'no_device'],
        gateway: { status: 403, reason: 'host_not_allowed' },
      })
      gateway.close()
    }))

  it('datagrams and IPv6 are tried where there is another device than loopback', () =>
    inFolder(async (folder) => {
      const probe = {
        tcp: TARGETS,
        udp: [{ host: '127.0.0.1', port: 9 }, ...TARGETS],
        gateway: { host: '127.0.0.1', port: 1 },
        destination: '0.0.0.0:1',
      }
      const order = settings(folder, { announce: true, endWithStdin: true, probe })
      const script = 'ip link add other type veth && ip link set lo up && exec "$@"'
      const program = ['unshare', '--net', 'sh', '-c', script, 'sh', process.execPath, await workerFile(), '-'] as const
      const line = await firstLine([...program], order)
      expect(JSON.parse(line.slice('ready '.length))).toMatchObject({
        tcp: ['ENETUNREACH', 'ENETUNREACH'],
        udp: ['connected', 'ENETUNREACH', 'ENETUNREACH'],
        gateway: { error: 'ECONNREFUSED' },
      })
    }))

  it('a way out that only IPv6 has is found', () =>
    inFolder(async (folder) => {
      const probe = { tcp: TARGETS, udp: TARGETS, gateway: { host: '127.0.0.1', port: 1 }, destination: '0.0.0.0:1' }
      const order = settings(folder, { announce: true, endWithStdin: true, probe })
      const script = [
        'ip link add other type veth peer name peer',
        'ip link set lo up && ip link set other up && ip link set peer up',
        'ip addr add 2001:db8::2/64 dev other nodad',
        'exec "$@"',
      ].join(' && ')
      const program = ['unshare', '--net', 'sh', '-c', script, 'sh', process.execPath, await workerFile(), '-'] as const
      const line = await firstLine([...program], order)
      const report = JSON.parse(line.slice('ready '.length)) as { tcp: string[]; udp: string[] }
      expect([report.tcp[0], ...report.udp]).toEqual(['ENETUNREACH', 'ENETUNREACH', 'connected'])
      // Nobody is there to answer, which is not what a closed way says.
      expect(['timeout', 'EHOSTUNREACH']).toContain(report.tcp[1])
    }))

  it.each([
    ['--unshare-net', ['a.example', '192.0.2', '2001:db8::g', 'fe80::1%lo', '::1 ', '[::1]', 'a:b.example']],
    ['--share-net', ['a.example', '192.0.2', '2001:db8::g', '[::1]', 'a:b.example', ':::', '1:2']],
  ])('%s: what is no address is not looked for', (network, hosts) =>
    inFolder(async (folder) => {
      for (const host of hosts) {
        const gateway = { host: '127.0.0.1', port: 1 }
        const probe = { tcp: [{ host, port: 1 }], udp: [], gateway, destination: '0.0.0.0:1' }
        const input = JSON.stringify(settings(folder, { announce: true, probe }))
        const wall = ['bwrap', '--unshare-user', network, '--dev-bind', '/', '/', process.execPath] as const
        const [program, ...args] = [...wall, await workerFile(), '-'] as const
        const { status, stdout, stderr } = spawnSync(program, args, { input, encoding: 'utf8' })
        expect([host, status, stdout, stderr]).toEqual([host, 1, '', 'worker: a target is an address and a port\n'])
      }
    }),
  )
})

describe('the end', () => {
  it('comes with the time to live, for everything', async () => {
    await using worker = await startWorker({ timeToLiveMs: 2_000 })
    const gone = once(worker.process, 'exit')
    const id = await worker.client.spawn({ command: 'echo $$; exec sleep 1000' })
    let pid = 0
    for await (const { data } of worker.client.output(id)) {
      pid = Number(data)
      break
    }
    expect(await gone).toEqual([0, null])
    await until(() => !isAlive(pid), 'the process is dead')
  })

  it('comes when stdin ends, if told so', async () => {
    await using worker = await startWorker({ endWithStdin: true })
    const gone = once(worker.process, 'exit')
    worker.process.stdin!.end()
    expect(await gone).toEqual([0, null])
  })

  it('leaves room for the next on the same socket', async () => {
    await using worker = await startWorker()
    worker.process.kill('SIGKILL')
    await once(worker.process, 'exit')
    expect(fs.existsSync(worker.socket)).toBe(true)
    await using next = await startWorker({ listen: { path: worker.socket, mode: 0o666 } })
    expect(fs.statSync(worker.socket).mode & 0o777).toBe(0o666)
    expect(await worker.client.health().catch((error: unknown) => error)).toMatchObject({
      code: 'SALLYPORT_SANDBOX_CONNECTION_LOST',
    })
    expect(next.pid).toBeGreaterThan(0)
  })
})

describe('as the first process of its namespace', () => {
  const unshare = ['unshare', '--pid', '--fork', '--mount-proc', '--kill-child']

  it('it leaves no zombies', async () => {
    if (spawnSync(unshare[0]!, [...unshare.slice(1), 'true']).status !== 0) {
      console.log('skipped: a pid namespace needs root')
      return
    }
    await using worker = await startWorker({ wrapper: unshare, announce: true })
    await worker.client.execute({
      command: 'for i in 1 2 3 4 5; do (setsid sh -c "sleep 0.1; exit" >/dev/null 2>&1 &); done; sleep 0.1',
    })
    await until(async () => {
      const { stdout } = await worker.client.execute({ command: 'cat /proc/[0-9]*/stat' })
      const states = stdout
        .trim()
        .split('\n')
        .map((line) => /\) (\S)/.exec(line)![1])
      return states.length <= 4 && !states.includes('Z')
    }, 'all orphans are waited for')
    expect(worker.pid).toBeGreaterThan(1)
  })

  it('it ends with the status of the worker, and on a signal', async () => {
    if (spawnSync(unshare[0]!, [...unshare.slice(1), 'true']).status !== 0) return
    const broken = spawnSync(unshare[0]!, [...unshare.slice(1), process.execPath, await workerFile(), '-'], {
      input: '{',
      encoding: 'utf8',
    })
    expect([broken.status, broken.stderr]).toEqual([1, 'worker: the settings are not JSON\n'])
    await using worker = await startWorker({ wrapper: unshare })
    const init = Number(
      fs.readFileSync(`/proc/${worker.process.pid!}/task/${worker.process.pid!}/children`, 'utf8').trim(),
    )
    const gone = once(worker.process, 'exit')
    process.kill(init, 'SIGTERM')
    await gone
    expect(isAlive(init)).toBe(false)
  })
})

describe('the way to the gateway', () => {
  async function gatewayAt(folder: string, serve: (socket: net.Socket) => void): Promise<string> {
    const place = path.join(folder, 'gateway.sock')
    const server = net.createServer({ allowHalfOpen: true }, serve).listen(place)
    await once(server, 'listening')
    server.unref()
    return place
  }
  const freePort = async (): Promise<number> => {
    const server = net.createServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as net.AddressInfo
    server.close()
    await once(server, 'close')
    return port
  }

  it('carries bytes both ways, and each side’s end by itself', () =>
    inFolder(async (folder) => {
      const port = await freePort()
      let got = ''
      const place = await gatewayAt(folder, (socket) => {
        socket.on('data', (chunk) => (got += String(chunk)))
        socket.on('end', () => socket.end(`echo ${got}`))
      })
      await using worker = await startWorker({ forward: [{ host: '127.0.0.1', port, path: place }] })
      expect(worker.pid).toBeGreaterThan(0)
      const client = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true })
      client.end('hello')
      let answer = ''
      client.on('data', (chunk) => (answer += String(chunk)))
      await once(client, 'close')
      expect(answer).toBe('echo hello')
    }))

  it('carries 100 MB in bounded memory, however slow the reader', () =>
    inFolder(async (folder) => {
      const port = await freePort()
      const piece = Buffer.alloc(1024 * 1024, 7)
      const place = await gatewayAt(folder, (socket) => {
        let left = 100
        const more = (): void => {
          while (left > 0 && socket.write(piece)) left -= 1
          if (left <= 0) socket.end()
          else left -= 1
        }
        socket.on('drain', more).on('error', () => undefined)
        more()
      })
      await using worker = await startWorker({ forward: [{ host: '127.0.0.1', port, path: place }] })
      const client = net.connect({ port, host: '127.0.0.1' })
      let bytes = 0
      for await (const chunk of client as AsyncIterable<Buffer>) bytes += chunk.length
      expect(bytes).toBeGreaterThanOrEqual(100 * 1024 * 1024)
      expect(Number(/VmHWM:\s+(\d+)/.exec(fs.readFileSync(`/proc/${worker.pid}/status`, 'utf8'))![1])).toBeLessThan(
        160 * 1024,
      )
    }))

  it('closes at once when nobody is there, and opens again when somebody is', () =>
    inFolder(async (folder) => {
      const port = await freePort()
      const place = path.join(folder, 'gateway.sock')
      await using worker = await startWorker({ forward: [{ host: '127.0.0.1', port, path: place }] })
      const refused = net.connect({ port, host: '127.0.0.1' })
      await once(refused, 'close').catch(() => undefined)
      await gatewayAt(folder, (socket) => socket.end('here'))
      const served = net.connect({ port, host: '127.0.0.1' })
      expect(String(((await once(served, 'data')) as [Buffer])[0])).toBe('here')
      expect(await worker.client.execute({ command: 'true' })).toMatchObject({ exitCode: 0 })
    }))

  it('cuts the gateway’s side when a child is killed, and the child’s when the gateway goes', () =>
    inFolder(async (folder) => {
      const port = await freePort()
      const upstream: net.Socket[] = []
      const place = await gatewayAt(
        folder,
        (socket) => void upstream.push(socket.on('error', () => undefined).resume()),
      )
      await using worker = await startWorker({ forward: [{ host: '127.0.0.1', port, path: place }] })
      expect(worker.pid).toBeGreaterThan(0)
      const child = net.connect({ port, host: '127.0.0.1' }).on('error', () => undefined)
      await until(() => upstream.length === 1, 'the connection has arrived')
      child.resetAndDestroy()
      await once(upstream[0]!, 'end')
      const other = net
        .connect({ port, host: '127.0.0.1' })
        .on('error', () => undefined)
        .resume()
      await until(() => upstream.length === 2, 'the connection has arrived')
      upstream[1]!.destroy()
      await once(other, 'close')
    }))
})

it('the bundle needs nothing but Node', async () => {
  const source = fs.readFileSync(await workerFile(), 'utf8')
  const required = [...source.matchAll(/require\("([^"]+)"\)/g)].map(([, name]) => name!)
  expect(required.filter((name) => !name.startsWith('node:'))).toEqual([])
  expect(() => execFileSync(process.execPath, ['--check', '-'], { input: source })).not.toThrow()
})
