/**
 * The time to a CONNECT next to squid: `node bench/latency.ts [--rounds 10] [--seconds 4] [--rates '1000 half'] [--flags='--max-semi-space-size=4|--single-threaded-gc']
 * [--core 1] [--json FILE]`. squid, the gateway and, for each of the `|`-separated `--flags`, a gateway with these flags of Node take turns at the same rate; prints
 * medians of each one's median and p99, and the ratios of its p99 to squid's in the same round. `half` is half of what each could do with the core, by its own processor time
 * for a tunnel in the turns of warming up. All run on one core, the generator and the origin on the others. Needs the load kit (`BENCH_KIT`), gcc, squid,
 * Linux, bash and taskset.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { processorSeconds, reachable, runBeside } from './bench-gateway.ts'
import { buildKit, checkKit, openTunnels, startOrigin } from './load-kit.ts'
import { prepareBench } from './prepare.ts'

const HOST = '127.0.0.1'
const ORIGIN_BASE = 9200
const FIRST_PORT = 3150
const WARM_TURNS = 4
const TOKENS = 500

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '10' },
    seconds: { type: 'string', default: '4' },
    rates: { type: 'string', default: '1000 half' },
    flags: { type: 'string', default: '' },
    core: { type: 'string', default: '1' },
    json: { type: 'string' },
  },
})
const core = values.core
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-latency-'))
process.once('exit', () => fs.rmSync(folder, { recursive: true, force: true }))
await runBeside(Number(core), main)

interface Proxy {
  readonly name: string
  readonly port: number
  readonly child: ChildProcess
  readonly tokens?: string
}

interface Turn {
  readonly name: string
  readonly at: string
  readonly round: number
  readonly rate: number
  readonly p50Us: number
  readonly p99Us: number
  readonly cpuUs: number
  readonly failed: number
}

async function main(): Promise<void> {
  checkKit()
  const kit = buildKit(folder)
  const origin = await startOrigin(kit.origin, ORIGIN_BASE)
  const proxies: Proxy[] = []
  const turns: Turn[] = []
  try {
    proxies.push(await startSquid(FIRST_PORT))
    for (const [at, flags] of ['', ...values.flags.split('|').filter((text) => text !== '')].entries())
      proxies.push(await startGateway(`gateway ${flags}`.trim(), FIRST_PORT + 1 + at, flags.split(' ')))
    const turn = async (proxy: Proxy, at: string, round: number, rate: number): Promise<Turn> => {
      const how = ['--rate', String(rate), '--conns', '4000', '--src-count', '8', '--duration', values.seconds]
      const who = proxy.tokens === undefined ? [] : ['--auth-file', proxy.tokens]
      const startedCpu = processorSeconds(proxy.child.pid!)
      const result = await openTunnels(kit.loadgen, proxy.port, ORIGIN_BASE, [...how, ...who])
      const cpuUs = ((processorSeconds(proxy.child.pid!) - startedCpu) * 1e6) / Math.max(1, result.ok)
      const { p50, p99 } = result.connect_us
      return { name: proxy.name, at, round, rate, p50Us: p50, p99Us: p99, cpuUs, failed: result.errors }
    }
    const halves = new Map<Proxy, number>()
    for (const proxy of proxies)
      for (let count = 0; count < WARM_TURNS; count++) {
        const { cpuUs } = await turn(proxy, 'warm', 0, 2000)
        halves.set(proxy, Math.round(5e5 / cpuUs))
      }
    for (let round = 1; round <= Number(values.rounds); round++)
      for (const at of values.rates.split(' '))
        // Whoever comes first in a round is another one each time.
        for (const index of proxies.keys()) {
          const proxy = proxies[(index + round) % proxies.length]!
          turns.push(await turn(proxy, at, round, at === 'half' ? halves.get(proxy)! : Number(at)))
        }
    for (const at of values.rates.split(' ')) report(at, proxies, turns)
  } finally {
    for (const { child } of proxies) {
      child.kill()
      await once(child, 'exit')
    }
    origin.kill()
  }
  if (values.json !== undefined) fs.writeFileSync(values.json, `${JSON.stringify(turns, null, 2)}\n`)
}

function report(at: string, proxies: readonly Proxy[], turns: readonly Turn[]): void {
  console.log(
    [`at ${at}`, 'a second', 'median ms', 'p99 ms', 'p99 to squid (least-most)', 'CPU µs', 'failed'].join('\t'),
  )
  const of = (name: string) => turns.filter((turn) => turn.at === at && turn.name === name)
  const squid = of('squid')
  for (const { name } of proxies) {
    const own = of(name)
    const ratios = own.map(({ p99Us, round }) => p99Us / (squid.find((turn) => turn.round === round)?.p99Us ?? NaN))
    const of1 = (key: 'p50Us' | 'p99Us' | 'cpuUs' | 'rate') => median(own.map((turn) => turn[key]))
    const spread = `${median(ratios).toFixed(2)} (${Math.min(...ratios).toFixed(2)}-${Math.max(...ratios).toFixed(2)})`
    const [p50, p99] = [of1('p50Us') / 1000, of1('p99Us') / 1000]
    const failed = own.reduce((sum, turn) => sum + turn.failed, 0)
    console.log([name, of1('rate'), p50.toFixed(2), p99.toFixed(2), spread, of1('cpuUs').toFixed(0), failed].join('\t'))
  }
}

async function startGateway(name: string, port: number, flags: readonly string[]): Promise<Proxy> {
  const own = path.join(folder, String(port))
  fs.mkdirSync(own)
  const { config, tokens } = await prepareBench(own, { port, tokens: TOKENS, entries: 20 })
  const program = path.join(import.meta.dirname, 'gateway.ts')
  return started(name, port, [process.execPath, ...flags.filter((flag) => flag !== ''), program, config], tokens)
}

/** As the kit configures it. */
async function startSquid(port: number): Promise<Proxy> {
  const file = path.join(folder, 'squid.conf')
  const lines = [
    `http_port ${HOST}:${port}`,
    'acl lo src 127.0.0.0/8',
    'http_access allow lo',
    'http_access deny all',
    'cache deny all',
    'access_log none',
    'cache_log /dev/null',
    'pid_filename none',
    'shutdown_lifetime 0 seconds',
    'visible_hostname bench',
    'via off',
    'pinger_enable off',
    'netdb_filename none',
  ]
  fs.writeFileSync(file, `${lines.join('\n')}\n`)
  fs.chmodSync(folder, 0o755)
  return started('squid', port, ['squid', '-N', '-f', file])
}

async function started(name: string, port: number, command: readonly string[], tokens?: string): Promise<Proxy> {
  const child = spawn('taskset', ['-c', core, ...command], { stdio: ['ignore', 'ignore', 'inherit'] })
  const ended = once(child, 'exit').then(([code]) => Promise.reject(new Error(`${name} ended with ${String(code)}`)))
  await Promise.race([reachable(port), ended])
  ended.catch(() => undefined)
  return { name, port, child, ...(tokens !== undefined && { tokens }) }
}

function median(values: readonly number[]): number {
  return [...values].sort((one, other) => one - other)[Math.floor(values.length / 2)] ?? NaN
}
