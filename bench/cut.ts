/**
 * From a revocation, or a policy that is made narrower, to the end of the last of many live tunnels of one identity, as their clients see it:
 * `node bench/cut.ts [--tunnels 5000] [--runs 10] [--core 1]`. Needs Linux, bash and taskset. The gateway runs on that one core.
 */
import { once } from 'node:events'
import fs from 'node:fs'
import net from 'node:net'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { openState } from '../proxy/state/state.ts'
import {
  FOR_MANY_TUNNELS,
  type BenchGateway,
  processorSeconds,
  startBenchGateway,
  runBeside,
  startSilentOrigin,
} from './bench-gateway.ts'

const HOST = '127.0.0.1'
/** Connections that are being opened at a time. */
const OPENING = 100
const WIDE = { kind: 'static', allowedHosts: ['127.0.0.0/8:*'] }
const NARROW = { kind: 'static', allowedHosts: ['127.0.0.0/8:1'] }

/** Ends what an identity has open; resolves when the gateway was told. */
type Ending = (gateway: BenchGateway, sandbox: string, tenant: string) => Promise<unknown>

const ENDINGS: Readonly<Record<string, readonly [reason: string, end: Ending]>> = {
  'revoke by the control API': [
    'token_revoked',
    (gateway, sandbox) => gateway.control('POST', '/v1/revocations', { sandbox }),
  ],
  // By a process that is not the gateway, which looks there four times a second.
  'revoke in the state folder': ['token_revoked', revokeInFolder],
  'narrow by the control API': [
    'policy_changed',
    async (gateway, _sandbox, tenant) => {
      const { version } = (await gateway.control('GET', `/v1/policies/${tenant}`)) as { version: string }
      await gateway.control('PUT', `/v1/policies/${tenant}`, { policy: NARROW, replaces: version })
    },
  ],
}

const { values } = parseArgs({
  options: {
    tunnels: { type: 'string', default: '5000' },
    runs: { type: 'string', default: '10' },
    core: { type: 'string', default: '1' },
  },
})
await runBeside(Number(values.core), main)

async function main(): Promise<void> {
  const tunnels = Number(values.tunnels)
  const runs = Number(values.runs)
  const origin = await startSilentOrigin(HOST)
  const gateway = await startBenchGateway(Number(values.core), FOR_MANY_TUNNELS)
  const expected = new Map<string, number>()
  try {
    console.log(['what', 'runs', 'median ms', 'p99 ms', 'processor ms', 'tunnels'].join('\t'))
    for (const [what, [reason, end]] of Object.entries(ENDINGS)) {
      const results: Cut[] = []
      for (let run = 0; run < runs; run += 1)
        results.push(await oneRun(gateway, origin, tunnels, `${reason}-${what.length}-${run}`, end))
      const last = results.map(({ lastMs }) => lastMs).sort((a, b) => a - b)
      const processor = results.map(({ processorMs }) => processorMs).sort((a, b) => a - b)
      console.log(
        [what, runs, quantile(last, 0.5), quantile(last, 0.99), quantile(processor, 0.5), tunnels].map(cell).join('\t'),
      )
      expected.set(reason, (expected.get(reason) ?? 0) + runs * tunnels)
      await allWritten(gateway, reason, expected.get(reason) ?? 0)
    }
  } finally {
    await gateway.stop()
    origin.close()
    fs.rmSync(gateway.folder, { recursive: true, force: true })
  }
}

interface Cut {
  /** From the call to the end of the last tunnel, as its client sees it. */
  readonly lastMs: number
  /** Of the gateway, for all of it. */
  readonly processorMs: number
}

async function oneRun(
  gateway: BenchGateway,
  origin: net.Server,
  tunnels: number,
  name: string,
  end: Ending,
): Promise<Cut> {
  const sandbox = `sbx-${name}`
  const tenant = `tenant-${name}`
  await gateway.control('PUT', `/v1/policies/${tenant}`, { policy: WIDE, replaces: null })
  const token = await gateway.token({ sub: sandbox, tenant })
  const { port } = origin.address() as net.AddressInfo
  const head = `CONNECT ${HOST}:${port} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`
  const open: net.Socket[] = []
  while (open.length < tunnels) {
    const batch = Array.from({ length: Math.min(OPENING, tunnels - open.length) }, () => openTunnel(gateway.port, head))
    open.push(...(await Promise.all(batch)))
  }
  // Opening is over in the gateway too.
  await new Promise((resolve) => setTimeout(resolve, 300))
  let left = open.length
  const gone = new Promise<number>((resolve) => {
    for (const socket of open)
      socket.once('close', () => {
        left -= 1
        if (left === 0) resolve(performance.now())
      })
  })
  const startedSeconds = processorSeconds(gateway.pid)
  const startedMs = performance.now()
  await end(gateway, sandbox, tenant)
  const lastMs = (await gone) - startedMs
  // Their lines too.
  await new Promise((resolve) => setTimeout(resolve, 1000))
  return { lastMs, processorMs: (processorSeconds(gateway.pid) - startedSeconds) * 1000 }
}

async function openTunnel(port: number, head: string): Promise<net.Socket> {
  const socket = net.connect(port, HOST)
  socket.on('error', () => socket.destroy())
  socket.write(head)
  const [answer] = (await once(socket, 'data')) as [Buffer]
  if (!answer.toString('latin1').startsWith('HTTP/1.1 200 ')) throw new Error(answer.toString('latin1').slice(0, 200))
  socket.resume()
  return socket
}

async function revokeInFolder(gateway: BenchGateway, sandbox: string): Promise<void> {
  const state = await openState(path.join(gateway.folder, 'state'))
  await state.revocations.revoke({ sandbox })
  state.close()
}

/** Every end has its line, with the reason. */
async function allWritten(gateway: BenchGateway, reason: string, count: number): Promise<void> {
  for (let tries = 0; closeLines(gateway.folder, reason) < count; tries += 1) {
    if (tries === 100) throw new Error(`${closeLines(gateway.folder, reason)} lines with ${reason}, of ${count}`)
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
}

function closeLines(folder: string, reason: string): number {
  const audit = path.join(folder, 'state/audit')
  return fs
    .readdirSync(audit)
    .filter((name) => name.endsWith('.jsonl'))
    .map((name) => fs.readFileSync(path.join(audit, name), 'latin1').split(`"close_reason":"${reason}"`).length - 1)
    .reduce((sum, count) => sum + count, 0)
}

function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN
}

function cell(value: string | number): string {
  return typeof value === 'number' && !Number.isInteger(value) ? value.toFixed(0) : String(value)
}
