/** Short ways to make what tests need; each throws where the product returns a fault. */
import {
  compileDeniedHosts,
  compilePolicy,
  parseAddress,
  parseAuthority,
  parseNetworkRules,
  type CompiledPolicy,
  type Destination,
  type EgressPolicyData,
  type IpAddress,
  type Layer,
  type Layers,
  type NetworkRules,
  type OwnListener,
  type Parsed,
} from '../../policies/index.ts'

/** The address with this text. */
export function address(text: string): IpAddress {
  return valueOf(parseAddress(text))
}

/** The destination with this `host:port`. */
export function destination(text: string): Destination {
  return valueOf(parseAuthority(text))
}

/** The operator's settings; none by default. */
export function network(
  settings: { readonly allowPrivate?: readonly string[]; readonly nat64Prefixes?: readonly string[] } = {},
  own: readonly OwnListener[] = [],
): NetworkRules {
  const rules = parseNetworkRules(settings, own)
  if (!rules.ok) throw new Error(JSON.stringify(rules.faults))
  return rules.value
}

/** A compiled policy of a file. */
export function policy(data: EgressPolicyData): CompiledPolicy {
  const compiled = compilePolicy(data, { from: 'file' })
  if (!compiled.ok) throw new Error(JSON.stringify(compiled.faults))
  return compiled.value
}

/** A static policy. */
export function allowing(allowedHosts: readonly string[], deniedHosts: readonly string[] = []): CompiledPolicy {
  return policy({ kind: 'static', allowedHosts, deniedHosts })
}

/** Layers that enforce, unless a mode is given. */
export function layers(
  ...list: readonly (
    readonly [Layer['name'], CompiledPolicy] | readonly [Layer['name'], CompiledPolicy, Layer['mode']]
  )[]
): Layers {
  return {
    version: 'test',
    layers: list.map(([name, compiled, mode = 'enforce']) => ({ name, policy: compiled, mode })),
  }
}

/** The operator's own list of denied hosts as a layer. */
export function operatorDenies(...deniedHosts: readonly string[]): readonly ['ceiling', CompiledPolicy] {
  const compiled = compileDeniedHosts(deniedHosts, { from: 'file' })
  if (!compiled.ok) throw new Error(JSON.stringify(compiled.faults))
  return ['ceiling', compiled.value]
}

/** The value, or an error with the fault. */
export function valueOf<T>(result: Parsed<T>): T {
  if (!result.ok) throw new Error(`${result.fault.code}: ${result.fault.message}`)
  return result.value
}

/** The code of the fault, or `ok`. */
export function codeOf(result: Parsed<unknown>): string {
  return result.ok ? 'ok' : result.fault.code
}
