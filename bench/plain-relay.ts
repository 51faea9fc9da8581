/**
 * haproxy as a plain relay of TCP, by the kit's generator without CONNECT: a port of it for each port of the origin. It reads no request, knows no destination and
 * decides nothing; what it costs is accepting, connecting and copying. Where a CONNECT is timed with the others, a first echo is here.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import path from 'node:path'
import { reachable } from './bench-gateway.ts'
import { buildKit, startOrigin } from './load-kit.ts'

const ORIGIN_BASE = 9200
const OWN_BASE = 9300
const PORTS = { echo: 1, source: 2, sink: 3, duplex: 5 }
const GATEWAY_CORE = '1'
const OTHER_CORE = '0'

/** A line of the generator; a latency is an object. */
export type PlainRow = Readonly<Record<string, unknown>>

const at = (port: keyof typeof PORTS): readonly string[] => ['--target', `127.0.0.1:${OWN_BASE + PORTS[port]}`]
const connects = ['--mode', 'connect-rate', ...at('echo'), '--echo', '64', '--warmup', '1']
const bytes = ['--mode', 'throughput', '--conns', '8', '--warmup', '1']
/** What the kit gives the generator for each of its modes, but for the ports. */
const RUNS: Readonly<Record<string, readonly string[]>> = {
  rate: [...connects, '--conns', '64', '--duration', '4'],
  lat: [...connects, '--conns', '4000', '--rate', '1000', '--duration', '4'],
  down: [...bytes, ...at('source'), '--dir', 'down', '--duration', '3'],
  up: [...bytes, ...at('sink'), '--dir', 'up', '--duration', '3'],
  both: [...bytes, ...at('duplex'), '--dir', 'both', '--duration', '3'],
  idle: ['--mode', 'idle', ...at('echo'), '--conns', '9000', '--hold', '2', '--echo', '64', '--timeout', '30000'],
}
const BULK = [...bytes, ...at('source'), '--dir', 'down', '--duration', '6']
const BESIDE_BULK = [...connects, '--conns', '4000', '--rate', '200', '--duration', '3']

/** Whether this machine has it. */
export function hasHaproxy(): boolean {
  return (process.env['PATH'] ?? '').split(path.delimiter).some((at) => fs.existsSync(path.join(at, 'haproxy')))
}

/** Starts it anew and measures it in each of the modes, as the kit does the others; what the kit has and this has not is left out. */
export async function measureHaproxy(folder: string, modes: readonly string[], round: number): Promise<PlainRow[]> {
  const kit = buildKit(folder)
  const origin = await startOrigin(kit.origin, ORIGIN_BASE)
  const relay = startHaproxy(folder)
  const ended = once(relay, 'exit')
  try {
    execFileSync('taskset', ['-cp', OTHER_CORE, String(origin.pid)], { stdio: 'ignore' })
    await Promise.race([
      reachable(OWN_BASE + PORTS.echo),
      ended.then(([code]) => Promise.reject(new Error(`haproxy ended with ${String(code)}`))),
    ])
    const common = [
      '--proxy',
      'direct',
      '--label',
      'haproxy',
      '--src-count',
      '8',
      '--write',
      '--pid',
      String(relay.pid),
    ]
    const run = async (m: string, args: readonly string[]): Promise<PlainRow> => {
      const child = spawn('taskset', ['-c', OTHER_CORE, kit.loadgen, ...common, ...args], {
        stdio: ['ignore', 'pipe', 'inherit'],
      })
      const [text] = await Promise.all([child.stdout.setEncoding('utf8').toArray(), once(child, 'close')])
      const row = JSON.parse(text.join('')) as PlainRow
      // Without a CONNECT there is no answer to wait for but the echo.
      return { ...row, m, round, ...(row['done_us'] !== undefined && { connect_us: row['done_us'] }) }
    }
    const rows: PlainRow[] = []
    for (const mode of modes) {
      const args = RUNS[mode]
      if (mode === 'mixed') {
        const bulk = run('bulk', BULK)
        await new Promise((resolve) => setTimeout(resolve, 1500))
        rows.push(await run('mixed', BESIDE_BULK), await bulk)
      } else if (args !== undefined) rows.push(await run(mode, args))
    }
    return rows
  } finally {
    relay.kill('SIGKILL')
    await ended
    origin.kill()
  }
}

function startHaproxy(folder: string): ChildProcess {
  const file = path.join(folder, 'haproxy.cfg')
  const relays = Object.entries(PORTS).flatMap(([name, at]) => [
    `listen ${name}`,
    `  bind 127.0.0.1:${OWN_BASE + at}`,
    `  server origin 127.0.0.1:${ORIGIN_BASE + at}`,
  ])
  const times = ['connect 10s', 'client 600s', 'server 600s'].map((time) => `  timeout ${time}`)
  // As many connections as the descriptors permit; one thread, as the others have one core.
  const lines = ['global', '  nbthread 1', 'defaults', '  mode tcp', ...times, ...relays]
  fs.writeFileSync(file, `${lines.join('\n')}\n`)
  const command = `ulimit -Sn hard && exec taskset -c ${GATEWAY_CORE} haproxy -db -f "$0"`
  return spawn('bash', ['-c', command, file], { stdio: 'ignore' })
}
