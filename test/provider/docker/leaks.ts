/** What a sandbox tries to get out by, and who answers where it must not get. */
import { execFile, execFileSync } from 'node:child_process'
import path from 'node:path'
import { promisify } from 'node:util'
import { HOST, OUTSIDE, type TestNetwork } from '../network.ts'
import type { TestDaemon } from './daemon.ts'
import type { LeakOrder, LeakReport } from './leak-driver.ts'

export const PORT = 7012

/** Ways that are open outside. */
export const NETWORK = [
  `tcp|{host}|${PORT}`,
  `udp|{host}|${PORT}`,
  ...['tcp', 'udp'].flatMap((kind) => [`${kind}|${OUTSIDE.public4}|${PORT}`, `${kind}|${OUTSIDE.public6}|${PORT}`, `${kind}|${OUTSIDE.metadata}|80`]),
  `dns|${OUTSIDE.nameServer}|53`,
  'dns|127.0.0.53|53',
  `icmp-raw|${OUTSIDE.public4}`,
  'socket|17|3', 'socket|2|3|1', 'socket|2|3|255',
] // prettier-ignore

/** Ways that may be shut outside as well. */
export const INSIDE = [
  'tcp|172.17.0.1|22', 'tcp|{other}|2024', 'tcp|{other}|3128', 'socket|40|1', 'socket|40|2', 'socket|38|5', 'socket|44|3', 'socket|16|3|12', 'icmp-datagram|127.0.0.1',
  'io_uring', 'unshare|10000000', 'unshare|40000000', 'clone|10000000', 'setns|/proc/self/ns/net', 'mount', 'keyctl', 'bpf', 'perf', 'userfaultfd', 'read|/proc/kcore', 'write|/proc/sys/kernel/modprobe',
  'unix|/var/run/docker.sock', 'write|/run/sallyport/bin/worker.cjs', 'create|/run/sallyport/control/x', 'create|/run/sallyport/egress/x',
] // prettier-ignore

/** The host and the internet beyond it. */
export async function serveEverywhere(network: TestNetwork): Promise<void> {
  await network.serve('internet', {
    tcp: [[OUTSIDE.public4, PORT], [OUTSIDE.public6, PORT], [OUTSIDE.metadata, 80]],
    udp: [[OUTSIDE.public4, PORT], [OUTSIDE.public6, PORT], [OUTSIDE.metadata, 80], [OUTSIDE.nameServer, 53]],
  }) // prettier-ignore
  // Answers on the bridges too, from the address that was asked.
  await network.serve('host', {
    tcp: [['::', PORT]],
    udp: [
      ['0.0.0.0', PORT],
      [HOST.public6, PORT],
    ],
  })
}

/** For an image without a C library. */
export function compileStaticProbe(folder: string): string {
  const file = path.join(folder, 'probe')
  execFileSync('gcc', ['-O1', '-static', '-w', '-o', file, path.join(import.meta.dirname, '../probe.c')])
  return file
}

/** Runs the driver in the engine's network. */
export async function tryLeaks(daemon: TestDaemon, order: Omit<LeakOrder, 'runtimeRoot'>): Promise<LeakReport> {
  const [program = '', ...args] = daemon.inHost
  const whole: LeakOrder = { ...order, runtimeRoot: daemon.runtimeRoot }
  const { stdout } = await promisify(execFile)(
    program,
    [
      ...args,
      process.execPath,
      '--disable-warning=ExperimentalWarning',
      path.join(import.meta.dirname, 'leak-driver.ts'),
      JSON.stringify(whole),
    ],
    { maxBuffer: 16 * 1024 * 1024 },
  )
  return JSON.parse(stdout) as LeakReport
}
