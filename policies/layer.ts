/** What does one layer say about a destination? Knows nothing of other layers, and nothing of prohibited addresses. */
import { unmapped, type IpAddress } from './address.ts'
import type { Destination } from './destination.ts'
import { isRule, type HostTable, type Match } from './host-table.ts'
import type { CompiledPolicy, StaticPolicy } from './policy.ts'

/** Outermost first: the operator, the tenant, the token. */
export type LayerName = 'ceiling' | 'tenant' | 'claim'

/** One policy among those that must all agree. */
export interface Layer {
  readonly name: LayerName
  readonly policy: CompiledPolicy
  /** `report` lets through what the layer would refuse, and records it; never for a claim. */
  readonly mode: 'enforce' | 'report'
}

/** Why a layer refuses. */
export type LayerReason =
  'host_not_allowed' | 'host_denied' | 'port_not_allowed' | 'address_not_allowed' | 'policy_unavailable'

/** The answer of one layer; `rule` is the entry that decided, where there is one. */
export type LayerVerdict =
  | { readonly allows: true; readonly rule?: string }
  | { readonly allows: false; readonly reason: LayerReason; readonly rule?: string }

/**
 * Asks a layer. `reached` is every address that the connection would lead to, those embedded in another included: empty
 * while a name is not resolved. It can only refuse: to be allowed, a destination must be listed as it was asked for.
 */
export function judgeLayer(
  policy: CompiledPolicy,
  destination: Destination,
  reached: readonly IpAddress[],
): LayerVerdict {
  switch (policy.kind) {
    case 'allow-all':
      return { allows: true }
    case 'deny-all':
      return { allows: false, reason: notAllowed(destination) }
    case 'static':
      return judgeStatic(policy, destination, reached)
    default:
      return { allows: false, reason: 'policy_unavailable' }
  }
}

function judgeStatic(policy: StaticPolicy, destination: Destination, reached: readonly IpAddress[]): LayerVerdict {
  const denied = findDenied(policy.denied, destination, reached)
  if (isRule(denied)) return { allows: false, reason: 'host_denied', rule: denied.text }
  if (policy.allowed === 'any') return { allows: true }
  const allowed = findAllowed(policy.allowed, destination)
  if (isRule(allowed)) return { allows: true, rule: allowed.text }
  return { allows: false, reason: allowed === 'other-port' ? 'port_not_allowed' : notAllowed(destination) }
}

function findDenied(denied: HostTable, destination: Destination, reached: readonly IpAddress[]): Match {
  const { port } = destination
  const byName = destination.kind === 'name' ? denied.findName(destination.host, port) : undefined
  if (isRule(byName) || !denied.hasAddresses) return byName
  for (const address of reached) {
    const byAddress = denied.findAddress(address, port)
    if (isRule(byAddress)) return byAddress
  }
  return undefined
}

/** An IPv4-mapped literal is the IPv4 address to the kernel, so it is looked up as that. */
function findAllowed(allowed: HostTable, destination: Destination): Match {
  if (destination.kind === 'name') return allowed.findName(destination.host, destination.port)
  return allowed.findAddress(unmapped(destination.address) ?? destination.address, destination.port)
}

function notAllowed(destination: Destination): LayerReason {
  return destination.kind === 'name' ? 'host_not_allowed' : 'address_not_allowed'
}
