/**
 * What does one decision cost? Reads the target, decides on the name and again on what it resolved to, under four layers:
 * with 5 and with 500 entries. Run: `node bench/decision.ts`. CPU time of this process, so other load shows little.
 */
import {
  compileDeniedHosts,
  compilePolicy,
  decideAddresses,
  decideName,
  parseAddress,
  parseAuthority,
  parseNetworkRules,
  type Checked,
  type CompiledPolicy,
  type Layers,
  type Parsed,
} from '../policies/index.ts'

const ROUNDS = 300_000
const FILE = { from: 'file' } as const

const network = allOf(parseNetworkRules({ allowPrivate: ['10.20.0.0/16'] }))
const addresses = ['140.82.121.6', '2606:50c0:8000::154'].map((text) => valueOf(parseAddress(text)))
/** Fresh text for every connection, as it comes from a socket: no hash of it is known yet. */
const targets = ['api.github.com:443', 'a.b.zone1.example.net:443', '8.8.0.9:443'].map((text) => Buffer.from(text))

for (const count of [5, 500, 100_000]) {
  const layers = layersOf(count)
  for (const target of targets) {
    const nanoseconds = measure(() => {
      const destination = valueOf(parseAuthority(target.toString('latin1')))
      const byName = decideName(layers, destination, network)
      return byName.effective === 'allow' && decideAddresses(layers, destination, addresses, network)
    })
    process.stdout.write(`${String(count).padStart(6)} entries  ${target.toString().padEnd(28)} ${nanoseconds} ns\n`)
  }
}

function layersOf(count: number): Layers {
  const kinds = [
    (index: number): string => `*.zone${index}.example.net`,
    (index: number): string => `service-${index}.example.com`,
    (index: number): string => `2001:db9:${index.toString(16)}::/48`,
    (index: number): string => `8.8.${index % 256}.0/24`,
    (index: number): string => `host-${index}.example.org:8000-8100`,
  ]
  const entries = Array.from({ length: count }, (_unused, index) => kinds[index % 5]?.(1 + index - (index % 5)) ?? '')
  const allowedHosts = [...entries, '8.8.0.0/24', 'api.github.com']
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

function measure(run: () => unknown): number {
  for (let round = 0; round < ROUNDS / 4; round += 1) run()
  const before = process.cpuUsage()
  for (let round = 0; round < ROUNDS; round += 1) if (run() === false) throw new Error('this should be allowed')
  const { user, system } = process.cpuUsage(before)
  return Math.round(((user + system) * 1000) / ROUNDS)
}

function valueOf<T>(result: Parsed<T>): T {
  if (!result.ok) throw new Error(result.fault.message)
  return result.value
}

function allOf<T>(result: Checked<T>): T {
  if (!result.ok) throw new Error(result.faults.map(({ message }) => message).join('; '))
  return result.value
}
