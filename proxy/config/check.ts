/** What the schema can't see: whether ranges, names, addresses and entries mean something. The parsers of `policies/` decide that. */
import { isIP } from 'node:net'
import { parseAddress } from '../../policies/address.ts'
import { parseEntry, type EntryContext } from '../../policies/entry.ts'
import { parseHostName } from '../../policies/host.ts'
import { quoted, type Checked, type Fault, type LocatedFault } from '../../policies/parsed.ts'
import { compileDeniedHosts, compilePolicy, parseSets, type EgressPolicyData } from '../../policies/policy.ts'
import { parseNetworkRules } from '../../policies/special-purpose.ts'
import { pathKeys, type RawFault } from './faults.ts'
import type { Config } from './schema.ts'
import { suggest } from './suggest.ts'

/** What entries are read with. */
export interface MeaningContext {
  /** The hosts behind `@npm` and `@apt`, where they were read; absent: both are accepted, and empty. */
  readonly machineSets?: Readonly<Record<string, readonly string[]>>
}

const NO_MACHINE_SETS = { npm: [], apt: [] }

/** Everything in a well-formed configuration that makes no sense. */
export function checkMeaning(config: Config, context: MeaningContext = {}): readonly RawFault[] {
  const machineSets = context.machineSets ?? NO_MACHINE_SETS
  return [...checkSets(config), ...checkPolicies(config, entryContext(config, machineSets)), ...checkNetwork(config)]
}

/** How entries of this configuration are read. A set that is faulty itself counts as empty, so that its fault is told once. */
function entryContext(config: Config, machineSets: Readonly<Record<string, readonly string[]>>): EntryContext {
  const named = Object.entries({ ...config.policy.sets, ...machineSets })
  const sets = named.map(([name, entries]) => {
    const read = parseSets({ [name]: entries })
    return [name, read.ok ? (read.value.get(name) ?? []) : []] as const
  })
  return { from: 'file', sets: new Map(sets) }
}

function* checkSets({ policy }: Config): Iterable<RawFault> {
  for (const name of Object.keys(policy.sets)) {
    if (!Object.hasOwn(NO_MACHINE_SETS, name)) continue
    const message = `${quoted(name)} is the name of a set that is read from this machine; choose another`
    yield { keys: ['policy', 'sets', name], code: 'preset', message }
  }
  yield* faultsOf(parseSets(policy.sets), ['policy', 'sets'])
}

function* checkPolicies({ issuers, listen, policy, sni }: Config, context: EntryContext): Iterable<RawFault> {
  const names = Object.keys(policy.named)
  yield* checkLayer(policy.ceiling, ['policy', 'ceiling'], names, context)
  yield* faultsOf(compileDeniedHosts(policy.deniedHosts, context), ['policy'])
  for (const [tenant, layer] of Object.entries(policy.tenants)) {
    yield* checkLayer(layer, ['policy', 'tenants', tenant], names, context)
  }
  for (const [index, { egress }] of issuers.entries()) {
    if (egress !== undefined) yield* checkLayer(egress, ['issuers', index, 'egress'], names, context)
  }
  for (const [index, { egress }] of listen.bound.entries()) {
    yield* checkLayer(egress, ['listen', 'bound', index, 'egress'], names, context)
  }
  for (const [name, named] of Object.entries(policy.named)) {
    yield* checkLayer(named, ['policy', 'named', name], names, context)
  }
  for (const [index, text] of sni.off.entries()) {
    const entry = parseEntry(text, context)
    if (!entry.ok) yield { ...entry.fault, keys: ['sni', 'off', index] }
  }
}

function* checkLayer(
  layer: EgressPolicyData,
  keys: readonly PropertyKey[],
  names: readonly string[],
  context: EntryContext,
): Iterable<RawFault> {
  yield* faultsOf(compilePolicy(layer, context), keys)
  if (layer.kind !== 'named' || names.includes(layer.name)) return
  const hint = suggest(layer.name, names)
  const message = `no policy in \`policy.named\` is called ${quoted(layer.name)}`
  yield { keys: [...keys, 'name'], code: 'named', message, ...(hint === undefined ? {} : { hint }) }
}

function* checkNetwork({ network }: Config): Iterable<RawFault> {
  yield* faultsOf(parseNetworkRules(network), ['network'])
  for (const [index, text] of (network.resolvers ?? []).entries()) {
    if (isServer(text)) continue
    const message = `${quoted(text)} is not a DNS server; write \`10.0.0.2\`, \`10.0.0.3:5353\` or \`[2001:db8::53]:53\``
    yield { keys: ['network', 'resolvers', index], code: 'resolver', message }
  }
  for (const [name, addresses] of Object.entries(network.hosts)) {
    const keys = ['network', 'hosts', name]
    const host = parseHostName(name, { unicode: true })
    if (!host.ok) yield naming(host.fault, name, keys)
    for (const [index, text] of addresses.entries()) {
      const address = parseAddress(text)
      if (!address.ok) yield naming(address.fault, text, [...keys, index])
    }
  }
}

function* faultsOf(result: Checked<unknown>, keys: readonly PropertyKey[]): Iterable<RawFault> {
  if (result.ok) return
  for (const { path, ...fault } of result.faults satisfies readonly LocatedFault[]) {
    yield { ...fault, keys: [...keys, ...pathKeys(path)] }
  }
}

/** The parsers of the wire don't repeat their input; to an operator it says which of several is meant. */
function naming(fault: Fault, text: string, keys: readonly PropertyKey[]): RawFault {
  return { ...fault, keys, message: `${quoted(text)}: ${fault.message}` }
}

function isServer(text: string): boolean {
  const match = /^(?:\[(?<six>[^\]]+)\]|(?<four>[\d.]+))(?::(?<port>\d{1,5}))?$/.exec(text)
  if (match === null) return isIP(text) === 6
  const port = Number(match.groups?.['port'] ?? 53)
  const { four, six } = match.groups ?? {}
  return port > 0 && port <= 65_535 && (four === undefined ? isIP(six ?? '') === 6 : isIP(four) === 4)
}
