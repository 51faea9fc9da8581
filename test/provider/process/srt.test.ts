/** The engine `srt` on Linux against the hostile program, as nobody: root is refused. */
import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { createProcessBackend } from '../../../provider/backends/process.ts'
import { workerFile } from '../../../provider/worker-file.ts'
import { type Attempt, compileProbe, parseAttempts } from '../compile-probe.ts'
import { describeNeeding } from '../needs.ts'
import { createNetwork, HOST, OUTSIDE, type TestNetwork } from '../network.ts'
import type { WallOrder, WallReport } from './wall-driver.ts'

vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 })

const NOBODY = 65_534
const PORT = 7021

describeNeeding(['bubblewrap', 'gcc', 'root', 'namespaces', 'socat', 'ripgrep'], 'the engine srt', () => {
  let folder: string
  let network: TestNetwork
  let within: ReadonlyMap<string, Attempt>

  const shut = (): readonly string[] => [
    ...['tcp', 'udp'].flatMap((kind) =>
      ['127.0.0.1', '::1', HOST.public4, HOST.public6, OUTSIDE.public4, OUTSIDE.public6].map(
        (address) => `${kind}|${address}|${PORT}`,
      ),
    ),
    `tcp|${OUTSIDE.metadata}|80`,
    `dns|${OUTSIDE.nameServer}|53`,
    `icmp-raw|${OUTSIDE.public4}`,
    'interfaces',
    // Of the filter around the runtime, which itself closes none of these.
    ...[
      'socket|40|1',
      'socket|17|3',
      'socket|44|3',
      'socket|16|3|12',
      'socket|2|3|1',
      'io_uring',
      'keyctl',
      'bpf',
      'perf',
      'userfaultfd',
      'ptrace|{pid}',
      'terminal-input',
    ],
    `unix|${folder}/host.sock`,
    'abstract|srt-wall',
    'unix|{other}/egress/gateway.sock',
    'unix|{other}/control/worker.sock',
    'list|{other}',
    `read|${folder}/home/.ssh/id_ed25519`,
    'read|/etc/shadow',
    'list|/root',
    ...['/', '/etc', '/usr', '/var'].map((each) => `create|${each}`),
    'write|/proc/sys/kernel/core_pattern',
    'see-process|{marker}',
  ]
  const open = ['tcp|127.0.0.1|3128']

  beforeAll(async () => {
    folder = await fs.mkdtemp(path.join(os.tmpdir(), 'sprt-'))
    await fs.chmod(folder, 0o755)
    const home = path.join(folder, 'home')
    await fs.mkdir(path.join(home, '.ssh'), { recursive: true })
    await fs.writeFile(path.join(home, '.ssh/id_ed25519'), 'a secret of the user')
    const runtimeRoot = path.join(folder, 'run')
    await fs.mkdir(runtimeRoot, { mode: 0o700 })
    await fs.chown(runtimeRoot, NOBODY, NOBODY)
    const probe = compileProbe(folder)
    await workerFile()
    network = await createNetwork()
    await network.serve('internet', {
      tcp: [[OUTSIDE.public4, PORT], [OUTSIDE.public6, PORT], [OUTSIDE.metadata, 80]],
      udp: [[OUTSIDE.public4, PORT], [OUTSIDE.public6, PORT], [OUTSIDE.nameServer, 53]],
    }) // prettier-ignore
    const own = ['127.0.0.1', '::1', HOST.public4, HOST.public6].map((address) => [address, PORT] as const)
    await network.serve('host', { tcp: own, udp: own, unix: [`${folder}/host.sock`, '\0srt-wall'] })
    await fs.chmod(path.join(folder, 'host.sock'), 0o777)

    const order: WallOrder = { options: { runtimeRoot, engine: 'srt' }, probe, attempts: shut(), inside: open }
    const become = ['setpriv', '--reuid', String(NOBODY), '--regid', String(NOBODY), '--clear-groups', '--']
    const [program, ...args] = [
      ...network.inHost,
      ...become,
      process.execPath,
      path.join(import.meta.dirname, 'wall-driver.ts'),
      JSON.stringify(order),
    ]
    const { stdout } = await promisify(execFile)(program, args, {
      env: { PATH: process.env['PATH'], HOME: home },
      maxBuffer: 2 ** 24,
    })
    const report = JSON.parse(stdout) as WallReport
    within = parseAttempts(report.inside)
    // The network is there to be found: from outside it is.
    expect([...parseAttempts(report.outside).values()].slice(0, 14).every((attempt) => attempt.open)).toBe(true)
  })
  afterAll(async () => {
    await network.close()
    await fs.rm(folder, { recursive: true })
  })

  test('every way out that it promises to shut is shut, and the gateway answers', () => {
    const openWays = [...within].filter(([, attempt]) => attempt.open).map(([name, { why }]) => `${name}: ${why}`)
    expect(openWays).toEqual(['tcp|127.0.0.1|3128: this is the gateway'])
  })

  test('root is refused: for it the kernel’s settings would be writable', async () => {
    const backend = createProcessBackend({ runtimeRoot: folder, engine: 'srt' })
    await expect(backend.check()).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_NOT_SUPPORTED' })
  })

  test('the capabilities say what is left open', () => {
    const { capabilities } = createProcessBackend({ runtimeRoot: folder, engine: 'srt' })
    expect(capabilities.leftOpen.join()).toContain('any program of the host can use the loopback port')
  })
})
