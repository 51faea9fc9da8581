/** Containers of a real engine, without a network. */
import { chmodSync, existsSync, mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import net from 'node:net'
import path from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Backend } from '../../../provider/backend.ts'
import { createDockerBackend } from '../../../provider/backends/docker.ts'
import type { ContainerOptions } from '../../../provider/backends/container-options.ts'
import { describeNeeding } from '../needs.ts'
import { MISSING, readContract } from './contract.ts'
import { startDaemon, type TestDaemon } from './daemon.ts'
import { buildNodeImage } from './images.ts'
import { recordRequests, type Recorder } from './record-requests.ts'
import { startSandbox, type TestSandbox } from './start.ts'

describeNeeding(['root', 'namespaces', 'docker', 'busybox'], 'containers without a network', () => {
  let daemon: TestDaemon
  let recorder: Recorder
  let shared: TestSandbox
  const backendOf = (options: Partial<ContainerOptions> = {}): Backend =>
    createDockerBackend({ image: 'busybox', engine: { socketPath: recorder.socketPath }, ...options })
  const containers = (): Promise<number> => daemon.docker.listContainers({ all: true }).then(({ length }) => length)

  beforeAll(async () => {
    daemon = await startDaemon()
    recorder = await recordRequests(`${daemon.socketPath}.rec`, daemon.socketPath)
    shared = await startSandbox(backendOf(), daemon.runtimeRoot, { env: { GREETING: 'hello' } })
  }, 120_000)

  afterAll(async () => {
    await recorder.close()
    await daemon.close()
  }, 60_000)

  test('an image with a shell and no Node runs the worker', async () => {
    const health = await shared.client.health()
    expect(health.node).toBe(process.version)
    expect(health.rootDir).toBe('/workspace')
    expect(await shared.sh('echo $GREETING; pwd; echo $HOME; ls /bin/node 2>&1')).toBe(
      'hello\n/workspace\n/workspace\nls: /bin/node: No such file or directory\n',
    )
  })

  test('is nobody, can do nothing as root, and gains nothing', async () => {
    const status = await shared.sh('cat /proc/self/status')
    expect(status).toMatch(/^Uid:\t10001\t10001\t10001\t10001$/m)
    for (const set of ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'])
      expect(status).toMatch(new RegExp(`^${set}:\t0+$`, 'm'))
    expect(status).toMatch(/^NoNewPrivs:\t1$/m)
    expect(status).toMatch(/^Seccomp:\t2$/m)
  })

  test('writes to its own folders in memory and nowhere else', async () => {
    const written = await shared.sh(
      'for d in / /etc /bin /run /run/sallyport /run/sallyport/bin /run/sallyport/control /run/sallyport/egress /sys /proc /dev /var; do (: > $d/x) 2>/dev/null && echo $d; done; for d in /tmp /workspace; do (: > $d/x) && echo $d; done',
    )
    expect(written).toBe('/tmp\n/workspace\n')
    expect(
      await shared.sh('dd if=/dev/zero of=/workspace/big bs=1M count=2000 2>&1 | head -1; rm -f /workspace/big'),
    ).toContain('No space left on device')
  })

  test('has no interface but loopback, no route and no name server', async () => {
    expect(await shared.sh('cat /proc/net/dev | tail -n +3 | cut -d: -f1; tail -n +2 /proc/net/route')).toBe('    lo\n')
    const attempt = await shared.client.execute({
      command: 'nc -w 1 192.0.2.1 80 </dev/null; nslookup example.com 192.0.2.53; ping -c 1 192.0.2.1',
    })
    expect(attempt.stderr).toContain('Network is unreachable')
    expect(attempt.stdout).not.toMatch(/Address.*192\.0\.2\.(?!53)/)
    expect(await shared.sh('ping -c 1 127.0.0.1 2>&1')).toMatch(/denied|not permitted/i)
  })

  test('is held to its memory and processes, as the engine reads them back', async () => {
    const sandbox = await startSandbox(backendOf({ cpus: 1 }), daemon.runtimeRoot, {
      memoryLimitMb: 128,
      maxProcesses: 16,
    })
    const { HostConfig, Config } = await daemon.docker.getContainer(`sallyport-${sandbox.id}`).inspect()
    expect(HostConfig).toMatchObject({
      NetworkMode: 'none', ReadonlyRootfs: true, Privileged: false, Memory: 128 * 2 ** 20, MemorySwap: 128 * 2 ** 20, NanoCpus: 1e9, PidsLimit: 40, CapDrop: ['ALL'],
      Init: true, IpcMode: 'private', AutoRemove: true, CapAdd: null, Devices: null, PortBindings: null,
    }) // prettier-ignore
    expect(JSON.stringify(Config)).not.toContain(sandbox.token)
    expect(
      (await sandbox.sh('i=0; while [ $i -lt 80 ]; do sleep 5 & i=$((i+1)); done 2>&1; wait')).toLowerCase(),
    ).toMatch(/fork|resource/)
    await sandbox.started.stop()
  })

  test("carries the sandbox's loopback port to the gateway's socket", async () => {
    const seen: string[] = []
    const gateway = net.createServer((socket) =>
      socket.on(
        'data',
        (bytes: Buffer) => (
          seen.push(bytes.toString()),
          socket.end('HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n')
        ),
      ),
    )
    const socketPath = path.join(shared.folder, 'egress/gateway.sock')
    const mask = process.umask(0)
    await new Promise<void>((resolve) => gateway.listen(socketPath, resolve))
    process.umask(mask)
    expect(
      await shared.sh("printf 'CONNECT example.com:443 HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n' | nc -w 2 127.0.0.1 3128"),
    ).toContain('403 Forbidden')
    expect(seen.join('')).toContain('CONNECT example.com:443')
    await new Promise((resolve) => gateway.close(resolve))
  })

  test('what holds the bearer is gone from the folder, and nobody inside can put anything there', () => {
    expect(readdirSync(path.join(shared.folder, 'control'))).toEqual(['worker.sock'])
    expect(statSync(path.join(shared.folder, 'control')).mode & 0o777).toBe(0o755)
  })

  test('an image with its own Node uses that, and its LD_PRELOAD does not reach the worker', async () => {
    await buildNodeImage(daemon.docker)
    const sandbox = await startSandbox(backendOf({ image: 'with-node' }), daemon.runtimeRoot)
    expect(
      await sandbox.sh(
        'unset LD_PRELOAD; readlink /proc/$PPID/exe; echo $FROM_IMAGE; grep -c PRELOAD /proc/$PPID/environ',
      ),
    ).toBe('/opt/node\nyes\n0\n')
    expect(await sandbox.sh('echo $LD_PRELOAD 2>/dev/null')).toContain('/nowhere.so')
    await sandbox.started.stop()
  })

  test('another process lists, reaches and removes it', async () => {
    const sandbox = await startSandbox(backendOf(), daemon.runtimeRoot, {
      labels: {
        owner: 'o',
        'created-at': '2026-01-02T03:04:05.000Z',
        'expires-at': '2026-01-02T04:04:05.000Z',
        task: 't',
      },
    })
    const other = backendOf()
    expect(await other.list()).toContainEqual({
      id: sandbox.id,
      createdAtMs: Date.parse('2026-01-02T03:04:05.000Z'),
      expiresAtMs: Date.parse('2026-01-02T04:04:05.000Z'),
      labels: {
        owner: 'o',
        'created-at': '2026-01-02T03:04:05.000Z',
        'expires-at': '2026-01-02T04:04:05.000Z',
        task: 't',
      },
    })
    const attached = await other.attach(sandbox.id)
    expect(attached?.rootDir).toBe('/workspace')
    const socket = await attached!.connect!()
    socket.destroy()
    await attached!.stop()
    await sandbox.started.ended
    expect(await other.attach(sandbox.id)).toBeUndefined()
    await sandbox.started.stop()
  })

  test('a removal from outside ends it, and stopping it then is no fault', async () => {
    const sandbox = await startSandbox(backendOf(), daemon.runtimeRoot)
    await daemon.docker.getContainer(`sallyport-${sandbox.id}`).remove({ force: true })
    await sandbox.started.ended
    await Promise.all([sandbox.started.stop(), sandbox.started.stop()])
    await sandbox.started.stop()
  })

  test('the engine ends it when its time is over, also when its worker was stopped', async () => {
    const startedMs = performance.now()
    const sandbox = await startSandbox(backendOf(), daemon.runtimeRoot, { timeoutMs: 4_000 })
    const { pid } = await sandbox.client.health()
    // The worker is stopped before it can answer.
    sandbox.client.spawn({ command: `kill -STOP ${pid}` }).catch(() => undefined)
    await sandbox.started.ended
    // Had the worker ended by itself, it would have been earlier.
    expect(performance.now() - startedMs).toBeGreaterThan(8_900)
    await sandbox.started.stop()
  })

  test('a start that is called off leaves nothing', async () => {
    const before = await containers()
    const stop = new AbortController()
    const starting = startSandbox(backendOf(), daemon.runtimeRoot, { signal: stop.signal })
    void recorder.asked('/containers/create').then(() => stop.abort(new Error('called off')))
    await expect(starting).rejects.toThrow('called off')
    expect(await containers()).toBe(before)
  })

  test('an image that is not there is said to be missing, with the command that gets it', async () => {
    const backend = backendOf({ image: 'nowhere/nothing:1' })
    const expected = {
      code: 'SALLYPORT_SANDBOX_IMAGE_MISSING',
      fault: 'image_missing',
      message: expect.stringContaining('docker pull nowhere/nothing:1') as string,
    }
    await expect(backend.check()).rejects.toMatchObject(expected)
    await expect(startSandbox(backend, daemon.runtimeRoot)).rejects.toMatchObject(expected)
  })

  test('a name that somebody else has is not taken from them', async () => {
    const id = 'sbx_taken'
    const other = await daemon.docker.createContainer({ name: `sallyport-${id}`, Image: 'busybox', Cmd: ['true'] })
    await expect(startSandbox(backendOf(), daemon.runtimeRoot, { id })).rejects.toMatchObject({
      code: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
      fault: 'name_taken',
      message: expect.stringContaining(`docker rm -f sallyport-${id}`) as string,
    })
    expect((await other.inspect()).Name).toBe(`/sallyport-${id}`)
    await other.remove()
  })

  test('a full disk is said to be full', async () => {
    const before = await containers()
    const empty = daemon.fillDisk()
    try {
      await expect(startSandbox(backendOf(), daemon.runtimeRoot)).rejects.toMatchObject({
        fault: 'disk_full',
        message: expect.stringContaining('docker system prune') as string,
      })
    } finally {
      empty()
    }
    expect(await containers()).toBe(before)
  })

  test('host folders are where the layout says, and no more can be written than it says', async () => {
    const folder = path.join(daemon.runtimeRoot, '../layout')
    for (const name of ['out', 'up']) mkdirSync(path.join(folder, name), { recursive: true, mode: 0o777 })
    writeFileSync(path.join(folder, 'up/given'), 'given')
    chmodSync(path.join(folder, 'out'), 0o777)
    const hostDir = (name: string) => ({ source: { kind: 'hostDir', hostPath: path.join(folder, name) } as const })
    const sandbox = await startSandbox(
      backendOf({ layout: { outputs: hostDir('out'), uploads: hostDir('up'), skills: [hostDir('up')] } }),
      daemon.runtimeRoot,
    )
    expect(sandbox.started.rootDir).toBe('/mnt/outputs')
    expect(
      await sandbox.sh('cat /mnt/uploads/given /mnt/skills/0/given; echo made > made; echo no > /mnt/uploads/no'),
    ).toMatch(/^givengiven.*Read-only/s)
    expect(existsSync(path.join(folder, 'out/made'))).toBe(true)
    await sandbox.client.writeFile('from-host', 'x')
    await expect(sandbox.client.writeFile('/mnt/uploads/x', 'x')).rejects.toMatchObject({
      code: 'SALLYPORT_SANDBOX_FILE_FAILED',
    })
    await sandbox.started.stop()
  })

  test('an engine that was restarted has ended its sandboxes, and says so', async () => {
    const sandbox = await startSandbox(backendOf(), daemon.runtimeRoot)
    await daemon.restart()
    await sandbox.started.ended
    await sandbox.started.stop()
    await shared.started.stop()
    expect(await containers()).toBe(0)
  }, 60_000)

  test.skipIf(MISSING !== undefined)(
    `every request is one that the engine's description knows${MISSING === undefined ? '' : ` (${MISSING})`}`,
    () => {
      const faultsOf = readContract()
      expect(recorder.requests.length).toBeGreaterThan(50)
      expect([...new Set(recorder.requests.flatMap((request) => faultsOf(request)))]).toEqual([])
    },
  )
})

if (MISSING !== undefined) console.log(`skipped: the contract of the engine: ${MISSING}`)
