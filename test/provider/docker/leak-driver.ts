/**
 * Starts a sandbox and has the hostile program try the ways out, inside and outside. A program of its own, so that it can be started in the engine's
 * network. First argument: JSON of {@link LeakOrder}; prints JSON of {@link LeakReport}.
 */
import { execFile } from 'node:child_process'
import dgram from 'node:dgram'
import { readFileSync } from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import type { ContainerOptions } from '../../../provider/backends/container-options.ts'
import { createDockerBackend } from '../../../provider/backends/docker.ts'
import { createRunscBackend } from '../../../provider/backends/runsc.ts'
import { MISSING, readContract } from './contract.ts'
import { recordRequests } from './record-requests.ts'
import { startSandbox } from './start.ts'

export interface LeakOrder {
  readonly backend: 'docker' | 'runsc'
  readonly options: ContainerOptions & { readonly engine: { readonly socketPath: string } }
  readonly runtimeRoot: string
  /** The hostile program. */
  readonly probe: string
  /** `{other}`: address of another sandbox. `{host}`: each address of the host. */
  readonly attempts: readonly string[]
  /** Tried inside alone. */
  readonly inside: readonly string[]
  /** The engine ignores that the host is not to have an address on the network. */
  readonly sabotage: boolean
}

export type LeakReport =
  | { readonly fault: string; readonly message: string }
  | {
      readonly inside: string
      readonly outside: string
      /** Of a request through the gateway's port. */
      readonly proxied: string
      /** Names that reached the host's name server. */
      readonly asked: readonly string[]
      readonly kernelLog: string
      /** Of the requests, where the engine's description is at hand. */
      readonly faults: readonly string[]
      /** Addresses by which a link could be used without any router. */
      readonly ipv6: string
    }

const order = JSON.parse(process.argv[2] ?? '') as LeakOrder
const requested = order.options.engine.socketPath
const recorder = await recordRequests(`${requested}.drv`, requested, (where, body) =>
  order.sabotage && where.endsWith('/networks/create') ? { ...(body as object), Options: {} } : body,
)
const options = { ...order.options, engine: { socketPath: recorder.socketPath } }
const backend = order.backend === 'docker' ? createDockerBackend(options) : createRunscBackend(options)

const asked: string[] = []
const nameServer = dgram.createSocket('udp4')
nameServer.on('message', (message, peer) => {
  asked.push(message.toString('latin1').replaceAll(/[^\w]+/g, '.'))
  nameServer.send(message, peer.port, peer.address)
})
await new Promise<void>((resolve) => nameServer.bind(53, '127.0.0.53', resolve))

let report: LeakReport
try {
  const [one, two] = [await startSandbox(backend, order.runtimeRoot), await startSandbox(backend, order.runtimeRoot)]
  const gateway = net.createServer((socket) =>
    socket
      .on('data', () => socket.end('HTTP/1.1 403 Forbidden\r\nx-deny-reason: host_not_allowed\r\n\r\n'))
      .on('error', () => undefined),
  )
  const mask = process.umask(0)
  await new Promise<void>((resolve) => gateway.listen(path.join(one.folder, 'egress/gateway.sock'), resolve))
  process.umask(mask)

  const other =
    (await two.sh("ip -4 addr show eth0 2>/dev/null | sed -n 's/.*inet \\([0-9.]*\\).*/\\1/p'")).trim() || '192.0.2.99'
  const hosts = Object.values(os.networkInterfaces())
    .flat()
    .flatMap((each) =>
      each === undefined || each.internal ? [] : [each.family === 'IPv6' && each.scopeid !== 0 ? '' : each.address],
    )
    .filter((address) => address !== '')
  const fill = (attempt: string): string[] =>
    attempt.includes('{host}')
      ? hosts.map((host) => attempt.replace('{host}', host))
      : [attempt.replace('{other}', other)]
  const both = order.attempts.flatMap(fill)
  await one.client.writeFile('/workspace/probe', readFileSync(order.probe), { mode: 0o755 })
  const within = [...both, ...order.inside.flatMap(fill)]
  // Most attempts end by waiting, so several wait at once; in the order in which they were given all the same.
  const pieces = Array.from({ length: 6 }, (_, index) =>
    within.slice(Math.ceil(within.length / 6) * index, Math.ceil(within.length / 6) * (index + 1)),
  )
  const printed = await Promise.all(
    pieces.filter(({ length }) => length > 0).map((args) => one.client.execute({ command: '/workspace/probe', args })),
  )
  const outside = await promisify(execFile)(order.probe, both)
  const proxied = await one.sh("printf 'CONNECT example.com:443 HTTP/1.1\\r\\n\\r\\n' | nc -w 3 127.0.0.1 3128")
  const ipv6 = await one.sh('ip -6 addr show dev eth0 2>/dev/null')
  const kernelLog = await one.sh('dmesg 2>&1')
  // What embedded name servers do with names is seen at the host's.
  await one.sh('nslookup leaked.example 127.0.0.11; nslookup leaked.example')
  await Promise.all([one.started.stop(), two.started.stop()])
  gateway.close()
  const faults = MISSING === undefined ? [...new Set(recorder.requests.flatMap(readContract()))] : []
  report = {
    inside: printed.map(({ stdout }) => stdout).join(''),
    outside: outside.stdout,
    proxied,
    asked,
    kernelLog,
    ipv6,
    faults,
  }
} catch (error) {
  const { fault = 'none', message } = error as Error & { fault?: string }
  report = { fault, message }
}
await recorder.close()
nameServer.close()
process.stdout.write(JSON.stringify(report))
process.exit(0)
