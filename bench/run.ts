/**
 * `npm run bench -- [--rounds 3] [--modes 'rate down up idle mixed'] [--tokens 500] [--entries 20] [--peers 'relay squid']`
 * Compares the gateway with its peers in one interleaved run on one core, and prints ratios of medians. `BENCH_KIT` names the folder of the load
 * generator (default `../shared/bench`); it needs gcc, jq, taskset and squid.
 */
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { prepareBench } from './prepare.ts'

const ROOT = path.resolve(import.meta.dirname, '..')
const PORT = 3139
const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '3' },
    modes: { type: 'string', default: 'rate down up idle mixed' },
    tokens: { type: 'string', default: '500' },
    entries: { type: 'string', default: '20' },
    peers: { type: 'string', default: 'relay squid' },
    profile: { type: 'string' },
  },
})
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
  const args = [
    '--name',
    'sallyport',
    '--port',
    String(PORT),
    '--cmd',
    `${process.execPath} ${profile}${path.join(ROOT, 'bench/gateway.ts')} ${config}`,
  ]
  args.push('--auth', tokens, '--rounds', values.rounds, '--modes', values.modes, '--peers', values.peers, '--out', out)
  const run = spawnSync(path.join(kit, 'compare.sh'), args, { stdio: ['ignore', 'ignore', 'inherit'] })
  if (run.status !== 0) process.exitCode = 1
  printTable(
    fs
      .readFileSync(out, 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Row),
  )
} finally {
  fs.rmSync(folder, { recursive: true, force: true })
}

type Row = Readonly<Record<string, number | string>>

function printTable(rows: readonly Row[]): void {
  const figures: readonly [mode: string, field: string, title: string][] = [
    ['rate', 'cpu_us_per_tunnel', 'CPU µs a tunnel'],
    ['down', 'cpu_ms_per_gib', 'CPU ms a GiB down'],
    ['up', 'cpu_ms_per_gib', 'CPU ms a GiB up'],
    ['both', 'cpu_ms_per_gib', 'CPU ms a GiB both'],
    ['rtt', 'cpu_us_per_msg', 'CPU µs a message'],
    ['idle', 'rss_bytes_per_tunnel', 'bytes an idle tunnel'],
    ['mixed', 'connect_us', 'µs to CONNECT beside bulk, median'],
  ]
  const names = [...new Set(rows.map((row) => String(row['label'])))].filter(
    (name) => name !== 'bulk' && name !== 'mixed',
  )
  console.log(['figure', ...names].join('\t'))
  for (const [mode, field, title] of figures) {
    const cells = names.map((name) =>
      median(
        rows.filter((row) => row['m'] === mode && row['label'] === name).map((row) => Number(valueOf(row, field))),
      ),
    )
    if (cells.some((cell) => !Number.isNaN(cell)))
      console.log([title, ...cells.map((cell) => (Number.isNaN(cell) ? '-' : cell.toFixed(0)))].join('\t'))
  }
}

/** A latency is an object of quantiles. */
function valueOf(row: Row, field: string): unknown {
  const value: unknown = row[field]
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>)['p50'] : value
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN
}
