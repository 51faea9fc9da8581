/** The life of a sandbox behind bubblewrap: what it is given, how it ends, what it leaves behind. */
import { execFile, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import fs from 'node:fs/promises'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { createProcessBackend } from '../../../provider/backends/process.ts'
import { findBubblewrap } from '../../../provider/backends/bubblewrap-check.ts'
import { createSandboxProvider } from '../../../provider/index.ts'
import { findLimitSupport } from '../../../provider/backends/limits.ts'
import { describeNeeding } from '../needs.ts'
import type { OneOrder } from './one-driver.ts'
import { createTestBackend, type TestBackend } from './sandboxes.ts'

vi.setConfig({ testTimeout: 60_000 })

async function commandLines(): Promise<readonly string[]> {
  const { stdout } = await promisify(execFile)('ps', ['-eo', 'args'])
  return stdout.split('\n')
}

/** Of this machine, by the ids of sandboxes: control groups and mounts. */
async function leftOf(id: string): Promise<readonly string[]> {
  const groups = (findLimitSupport().place?.parents ?? []).map(({ folder }) => path.join(folder, `sallyport-${id}`))
  const mounts = (await fs.readFile('/proc/self/mountinfo', 'utf8')).split('\n')
  return [...groups.filter((group) => existsSync(group)), ...mounts.filter((mount) => mount.includes(id))]
}

describeNeeding(['bubblewrap'], 'sandboxes behind bubblewrap', () => {
  let backend: TestBackend
  beforeEach(async () => (backend = await createTestBackend()))
  afterEach(() => backend.close())

  test('commands have a user, a home, a private /tmp and a working folder, and nothing of the host', async () => {
    vi.stubEnv('SECRET_OF_THE_HOST', 'marker-secret')
    const sandbox = await backend.start({
      env: { ADDED: 'by the caller' },
      workerToken: `marker-bearer-${'x'.repeat(30)}`,
    })
    vi.unstubAllEnvs()
    expect(await sandbox.shell('id -un; pwd; echo ~; hostname; echo $ADDED; ls /tmp')).toBe(
      'sandbox\n/workspace\n/workspace\nsandbox\nby the caller\n',
    )
    expect(await sandbox.shell('cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline')).not.toContain('marker-')
    // Not even where on the host it lives.
    expect(await sandbox.shell('cat /proc/[0-9]*/cmdline')).not.toContain(backend.runtimeRoot)
    expect(await sandbox.shell('getent hosts example.com; echo $?')).toBe('2\n')
  })

  test('files of the working folder are the host’s, with its user', async () => {
    const sandbox = await backend.start()
    await sandbox.shell('echo inside > made; mkdir folder')
    const made = path.join(sandbox.runtimeFolder, 'work/made')
    expect(await fs.readFile(made, 'utf8')).toBe('inside\n')
    expect((await fs.stat(made)).uid).toBe(process.getuid?.())
  })

  test('a program finds its libraries, its certificates, its names of users and its terminal', async () => {
    const sandbox = await backend.start()
    expect(
      await sandbox.shell(
        'awk "BEGIN { print 6 * 7 }"; test -s /etc/ssl/certs/ca-certificates.crt || test ! -e /usr/share/ca-certificates; echo $?',
      ),
    ).toBe('42\n0\n')
    expect(
      await sandbox.shell(
        'echo x > /dev/null && head -c 1 /dev/urandom | wc -c; echo ok > /dev/shm/x && cat /dev/shm/x',
      ),
    ).toBe('1\nok\n')
    const node = await sandbox.client.execute({
      command: '/run/sallyport/bin/node',
      args: ['-p', 'Object.keys(os.networkInterfaces()).join()'],
    })
    expect(node).toMatchObject({ exitCode: 0, stdout: 'lo\n' })
  })

  test('the gateway answers at 127.0.0.1:3128, also when its socket is made anew', async () => {
    const sandbox = await backend.start()
    const ask = 'exec 3<>/dev/tcp/127.0.0.1/3128; echo hello >&3; cat <&3'
    for (const answer of ['first', 'second']) {
      const server = net.createServer((socket) =>
        socket.on('error', () => undefined).once('data', () => socket.end(answer)),
      )
      await new Promise<void>((resolve) =>
        server.listen(path.join(sandbox.runtimeFolder, 'egress/gateway.sock'), resolve),
      )
      expect((await sandbox.client.execute({ command: 'bash', args: ['-c', ask] })).stdout).toBe(answer)
      await new Promise((resolve) => server.close(resolve))
    }
  })

  test('a working folder and mounts of the caller’s', async () => {
    const host = await fs.realpath(await fs.mkdtemp(path.join(os.tmpdir(), 'spf-')))
    await fs.mkdir(path.join(host, 'data'))
    await fs.mkdir(path.join(host, 'project'))
    const mine = await createTestBackend({
      workingFolder: path.join(host, 'project'),
      mounts: [{ hostPath: path.join(host, 'data'), path: '/data' }],
    })
    const sandbox = await mine.start()
    expect(sandbox.started.rootDir).toBe(path.join(host, 'project'))
    expect(await sandbox.shell(`pwd; echo x > made; echo x > /data/made; ls ${host}`)).toMatch(
      /^.*\/project\nproject\n.*data\/made.*Read-only file system\n$/s,
    )
    expect(await fs.readdir(path.join(host, 'project'))).toEqual(['made'])
    await mine.close()
    await fs.rm(host, { recursive: true })
  })

  test('stop ends everything that was started, however it hides, and leaves nothing', async () => {
    const sandbox = await backend.start()
    const name = `hidden-${sandbox.id}`
    await sandbox.client.spawn({ command: 'sh', args: ['-c', 'trap "" TERM INT HUP; while :; do sleep 1; done', name] })
    await sandbox.shell(`env -i setsid setsid sh -c 'trap "" TERM HUP; sleep 300; :' ${name} > /dev/null 2>&1 & :`)
    await vi.waitFor(async () =>
      expect((await commandLines()).filter((line) => line.includes(name)).length).toBeGreaterThanOrEqual(2),
    )
    await Promise.all([sandbox.started.stop(), sandbox.started.stop()])
    // At once: that is what waiting for the platform means.
    expect((await commandLines()).filter((line) => line.includes(name))).toEqual([])
    await sandbox.started.ended
    await sandbox.started.stop()
    expect(await leftOf(sandbox.id)).toEqual([])
    await expect(sandbox.client.health()).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_CONNECTION_LOST' })
  })

  test('a command that ends the worker ends the sandbox', async () => {
    const sandbox = await backend.start()
    await expect(sandbox.shell('kill -9 $PPID; sleep 60')).rejects.toMatchObject({
      code: 'SALLYPORT_SANDBOX_CONNECTION_LOST',
      outcome: 'unknown',
    })
    await sandbox.started.ended
    await sandbox.started.stop()
    expect(await leftOf(sandbox.id)).toEqual([])
  })

  test('its time ends it, also when a command has stopped the worker', async () => {
    const sandbox = await backend.start({ timeoutMs: 1_500 })
    await sandbox.client.spawn({ command: 'sh', args: ['-c', 'kill -STOP $PPID'] }).catch(() => undefined)
    await sandbox.started.ended
    await sandbox.started.stop()
    expect(await leftOf(sandbox.id)).toEqual([])
  })

  test('another process finds it, reaches it and ends it', async () => {
    const sandbox = await backend.start({ labels: { owner: 'me' }, timeoutMs: 60_000 })
    const elsewhere = createProcessBackend({ runtimeRoot: backend.runtimeRoot })
    expect(await elsewhere.list()).toEqual([expect.objectContaining({ id: sandbox.id, labels: { owner: 'me' } })])
    const attached = await elsewhere.attach(sandbox.id)
    expect(attached?.rootDir).toBe('/workspace')
    ;(await attached!.connect!()).destroy()
    await attached!.stop()
    await Promise.all([attached!.ended, sandbox.started.ended])
    expect(await leftOf(sandbox.id)).toEqual([])
    expect(await elsewhere.attach(sandbox.id)).toBeUndefined()
    expect(await elsewhere.attach('sbx_unknown')).toBeUndefined()
    expect(await elsewhere.attach(`../${path.basename(backend.runtimeRoot)}/${sandbox.id}`)).toBeUndefined()
  })

  test('the end of the host is its end, and what is left is cleared by whoever looks next', async () => {
    const order: OneOrder = {
      options: { runtimeRoot: backend.runtimeRoot },
      request: {},
      program: process.execPath,
      commands: [],
      stayForInput: true,
    }
    const host = spawn(process.execPath, [path.join(import.meta.dirname, 'one-driver.ts'), JSON.stringify(order)], {
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    const { id } = JSON.parse(String(await new Promise((resolve) => host.stdout.once('data', resolve)))) as {
      id: string
    }
    const sandbox = await backend.backend.attach(id)
    expect(sandbox).toBeDefined()
    host.kill('SIGKILL')
    await sandbox!.ended
    expect(await backend.backend.attach(id)).toBeUndefined()
    expect(await leftOf(id)).toEqual([])
    expect((await backend.backend.list()).map((each) => each.id)).toEqual([id])
  })

  test('a link in the place of its socket does not lead the host elsewhere', async () => {
    const [one, other] = [await backend.start(), await backend.start()]
    await one.shell(
      `rm /run/sallyport/control/worker.sock && ln -s ${other.runtimeFolder}/control/worker.sock /run/sallyport/control/worker.sock`,
    )
    await expect(one.started.connect!()).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_CONNECTION_LOST' })
  })

  test('an abort ends what had begun', async () => {
    const abort = new AbortController()
    const launched = (): void => abort.abort(new Error('no longer wanted'))
    await expect(backend.start({ signal: abort.signal, id: 'sbx_aborted', launched })).rejects.toThrow(
      'no longer wanted',
    )
    expect(await leftOf('sbx_aborted')).toEqual([])
    expect((await commandLines()).filter((line) => line.includes(backend.runtimeRoot))).toEqual([])
  })

  test('a start that fails says why, and leaves nothing', async () => {
    const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'spb-'))
    const failing = path.join(folder, 'bwrap')
    // Works when it is tried out, and not when it counts.
    await fs.writeFile(
      failing,
      '#!/bin/sh\ncase "$*" in --version) echo bubblewrap 0.8.0;; *--args*) echo "bwrap: the disk is full" >&2; exit 1;; esac\n',
      { mode: 0o755 },
    )
    const broken = await createTestBackend({ bubblewrapPath: failing })
    await expect(broken.start({ id: 'sbx_failed' })).rejects.toMatchObject({
      code: 'SALLYPORT_SANDBOX_CREATE_FAILED',
      message: 'the sandbox ended before it was ready: bwrap: the disk is full',
    })
    expect(broken.undone).toEqual(['sandbox', 'limits'])
    expect(await leftOf('sbx_failed')).toEqual([])
    await broken.close()
    await fs.rm(folder, { recursive: true })
  })
})

test.each([
  ['is not there', undefined, 'does not work'],
  ['is too old', 'echo bubblewrap 0.3.1', 'too old'],
])('a bubblewrap that %s', async (_what, script, advice) => {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'spb-'))
  const file = path.join(folder, 'bwrap')
  if (script !== undefined) await fs.writeFile(file, `#!/bin/sh\n${script}\n`, { mode: 0o755 })
  await expect(findBubblewrap(file)).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_BACKEND_MISSING', message: expect.stringContaining(advice) as unknown })
  await fs.rm(folder, { recursive: true })
}) // prettier-ignore

test('a bubblewrap that may not make namespaces: asked and at a start, which leaves nothing', async () => {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'spb-'))
  const bubblewrapPath = path.join(folder, 'bwrap')
  const script =
    'case $1 in --version) echo bubblewrap 0.8.0;; *) echo "bwrap: setting up uid map: Permission denied" >&2; exit 1;; esac'
  await fs.writeFile(bubblewrapPath, `#!/bin/sh\n${script}\n`, { mode: 0o755 })
  const advice = {
    code: 'SALLYPORT_SANDBOX_BACKEND_MISSING',
    message: expect.stringContaining('kernel.apparmor_restrict_unprivileged_userns') as unknown,
  }
  const shut = await createTestBackend({ bubblewrapPath })
  await expect(shut.backend.check()).rejects.toMatchObject(advice)
  await expect(shut.start({ id: 'sbx_shut' })).rejects.toMatchObject(advice)
  expect(shut.undone).toEqual(['sandbox', 'limits'])
  expect(await leftOf('sbx_shut')).toEqual([])

  const provider = createSandboxProvider({
    backend: { tier: 'process', bubblewrapPath },
    runtimeRoot: shut.runtimeRoot,
    gateway: { machineSets: { sets: { npm: [], apt: [] }, notes: [] } },
  })
  await fs.rm(path.join(shut.runtimeRoot, 'sbx_shut'), { recursive: true })
  await expect(provider.create()).rejects.toMatchObject(advice)
  expect((await fs.readdir(shut.runtimeRoot)).filter((name) => name.startsWith('sbx_'))).toEqual([])
  await provider[Symbol.asyncDispose]()
  await shut.close()
  await fs.rm(folder, { recursive: true })
})

test('an engine of another platform is refused when the backend is made', () => {
  const foreign = process.platform === 'darwin' ? 'bubblewrap' : 'seatbelt'
  expect(() => createProcessBackend({ runtimeRoot: '/tmp/x', engine: foreign })).toThrow(
    expect.objectContaining({ code: 'SALLYPORT_SANDBOX_NOT_SUPPORTED' }) as Error,
  )
})
