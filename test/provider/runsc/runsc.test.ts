/** Containers under gVisor: that they are, what they reach, and what a failed start leaves. */
import { execFileSync } from 'node:child_process'
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import type { Backend } from '../../../provider/backend.ts'
import { createRunscBackend, type RunscBackendOptions } from '../../../provider/backends/runsc.ts'
import { startDaemon, type TestDaemon } from '../docker/daemon.ts'
import type { LeakReport } from '../docker/leak-driver.ts'
import { compileStaticProbe, INSIDE, NETWORK, serveEverywhere, tryLeaks } from '../docker/leaks.ts'
import { startSandbox } from '../docker/start.ts'
import { parseAttempts } from '../compile-probe.ts'
import { describeNeeding } from '../needs.ts'
import { createNetwork, type TestNetwork } from '../network.ts'

vi.setConfig({ testTimeout: 180_000, hookTimeout: 120_000 })

const RUNSC = execFileSync('sh', ['-c', 'command -v runsc || echo /usr/bin/runsc'], { encoding: 'utf8' }).trim()

/** Its own kernel lets whoever asks have namespaces, keys and rings of its own: none of them is the host's. */
const OF_THE_HOST = INSIDE.filter((attempt) => !/^(unshare|clone|keyctl|icmp-datagram|io_uring)/.test(attempt))

describeNeeding(['root', 'namespaces', 'docker', 'busybox', 'gcc', 'runsc'], 'the runsc backend', () => {
  let network: TestNetwork
  let daemon: TestDaemon
  let folder: string
  const backendOf = (options: Partial<RunscBackendOptions> = {}): Backend =>
    createRunscBackend({ image: 'busybox', engine: { socketPath: daemon.socketPath }, ...options })
  /** The engine's own clean-up takes a moment after a removal. */
  const nothingIsLeft = (): Promise<void> => expect.poll(() => daemon.processes(), { timeout: 5_000 }).toEqual([])

  beforeAll(async () => {
    folder = mkdtempSync('/tmp/spv-')
    // What it prints is not what it needs: a wrapper of somebody who registers the engine's own runtime under gVisor's name.
    writeFileSync(path.join(folder, 'runsc-impostor'), `#!/bin/sh\nexec runc "$@"\n`)
    // On kernels that show network settings in every namespace, gVisor takes each for the first one; it is kept from seeing them.
    writeFileSync(
      path.join(folder, 'runsc-with-network'),
      `#!/bin/sh\nexec unshare --mount --propagation slave sh -c 'mount -t tmpfs -o ro none /proc/sys/net && exec ${RUNSC} "$@"' runsc "$@"\n`,
    )
    for (const name of ['runsc-impostor', 'runsc-with-network']) chmodSync(path.join(folder, name), 0o755)
    chmodSync(folder, 0o755)
    network = await createNetwork()
    daemon = await startDaemon({
      within: network.inHost,
      runtimes: {
        plain: { path: RUNSC },
        runsc: { path: RUNSC, runtimeArgs: ['--platform=ptrace', '--network=none', '--host-uds=open'] },
        rootless: { path: RUNSC, runtimeArgs: ['--platform=ptrace', '--host-uds=open'] },
        networked: { path: path.join(folder, 'runsc-with-network'), runtimeArgs: ['--platform=ptrace'] },
        impostor: { path: path.join(folder, 'runsc-impostor') },
      },
    })
    await serveEverywhere(network)
  })

  afterAll(async () => {
    await daemon.close()
    await network.close()
    rmSync(folder, { recursive: true })
  })

  test('finds the runtime that can do what is needed, and the kernel inside is gVisor', async () => {
    const backend = backendOf()
    await backend.check()
    const sandbox = await startSandbox(backend, daemon.runtimeRoot, { env: { GREETING: 'hello' } })
    expect(await sandbox.sh('dmesg')).toContain('Starting gVisor')
    expect(await sandbox.sh('echo $GREETING; id -u')).toBe('hello\n10001\n')
    const at20 = await Promise.all(Array.from({ length: 20 }, (_, index) => sandbox.sh(`echo ${index}`)))
    expect(at20).toEqual(Array.from({ length: 20 }, (_, index) => `${index}\n`))

    const attached = await backendOf().attach(sandbox.id)
    const one = await attached!.connect!()
    one.destroy()
    // The process that made it holds on to it all the same.
    expect(await sandbox.sh('echo still')).toBe('still\n')
    await sandbox.started.stop()
    await attached!.stop()
    expect(await backend.attach(sandbox.id)).toBeUndefined()
    await nothingIsLeft()
  })

  test('every way out is shut inside, of which those outside are open', async () => {
    const report: LeakReport = await tryLeaks(daemon, {
      backend: 'runsc',
      options: { image: 'busybox', engine: { socketPath: daemon.socketPath } },
      probe: compileStaticProbe(folder),
      attempts: NETWORK,
      inside: OF_THE_HOST,
      sabotage: false,
    })
    if ('fault' in report) throw new Error(report.message)
    const [inside, outside] = [parseAttempts(report.inside), parseAttempts(report.outside)]
    expect([...inside].filter(([, { open }]) => open)).toEqual([])
    expect([...outside].filter(([, { open }]) => !open)).toEqual([])
    expect(report.proxied).toContain('host_not_allowed')
    expect(report.kernelLog).toContain('gVisor')
    expect(report.asked.filter((name) => name.includes('leaked'))).toEqual([])
  })

  test('on a network of its own, by a wrapper, it reaches the gateway and nothing else', async () => {
    const options: RunscBackendOptions & { readonly engine: { readonly socketPath: string } } = {
      image: 'busybox',
      network: 'internal',
      runtimeName: 'networked',
      engine: { socketPath: daemon.socketPath },
    }
    const report = await tryLeaks(daemon, {
      backend: 'runsc',
      options,
      probe: compileStaticProbe(folder),
      attempts: NETWORK,
      inside: OF_THE_HOST,
      sabotage: false,
    })
    if ('fault' in report) throw new Error(report.message)
    expect([...parseAttempts(report.inside)].filter(([, { open }]) => open)).toEqual([])
    expect(report.proxied).toContain('host_not_allowed')
    expect(report.kernelLog).toContain('gVisor')
    expect(report.asked.filter((name) => name.includes('leaked'))).toEqual([])
  })

  test('a runtime that may not open the host’s sockets is refused before anything is made, with the line that mends it', async () => {
    const expected = {
      code: 'SALLYPORT_SANDBOX_BACKEND_MISSING',
      fault: 'runtime_unusable',
      message: expect.stringContaining('--host-uds=open') as string,
    }
    await expect(backendOf({ runtimeName: 'plain' }).check()).rejects.toMatchObject(expected)
    await expect(backendOf({ runtimeName: 'nothing' }).check()).rejects.toMatchObject({ fault: 'runtime_missing' })
  })

  test('a start that fails leaves no sentry, no gofer and no shim', async () => {
    await expect(startSandbox(backendOf({ runtimeName: 'rootless' }), daemon.runtimeRoot)).rejects.toMatchObject({
      code: 'SALLYPORT_SANDBOX_BACKEND_MISSING',
      fault: 'runtime_unusable',
      message: expect.stringContaining('--network=none') as string,
    })
    await nothingIsLeft()
    expect(await daemon.docker.listContainers({ all: true })).toEqual([])
  })

  test('a runtime that is not gVisor, whatever it is called, is found out', async () => {
    await expect(startSandbox(backendOf({ runtimeName: 'impostor' }), daemon.runtimeRoot)).rejects.toMatchObject({
      fault: 'runtime_unusable',
      message: expect.stringContaining('is not gVisor') as string,
    })
    await nothingIsLeft()
  })
})
