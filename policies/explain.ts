/** Why is a destination allowed or refused? Every layer's own answer beside the decision, by the code that decides. */
import type { IpAddress } from './address.ts'
import { decideAddresses, decideName, type Deny, type Layers, type NameAllow } from './decide.ts'
import type { Destination } from './destination.ts'
import { reachedBy } from './embedded.ts'
import { judgeLayer, type Layer, type LayerName, type LayerVerdict } from './layer.ts'
import type { CompiledPolicy } from './policy.ts'
import { judgeEndpoint, type AddressVerdict, type NetworkRules } from './special-purpose.ts'

/** What one layer says by itself. */
export interface LayerExplanation {
  readonly layer: LayerName
  readonly mode: Layer['mode']
  readonly kind: CompiledPolicy['kind']
  readonly verdict: LayerVerdict
}

/** A decision taken apart. It carries no permit. */
export interface Explanation {
  readonly version: string
  readonly layers: readonly LayerExplanation[]
  /** Every address that was given, or the literal, and what it is. */
  readonly addresses: readonly ({ readonly address: string } & AddressVerdict)[]
  readonly decision: Deny | NameAllow
}

/** Explains a destination; without `addresses` a name is judged by itself, as before it is resolved. */
export function explain(
  layers: Layers,
  destination: Destination,
  addresses: readonly IpAddress[] | undefined,
  network: NetworkRules,
): Explanation {
  const dialled = destination.kind === 'address' ? [destination.address] : (addresses ?? [])
  const reached = reachedBy(dialled, network.nat64Prefixes)
  return {
    version: layers.version,
    layers: layers.layers.map(({ name, mode, policy }) => ({
      layer: name,
      mode,
      kind: policy.kind,
      verdict: judgeLayer(policy, destination, reached),
    })),
    addresses: dialled.map((address) => ({
      address: address.text,
      ...judgeEndpoint(address, destination.port, network),
    })),
    decision: decisionOf(layers, destination, addresses, network),
  }
}

function decisionOf(
  layers: Layers,
  destination: Destination,
  addresses: readonly IpAddress[] | undefined,
  network: NetworkRules,
): Deny | NameAllow {
  if (addresses === undefined) return decideName(layers, destination, network)
  const decided = decideAddresses(layers, destination, addresses, network)
  if (decided.effective === 'deny') return decided
  const { permit: _permit, ...allow } = decided
  return allow
}
