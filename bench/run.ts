/**
 * `npm run bench -- [--rounds 3] [--modes 'rate lat down up idle mixed'] [--tokens 500] [--entries 20] [--peers 'relay squid tinyproxy …'] [--json FILE] [--check]`
 * Compares the gateway with its peers in one interleaved run on one core, and prints medians and ratios to squid, by round. `BENCH_KIT` names the folder of
 * the load generator (default `../shared/bench`); it needs gcc, jq, taskset and squid. `--peers all` takes all that `peers.ts` knows and this machine has. `--check` ends with 1 when CPU for each tunnel or GiB is more than
 * a tenth above the ratio that `bench/kept-ratios.json` holds.
 */
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { PEERS, peers } from './peers.ts'
import { hasHaproxy, measureHaproxy } from './plain-relay.ts'
import { prepareBench } from './prepare.ts'

const ROOT = path.resolve(import.meta.dirname, '..')
const PORT = 3139
const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '3' },
    modes: { type: 'string', default: 'rate lat down up idle mixed' },
    tokens: { type: 'string', default: '500' },
    entries: { type: 'string', default: '20' },
    peers: { type: 'string', default: 'relay squid' },
    profile: { type: 'string' },
    json: { type: 'string' },
    check: { type: 'boolean', default: false },
  },
})
/** A process of each round is measured so often, five seconds each: the first time it is cold, the last time warm. */
const RATES = 4
/** Peers that the kit starts itself. */
const KIT: readonly string[] = ['relay', 'squid']
/** Relays TCP without a request; measured without the kit's script. */
const PLAIN = 'haproxy'
const KEPT = path.join(import.meta.dirname, 'kept-ratios.json')
const kit = path.resolve(ROOT, process.env['BENCH_KIT'] ?? '../shared/bench')
if (!fs.existsSync(path.join(kit, 'compare.sh'))) {
  console.error(`no load generator in ${kit}; set BENCH_KIT`)
  process.exit(3)
}
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-bench-'))
try {
  const { config, tokens } = await prepareBench(folder, {
    port: PORT,
    tokens: Number(values.tokens),
    entries: Number(values.entries),
  })
  const profile = values.profile === undefined ? '' : `--cpu-prof --cpu-prof-dir=${path.resolve(values.profile)} `
  const out = path.join(folder, 'results.jsonl')
  const modes = values.modes.replace(/\brate\b/, Array(RATES).fill('rate').join(' '))
  const wanted = values.peers === 'all' ? [...KIT, ...PEERS, ...(hasHaproxy() ? [PLAIN] : [])] : values.peers.split(' ')
  const ofKit = wanted.filter((name) => KIT.includes(name))
  const others = peers(
    wanted.filter((name) => !KIT.includes(name) && name !== PLAIN),
    folder,
    PORT,
  )
  const own = `${process.execPath} ${profile}${path.join(ROOT, 'bench/gateway.ts')} ${config}`
  for (let round = 1; round <= Number(values.rounds); round++) {
    compare(['--name', 'sallyport', '--cmd', own, '--auth', tokens, '--peers', ofKit.join(' ')], round)
    for (const { name, command } of others) compare(['--name', name, '--cmd', command, '--peers', ''], round)
    if (wanted.includes(PLAIN))
      for (const row of await measureHaproxy(folder, modes.split(' '), round))
        fs.appendFileSync(out, `${JSON.stringify(row)}\n`)
  }

  function compare(args: readonly string[], round: number): void {
    const own = path.join(folder, 'round.jsonl')
    const all = [...args, '--port', String(PORT), '--rounds', '1', '--modes', modes, '--out', own]
    const run = spawnSync(path.join(kit, 'compare.sh'), all, { stdio: ['ignore', 'ignore', 'inherit'] })
    if (run.status !== 0) process.exitCode = 1
    for (const line of fs.existsSync(own) ? fs.readFileSync(own, 'utf8').trim().split('\n') : [])
      if (line !== '') fs.appendFileSync(out, `${JSON.stringify({ ...(JSON.parse(line) as Row), round })}\n`)
    fs.rmSync(own, { force: true })
  }
  const lines = fs.readFileSync(out, 'utf8').trim().split('\n')
  const results = measured(lines.map((line) => JSON.parse(line) as Row))
  print(results)
  if (values.json !== undefined) fs.writeFileSync(values.json, `${JSON.stringify(results, null, 2)}\n`)
  if (values.check && !isKept(results)) process.exitCode = 1
} finally {
  fs.rmSync(folder, { recursive: true, force: true })
}

type Row = Readonly<Record<string, number | string>>

/** One figure: for each name its value in each round, and the ratios to squid in the same round. */
interface Figure {
  readonly key: string
  readonly title: string
  readonly values: Readonly<Record<string, readonly number[]>>
  readonly toSquid: Readonly<Record<string, readonly number[]>>
}

function measured(rows: readonly Row[]): readonly Figure[] {
  const names = [...new Set(rows.map((row) => String(row['label'])))].filter(
    (name) => name !== 'bulk' && name !== 'mixed',
  )
  const figure = (key: string, mode: string, field: string, title: string, nth: number, quantile = 'p50'): Figure => {
    const valuesOf = (name: string): readonly number[] =>
      [...new Set(rows.map((row) => row['round']))]
        .map((round) =>
          rows.filter((row) => row['m'] === mode && row['label'] === name && row['round'] === round).at(nth),
        )
        .flatMap((row) => (row === undefined ? [] : [valueOf(row, field, quantile)]))
    const all = Object.fromEntries(names.map((name) => [name, valuesOf(name)]))
    const squid = all['squid'] ?? []
    const ratios = names.map((name) => [name, (all[name] ?? []).map((value, round) => value / (squid[round] ?? NaN))])
    return { key, title, values: all, toSquid: Object.fromEntries(ratios) as Figure['toSquid'] }
  }
  return [
    figure('rate', 'rate', 'cpu_us_per_tunnel', 'CPU µs a tunnel, warm', -1),
    figure('rateCold', 'rate', 'cpu_us_per_tunnel', 'CPU µs a tunnel, seconds 1 to 5', 0),
    figure('down', 'down', 'cpu_ms_per_gib', 'CPU ms a GiB down', 0),
    figure('up', 'up', 'cpu_ms_per_gib', 'CPU ms a GiB up', 0),
    figure('both', 'both', 'cpu_ms_per_gib', 'CPU ms a GiB both ways', 0),
    figure('rtt', 'rtt', 'cpu_us_per_msg', 'CPU µs a message', 0),
    figure('idle', 'idle', 'rss_bytes_per_tunnel', 'bytes an idle tunnel', 0),
    figure('mixed', 'mixed', 'connect_us', 'µs to CONNECT beside bulk, median', 0),
    figure('mixedP99', 'mixed', 'connect_us', 'µs to CONNECT beside bulk, p99', 0, 'p99'),
    figure('mixedBulk', 'bulk', 'cpu_ms_per_gib', 'CPU ms a GiB of that bulk, the CONNECTs included', 0),
    figure('latency', 'lat', 'connect_us', 'µs to CONNECT at 1,000 a second, median', 0),
    figure('latencyP99', 'lat', 'connect_us', 'µs to CONNECT at 1,000 a second, p99', 0, 'p99'),
  ].filter(({ values }) => Object.values(values).some((list) => list.length > 0))
}

/** A latency is an object of quantiles. */
function valueOf(row: Row, field: string, quantile: string): number {
  const value: unknown = row[field]
  return Number(typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[quantile] : value)
}

function print(figures: readonly Figure[]): void {
  const names = Object.keys(figures[0]?.values ?? {})
  console.log(['figure', ...names, 'sallyport to squid, median (least-most)'].join('\t'))
  for (const { title, values, toSquid } of figures) {
    const ratios = toSquid['sallyport'] ?? []
    const spread = `${median(ratios).toFixed(2)} (${Math.min(...ratios).toFixed(2)}-${Math.max(...ratios).toFixed(2)})`
    console.log([title, ...names.map((name) => median(values[name] ?? []).toFixed(0)), spread].join('\t'))
  }
}

/** Whether CPU has not grown by more than a tenth against squid. */
function isKept(figures: readonly Figure[]): boolean {
  const kept = JSON.parse(fs.readFileSync(KEPT, 'utf8')) as Readonly<Record<string, number>>
  const worse = figures.flatMap(({ key, title, toSquid }) => {
    const [now, before] = [median(toSquid['sallyport'] ?? []), kept[key]]
    return before !== undefined && now > before * 1.1
      ? [`${title}: ${now.toFixed(2)} of squid's, kept ${before.toFixed(2)}`]
      : []
  })
  for (const line of worse) console.error(`worse than kept: ${line}`)
  return worse.length === 0
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN
}
