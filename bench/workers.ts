/**
 * What a tunnel costs with `workers: 2`, next to one process, by turns: `node bench/workers.ts [--turns 12] [--seconds 3] [--warm 20] [--core 1] [--other CHECKOUT]`.
 * And next to two gateways of one process each that share nothing, with half of the connections each: what two processes on one core cost by themselves.
 * All processes stay, and are warm; everything of a gateway is on one core, the generator and the origin on another, so that what is seen is the CPU time of
 * each process and their sum: two cores that also carry the generator can't show two workers at full speed. `--other` measures another checkout too, with one
 * process. `BENCH_KIT` names the folder of the load generator (default `../shared/bench`); it needs gcc and taskset.
 */
import { execFile, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { parseArgs, promisify } from 'node:util'
import { processorSeconds } from './bench-gateway.ts'
import { prepareBench } from './prepare.ts'

const ROOT = path.resolve(import.meta.dirname, '..')
const { values } = parseArgs({
  options: {
    turns: { type: 'string', default: '12' },
    seconds: { type: 'string', default: '3' },
    warm: { type: 'string', default: '20' },
    core: { type: 'string', default: '1' },
    other: { type: 'string' },
  },
})
const kit = path.resolve(ROOT, process.env['BENCH_KIT'] ?? '../shared/bench')
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-bench-'))
const gatewayCore = Number(values.core)
const otherCore = String(gatewayCore === 0 ? 1 : 0)
/** Becomes the program that it is given, on one core. */
const PINNED: string = 'taskset'
/** Ended at the end. */
const started: { kill: (signal: NodeJS.Signals) => unknown }[] = []

interface Contender {
  readonly name: string
  /** Each with an equal part of the connections. */
  readonly ways: readonly { readonly port: number; readonly tokens: string }[]
  /** The one that was started, and its workers. */
  readonly processes: readonly number[]
  /** CPU µs a tunnel in each turn, of each process. */
  readonly turns: (readonly number[])[]
}

try {
  for (const program of ['loadgen', 'origin'])
    execFileSync('gcc', [
      '-O2',
      '-w',
      '-o',
      path.join(folder, program),
      path.join(kit, `${program}.c`),
      '-lpthread',
      '-lm',
    ])
  start(otherCore, path.join(folder, 'origin'), ['--write', '--base', '9000', '--addrs', '127.0.0.1,127.0.0.2'])
  const contenders = [
    await startGateway('one process', ROOT, 3141, 1),
    await startGateway('two workers', ROOT, 3142, 2),
    both('two gateways', await startGateway('', ROOT, 3144, 1), await startGateway('', ROOT, 3145, 1)),
    ...(values.other === undefined
      ? []
      : [await startGateway('other, one process', path.resolve(values.other), 3143, 1)]),
  ]
  // The first turn is the compiler's: a worker has half of the connections, and takes twice as long to be warm.
  for (const contender of contenders) await turn(contender, String(Number(values.warm) * contender.processes.length))
  for (const { turns } of contenders) turns.length = 0
  for (let count = 0; count < Number(values.turns); count++) for (const contender of contenders) await turn(contender)
  report(contenders)
} finally {
  for (const one of started) one.kill('SIGTERM')
  await new Promise((resolve) => setTimeout(resolve, 3_000))
  fs.rmSync(folder, { recursive: true, force: true })
}

async function startGateway(name: string, checkout: string, port: number, workers: number): Promise<Contender> {
  const own = path.join(folder, String(port))
  fs.mkdirSync(own)
  const { config, tokens } = await prepareBench(own, { port, tokens: 500, entries: 20 })
  if (workers > 1) fs.appendFileSync(config, `workers: ${workers}\n`)
  const args = [path.join(checkout, 'provider/cli/bin.ts'), 'serve', '--config', config]
  const child = start(String(gatewayCore), process.execPath, args, own)
  if (child.pid === undefined) throw new Error(`${name} did not start`)
  // It says where it listens once all of it does.
  await once(child.stdout.resume(), 'data')
  const children = fs.readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8').trim()
  const processes = [child.pid, ...children.split(' ').filter(Boolean).map(Number)]
  return { name, ways: [{ port, tokens }], processes, turns: [] }
}

function both(name: string, one: Contender, other: Contender): Contender {
  return { name, ways: [...one.ways, ...other.ways], processes: [...one.processes, ...other.processes], turns: [] }
}

/** `taskset` becomes the program, so the process is the one that is measured. */
function start(core: string, program: string, args: readonly string[], cwd = folder) {
  const child = spawn(PINNED, ['-c', core, program, ...args], { cwd, stdio: ['ignore', 'pipe', 'inherit'] })
  started.push(child)
  void once(child, 'exit')
  return child
}

async function turn({ ways, processes, turns }: Contender, seconds = values.seconds): Promise<void> {
  const before = processes.map(processorSeconds)
  const runs = ways.map(({ port, tokens }) =>
    promisify(execFile)(PINNED, [
      ...['-c', otherCore, path.join(folder, 'loadgen'), '--proxy', `127.0.0.1:${port}`, '--write', '--src-count', '8'],
      ...['--auth-file', tokens, '--mode', 'connect-rate', '--target', '127.0.0.1:9001,127.0.0.2:9001'],
      ...['--conns', String(64 / ways.length), '--echo', '64', '--warmup', '0', '--duration', seconds],
    ]),
  )
  const tunnels = sum(
    (await Promise.all(runs)).map(({ stdout }) => (JSON.parse(stdout) as { tunnels: number }).tunnels),
  )
  turns.push(processes.map((pid, index) => ((processorSeconds(pid) - (before[index] ?? 0)) / tunnels) * 1e6))
}

function report(contenders: readonly Contender[]): void {
  const base = contenders[0]?.turns.map(sum) ?? []
  console.log(
    ['gateway', 'CPU µs a tunnel, median', 'of each process', 'to one process, median (least-most)'].join('\t'),
  )
  for (const { name, turns, processes } of contenders) {
    const each = processes.map((_pid, index) => median(turns.map((one) => one[index] ?? 0)).toFixed(0))
    const ratios = turns.map((one, index) => sum(one) / (base[index] ?? NaN))
    const spread = `${median(ratios).toFixed(2)} (${Math.min(...ratios).toFixed(2)}-${Math.max(...ratios).toFixed(2)})`
    console.log([name, median(turns.map(sum)).toFixed(0), each.join(' + '), spread].join('\t'))
  }
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, one) => total + one, 0)
}

function median(numbers: readonly number[]): number {
  const sorted = [...numbers].sort((one, other) => one - other)
  return sorted[Math.floor(sorted.length / 2)] ?? NaN
}
