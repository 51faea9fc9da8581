/** `sallyport run` with its command in a container, on an engine of the test's own. */
import { chmodSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { runBinary } from '../../proxy/cli/run-cli.ts'
import { startDaemon, type TestDaemon } from '../docker/daemon.ts'
import { describeNeeding } from '../needs.ts'
import { openSurrounds, type Surrounds } from './origin.ts'

// Each test starts whole processes, on a machine that may be busy.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 })

const RUNTIMES = {
  runsc: { path: '/usr/bin/runsc', runtimeArgs: ['--network=none', '--platform=ptrace', '--host-uds=open'] },
}

describeNeeding(['root', 'namespaces', 'docker', 'busybox', 'runsc'], 'sallyport run in a container', () => {
  let around: Surrounds
  let daemon: TestDaemon
  beforeAll(async () => {
    around = await openSurrounds()
    daemon = await startDaemon({ runtimes: RUNTIMES })
    // The command is nobody of the host.
    chmodSync(around.folder, 0o777)
  })
  afterAll(async () => {
    await daemon.close()
    around.close()
  })

  const run = (backend: string, options: readonly string[], line: string) =>
    runBinary(['run', '--backend', backend, '--image', 'busybox', ...options, '--', 'sh', '-c', line], {
      cwd: around.folder,
      environment: { ...around.environment, DOCKER_HOST: `unix://${daemon.socketPath}` },
      input: '',
    })

  test.each(['docker', 'runsc'])(
    '%s: output, exit code and what is written into the folder are passed on',
    async (backend) => {
      const { code, stdout, stderr } = await run(backend, [], `echo made > ${backend}.txt; pwd; echo err >&2; exit 7`)
      expect(code).toBe(7)
      // Node may have said that part of a checkout's own tools is experimental.
      expect(stderr.replace(/^\(.*\n/gm, '')).toBe('err\n')
      // Below /tmp, of which a container has one of its own, the folder can't have its own path.
      expect(stdout).toBe('/mnt/outputs\n')
      expect(readFileSync(join(around.folder, `${backend}.txt`), 'utf8')).toBe('made\n')
      expect(await daemon.docker.listContainers({ all: true })).toEqual([])
    },
  )

  test.each(['docker', 'runsc'])('%s: what is refused is said, and what is allowed gets out', async (backend) => {
    const fetch = `wget -q -O - http://open.test:${around.port}/ 2>&1`
    const before = around.requests()
    const refused = await run(backend, ['--config', around.config], fetch)
    const entry = `open.test:${around.port}`
    expect(refused.stderr).toContain(`sallyport: refused ${entry}: host_not_allowed`)
    expect(around.requests()).toBe(before)
    const allowed = await run(backend, ['--config', around.config, '--allow', entry], fetch)
    expect(allowed.code).toBe(0)
    expect(around.requests()).toBe(before + 1)
  })
})
