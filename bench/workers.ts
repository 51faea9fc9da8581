/**
 * What a tunnel costs with `workers: 2`, next to one process, by turns: `node bench/workers.ts [--turns 12] [--seconds 3] [--warm 20] [--core 1] [--other CHECKOUT]`.
 * And next to two gateways of one process each that share nothing, with half of the connections each: what two processes on one core cost by themselves.
 * All processes stay, and are warm; everything of a gateway is on one core, the generator and the origin on another, so that what is seen is the CPU time of
 * each process and their sum: two cores that also carry the generator can't show two workers at full speed. `--other` measures another checkout too, with one
 * process.
 *
 * With `--rate 300` the other way round: each worker on a core of its own, where a generator asks for so many tunnels a second, well below what a core can do, next to one
 * process on one of these cores with the same beside it (one core after the other), and to two such processes at once, each asked from its own core or from the other; workers are asked from
 * both, by half. What differs beyond that is what workers share. `BENCH_KIT` names the folder of the load generator (default `../shared/bench`); it needs gcc and taskset.
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
    rate: { type: 'string' },
  },
})
const kit = path.resolve(ROOT, process.env['BENCH_KIT'] ?? '../shared/bench')
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-bench-'))
const gatewayCore = Number(values.core)
const otherCore = gatewayCore === 0 ? 1 : 0
const CORES = [otherCore, gatewayCore]
/** Tunnels a second for each core, where every process has one of its own. */
const { rate } = values
const ADDRESSES = ['127.0.0.1', '127.0.0.2']
/** Becomes the program that it is given, on the cores that it is given. */
const PINNED: string = 'taskset'
/** Ended at the end. */
const started: { kill: (signal: NodeJS.Signals) => unknown }[] = []

interface Contender {
  readonly name: string
  /** Each with an equal part of the connections, and its generator on a core. */
  readonly ways: readonly { readonly port: number; readonly tokens: string; readonly core: number }[]
  /** The ways are used one after the other. */
  readonly inTurn?: boolean
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
  for (const core of CORES)
    start(`${core}`, path.join(folder, 'origin'), [
      '--write',
      '--base',
      `${originPort(core)}`,
      '--addrs',
      ADDRESSES.join(),
    ])
  const contenders = rate === undefined ? await onOneCore() : await onOwnCores()
  // The first turn is the compiler's: a worker has half of the connections, and takes twice as long to be warm.
  for (const contender of contenders) await turn(contender, `${Number(values.warm) * contender.processes.length}`)
  for (const { turns } of contenders) turns.length = 0
  for (let count = 0; count < Number(values.turns); count++)
    for (const contender of contenders) await turn(contender, values.seconds, rate)
  report(contenders)
} finally {
  for (const one of started) one.kill('SIGTERM')
  await new Promise((resolve) => setTimeout(resolve, 3_000))
  fs.rmSync(folder, { recursive: true, force: true })
}

async function onOneCore(): Promise<readonly Contender[]> {
  const core = `${gatewayCore}`
  const { other } = values
  return [
    await startGateway('one process', ROOT, 3141, 1, core),
    await startGateway('two workers', ROOT, 3142, 2, core),
    both('two gateways', await startGateway('', ROOT, 3144, 1, core), await startGateway('', ROOT, 3145, 1, core)),
    ...(other === undefined ? [] : [await startGateway('other, one process', path.resolve(other), 3143, 1, core)]),
  ]
}

async function onOwnCores(): Promise<readonly Contender[]> {
  const [one, other] = CORES as [number, number]
  const alone = both(
    'one process, first on one core, then on the other',
    await startGateway('', ROOT, 3141, 1, `${one}`),
    onCore(await startGateway('', ROOT, 3142, 1, `${other}`), other),
  )
  const workers = await startGateway('two workers', ROOT, 3143, 2, CORES.join())
  const [, ...children] = workers.processes
  for (const [index, pid] of children.entries())
    execFileSync(PINNED, ['-a', '-p', '-c', `${CORES[index] ?? one}`, `${pid}`], { stdio: 'ignore' })
  return [
    { ...alone, inTurn: true },
    { ...alone, name: 'two gateways at once', turns: [] },
    {
      ...alone,
      name: 'two gateways at once, each from the other core',
      ways: alone.ways.map((way) => ({ ...way, core: way.core === one ? other : one })),
      turns: [],
    },
    { ...workers, ways: CORES.flatMap((core) => onCore(workers, core).ways) },
  ]
}

async function startGateway(
  name: string,
  checkout: string,
  port: number,
  workers: number,
  cores: string,
): Promise<Contender> {
  const own = path.join(folder, String(port))
  fs.mkdirSync(own)
  const { config, tokens } = await prepareBench(own, { port, tokens: 500, entries: 20 })
  if (workers > 1) fs.appendFileSync(config, `workers: ${workers}\n`)
  const args = [path.join(checkout, 'provider/cli/bin.ts'), 'serve', '--config', config]
  const child = start(cores, process.execPath, args, own)
  if (child.pid === undefined) throw new Error(`${name} did not start`)
  // It says where it listens once all of it does.
  await once(child.stdout.resume(), 'data')
  const children = fs.readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8').trim()
  const processes = [child.pid, ...children.split(' ').filter(Boolean).map(Number)]
  return { name, ways: [{ port, tokens, core: otherCore }], processes, turns: [] }
}

/** Its generator on another core. */
function onCore(contender: Contender, core: number): Contender {
  return { ...contender, ways: contender.ways.map((way) => ({ ...way, core })) }
}

function both(name: string, one: Contender, other: Contender): Contender {
  return { name, ways: [...one.ways, ...other.ways], processes: [...one.processes, ...other.processes], turns: [] }
}

/** `taskset` becomes the program, so the process is the one that is measured. */
function start(cores: string, program: string, args: readonly string[], cwd = folder) {
  const child = spawn(PINNED, ['-c', cores, program, ...args], { cwd, stdio: ['ignore', 'pipe', 'inherit'] })
  started.push(child)
  void once(child, 'exit')
  return child
}

async function turn({ ways, inTurn, processes, turns }: Contender, seconds: string, perSecond?: string): Promise<void> {
  const before = processes.map(processorSeconds)
  let tunnels = 0
  const use = async ({ port, tokens, core }: Contender['ways'][number]): Promise<void> => {
    const { stdout } = await promisify(execFile)(PINNED, [
      ...['-c', `${core}`, path.join(folder, 'loadgen'), '--proxy', `127.0.0.1:${port}`, '--write', '--src-count', '8'],
      ...['--auth-file', tokens, '--mode', 'connect-rate'],
      ...['--target', ADDRESSES.map((address) => `${address}:${originPort(core) + 1}`).join()],
      ...['--conns', `${64 / ways.length}`, '--echo', '64', '--warmup', '0', '--duration', seconds],
      ...(perSecond === undefined ? [] : ['--rate', perSecond]),
    ])
    tunnels += (JSON.parse(stdout) as { tunnels: number }).tunnels
  }
  if (inTurn === true) for (const way of ways) await use(way)
  else await Promise.all(ways.map(use))
  turns.push(processes.map((pid, index) => ((processorSeconds(pid) - (before[index] ?? 0)) / tunnels) * 1e6))
}

/** Its echo is on the next port. */
function originPort(core: number): number {
  return 9_000 + 100 * core
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
