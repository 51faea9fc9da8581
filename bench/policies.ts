/** What do reading, compiling and deciding cost? Run: `node bench/policies.ts`; prints the medians, `--json` all that was measured. */
import { parseArgs } from 'node:util'
import { Bench } from 'tinybench'
import {
  compileDeniedHosts,
  compilePolicy,
  decideAddresses,
  decideName,
  explain,
  parseAddress,
  parseAuthority,
  parseEntry,
  parseNetworkRules,
  parsePolicy,
  type Checked,
  type CompiledPolicy,
  type Layers,
  type Parsed,
} from '../policies/index.ts'

/** Of what takes a microsecond, so many together are one sample: the clock takes its time too. */
const BATCH = 100
const FILE = { from: 'file' } as const

const { values: options } = parseArgs({ options: { json: { type: 'boolean', default: false } } })
const network = allOf(parseNetworkRules({ allowPrivate: ['10.20.0.0/16'] }))
const addresses = ['140.82.121.6', '2606:50c0:8000::154'].map((text) => valueOf(parseAddress(text)))
/** Fresh text for every connection, as it comes from a socket: no hash of it is known yet. */
const targets = {
  'an exact name': Buffer.from('api.github.com:443'),
  'a wildcard': Buffer.from('a.b.zone1.example.net:443'),
  'an address': Buffer.from('8.8.0.9:443'),
}

const bench = new Bench({ time: 500, warmupTime: 250 })
const per = new Map<string, number>()

few('read a target', () => valueOf(parseAuthority(targets['an exact name'].toString('latin1'))))
few('read an entry: name', () => valueOf(parseEntry('host-7.example.org:8000-8100', FILE)))
few('read an entry: wildcard', () => valueOf(parseEntry('*.zone7.example.net', FILE)))
few('read an entry: range', () => valueOf(parseEntry('2001:db9:7::/48', FILE)))
for (const count of [5, 500, 100_000]) {
  const layers = layersOf(count)
  for (const [kind, target] of Object.entries(targets)) {
    few(`decide, ${count.toLocaleString('en')} entries: ${kind}`, () => {
      const destination = valueOf(parseAuthority(target.toString('latin1')))
      const byName = decideName(layers, destination, network)
      return byName.effective === 'allow' && decideAddresses(layers, destination, addresses, network)
    })
  }
}
const explained = layersOf(500)
few('explain, 500 entries', () =>
  explain(explained, valueOf(parseAuthority(targets['a wildcard'].toString('latin1'))), addresses, network),
)
const claim = JSON.stringify({ kind: 'static', allowedHosts: entries(500) })
one('a claim of 500 entries that is in use', () => allOf(parsePolicy(JSON.parse(claim), FILE)))
for (const count of [500, 10_000, 100_000]) {
  const allowedHosts = entries(count)
  let turn = 0
  one(`compile ${count.toLocaleString('en')} entries`, () => {
    // Another list each time: equal ones are compiled once.
    allowedHosts[0] = `turn-${turn++}.example.com`
    allOf(compilePolicy({ kind: 'static', allowedHosts }, FILE))
  })
}

await bench.run()
const measured = bench.tasks.map(({ name, result }) => {
  if (!('latency' in result)) throw new Error(`${name} failed`, { cause: 'error' in result ? result.error : undefined })
  const { p50, p75, samplesCount } = result.latency
  const nanoseconds = (ms: number) => Math.round((ms * 1e6) / (per.get(name) ?? 1))
  return { name, nanoseconds: nanoseconds(p50), p75: nanoseconds(p75), samples: samplesCount }
})
if (options.json) process.stdout.write(`${JSON.stringify(measured, null, 2)}\n`)
else
  for (const { name, nanoseconds } of measured)
    process.stdout.write(`${name.padEnd(42)} ${nanoseconds.toLocaleString('en').padStart(14)} ns\n`)

function few(name: string, run: () => unknown): void {
  per.set(name, BATCH)
  bench.add(name, () => {
    for (let round = 0; round < BATCH; round += 1) if (run() === false) throw new Error('this should be allowed')
  })
}

function one(name: string, run: () => unknown): void {
  bench.add(name, run)
}

function layersOf(count: number): Layers {
  const allowedHosts = [...entries(count - 2), '8.8.0.0/24', 'api.github.com']
  const policy = allOf<CompiledPolicy>(
    compilePolicy({ kind: 'static', allowedHosts, deniedHosts: ['198.41.0.0/24'] }, FILE),
  )
  return {
    version: 'bench',
    layers: [
      { name: 'ceiling', mode: 'enforce', policy: allOf(compileDeniedHosts(['metadata.google.internal'], FILE)) },
      { name: 'ceiling', mode: 'enforce', policy: { kind: 'allow-all' } },
      { name: 'tenant', mode: 'enforce', policy },
      { name: 'claim', mode: 'enforce', policy },
    ],
  }
}

/** Names, wildcards, ranges of both families and ports, in turn; each is another one. */
function entries(count: number): string[] {
  const kinds = [
    (index: number): string => `*.zone${index}.example.net`,
    (index: number): string => `service-${index}.example.com`,
    (index: number): string => `2001:d0${index >> 16}:${((index % 65_535) + 1).toString(16)}::/48`,
    (index: number): string => `${20 + (index >> 16)}.${(index >> 8) % 256}.${index % 256}.0/24`,
    (index: number): string => `host-${index}.example.org:8000-8100`,
  ]
  return Array.from({ length: count }, (_unused, index) => kinds[index % 5]?.(1 + index - (index % 5)) ?? '')
}

function valueOf<T>(result: Parsed<T>): T {
  if (!result.ok) throw new Error(result.fault.message)
  return result.value
}

function allOf<T>(result: Checked<T>): T {
  if (!result.ok) throw new Error(result.faults.map(({ message }) => message).join('; '))
  return result.value
}
