/**
 * Makes two sandboxes and runs the hostile program in one of them, and outside as the same user. A program of its own, so that it can be started in
 * another network namespace and as another user. First argument: JSON of {@link WallOrder}; prints JSON of {@link WallReport}.
 */
import { execFile, spawn } from 'node:child_process'
import fs from 'node:fs/promises'
import net from 'node:net'
import path from 'node:path'
import { promisify } from 'node:util'
import type { ProcessBackendOptions } from '../../../provider/backends/process.ts'
import { createTestBackend } from './sandboxes.ts'

export interface WallOrder {
  readonly options: ProcessBackendOptions
  readonly probe: string
  /** `{other}`: runtime folder of the other sandbox. `{pid}`: inside the worker, outside a process of the host. `{marker}`: that process's name. */
  readonly attempts: readonly string[]
  /** Tried inside alone. */
  readonly inside: readonly string[]
}

export interface WallReport {
  readonly uid: number
  readonly limits: readonly string[]
  readonly inside: string
  readonly outside: string
  readonly innerStatus: string
}

const run = promisify(execFile)
const order = JSON.parse(process.argv[2] ?? '') as WallOrder
const backend = await createTestBackend(order.options)
const marker = `wall-marker-${process.pid}`
const hostProcess = spawn('sh', ['-c', 'read _', marker], { stdio: ['pipe', 'ignore', 'ignore'] })
try {
  const one = await backend.start()
  const other = await backend.start()
  for (const each of [one, other]) await gateway(path.join(each.runtimeFolder, 'egress/gateway.sock'))
  await fs.copyFile(order.probe, path.join(one.runtimeFolder, 'work/probe'))
  await fs.chmod(path.join(one.runtimeFolder, 'work/probe'), 0o755)

  const fill = (attempts: readonly string[], pid: number): string[] =>
    attempts.map((each) =>
      each.replaceAll('{other}', other.runtimeFolder).replaceAll('{pid}', String(pid)).replaceAll('{marker}', marker),
    )
  const { pid } = await one.client.health()
  const attempts = fill(order.attempts, hostProcess.pid ?? 0)
  // Root's succeed out here: so not with the machine's own mounts.
  const outside =
    process.getuid?.() === 0
      ? await run('unshare', ['--mount', '--propagation', 'private', '--', order.probe, ...attempts])
      : await run(order.probe, attempts)
  // The host's own process by its number too: there may be no such one inside.
  const insideOnly = [`signal|${hostProcess.pid ?? 0}`, ...order.inside]
  const inside = await one.client.execute({
    command: './probe',
    args: fill([...order.attempts, ...insideOnly], pid),
    timeoutMs: 120_000,
  })
  const report: WallReport = {
    uid: process.getuid?.() ?? -1,
    limits: backend.backend.capabilities.leftOpen,
    inside: inside.stdout,
    outside: outside.stdout,
    innerStatus: await one.shell('cat /proc/1/status /proc/self/status'),
  }
  console.log(JSON.stringify(report))
} finally {
  hostProcess.stdin.end()
  await backend.close()
}
process.exit(0)

/** Stands for a bound listener of the gateway. */
function gateway(file: string): Promise<void> {
  const server = net.createServer((socket) =>
    socket.on('error', () => undefined).once('data', () => socket.end('this is the gateway')),
  )
  return new Promise((resolve) => server.listen(file, resolve))
}
