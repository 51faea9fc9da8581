/**
 * May this connection go out? The intersection of the layers, and no prohibited address; a function of its arguments.
 * Only here are permits made.
 */
import type { IpAddress } from './address.ts'
import type { Destination } from './destination.ts'
import { reachedBy } from './embedded.ts'
import { judgeLayer, type Layer, type LayerName, type LayerReason } from './layer.ts'
import { judgeEndpoint, type NetworkRules } from './special-purpose.ts'

/** The layers of one connection, outermost first. None at all denies. */
export interface Layers {
  readonly layers: readonly Layer[]
  /** Short text that changes when a policy does; goes to the audit as `policy_version`. */
  readonly version: string
}

/** Why a connection is refused. */
export type DenyReason = LayerReason | 'address_prohibited'

/** Refused: a value, not an error. */
export interface Deny {
  readonly effective: 'deny'
  readonly decision: 'deny'
  readonly reason: DenyReason
  /** The first enforcing layer that refuses; a prohibited address is refused by none. */
  readonly layer?: LayerName
  /** The denied entry that matched. */
  readonly rule?: string
}

/** What a reporting layer would have refused. */
export interface Report {
  readonly reason: DenyReason
  readonly layer: LayerName
  readonly rule?: string
}

/** Nothing refuses so far. `decision` is `deny` where a reporting layer would have refused. */
export interface NameAllow {
  readonly effective: 'allow'
  readonly decision: 'allow' | 'deny'
  /** The entry of the innermost static layer. */
  readonly rule?: string
  /** The first of the reporting layers that would have refused. */
  readonly report?: Report
}

/** Allowed, with the proof that dialling needs. */
export interface Allow extends NameAllow {
  readonly permit: Permit
}

/** Proof of a decision on these very addresses. Made by this file alone; an object that looks like one is not one. */
class Permit {
  readonly #issued = true
  readonly destination: Destination
  /** Never empty, but when an upstream proxy resolves the name: {@link decideUnresolved}. */
  readonly addresses: readonly IpAddress[]

  constructor(destination: Destination, addresses: readonly IpAddress[]) {
    this.destination = Object.freeze({ ...destination })
    this.addresses = Object.freeze([...addresses])
    Object.freeze(this)
  }

  static isPermit(value: unknown): value is Permit {
    return typeof value === 'object' && value !== null && #issued in value
  }
}

export type { Permit }

/** Whether a value is a permit that was issued here, whatever its type says. */
export function isPermit(value: unknown): value is Permit {
  return Permit.isPermit(value)
}

/** Decides before anything is resolved; a name that is refused here is never asked for. A literal is judged whole. */
export function decideName(layers: Layers, destination: Destination, network: NetworkRules): Deny | NameAllow {
  return weigh(layers, destination, literalOf(destination), network)
}

/**
 * Decides on the very addresses that will be dialled, all of it again. One prohibited address refuses the whole answer,
 * and so does an empty one. A literal stands for itself: `addresses` does not count then.
 */
export function decideAddresses(
  layers: Layers,
  destination: Destination,
  addresses: readonly IpAddress[],
  network: NetworkRules,
): Allow | Deny {
  const dialled = destination.kind === 'address' ? literalOf(destination) : addresses
  if (dialled.length === 0) return { effective: 'deny', decision: 'deny', reason: 'address_prohibited' }
  const verdict = weigh(layers, destination, dialled, network)
  return verdict.effective === 'deny' ? verdict : { ...verdict, permit: new Permit(destination, dialled) }
}

/**
 * For an upstream proxy that resolves names itself, by the operator's explicit setting. The permit holds no address, so
 * neither denied ranges nor prohibited addresses protect what the name resolves to. A literal is judged as always.
 */
export function decideUnresolved(layers: Layers, destination: Destination, network: NetworkRules): Allow | Deny {
  const dialled = literalOf(destination)
  const verdict = weigh(layers, destination, dialled, network)
  return verdict.effective === 'deny' ? verdict : { ...verdict, permit: new Permit(destination, dialled) }
}

/** For an open tunnel after a change of policy: what refuses it now, or `undefined`. Empty `addresses`: never resolved here. */
export function stillAllowed(
  layers: Layers,
  destination: Destination,
  addresses: readonly IpAddress[],
  network: NetworkRules,
): Deny | undefined {
  const dialled = destination.kind === 'address' ? literalOf(destination) : addresses
  const verdict = weigh(layers, destination, dialled, network)
  return verdict.effective === 'deny' ? verdict : undefined
}

function weigh(
  { layers }: Layers,
  destination: Destination,
  dialled: readonly IpAddress[],
  network: NetworkRules,
): Deny | NameAllow {
  if (layers.length === 0) return { effective: 'deny', decision: 'deny', reason: 'policy_unavailable' }
  const reached = reachedBy(dialled, network.nat64Prefixes)
  let rule: string | undefined
  let report: Report | undefined
  for (const layer of layers) {
    const verdict = judgeLayer(layer.policy, destination, reached)
    if (verdict.allows) {
      rule = verdict.rule ?? rule
      continue
    }
    const { allows: _allows, ...refusal } = verdict
    if (layer.mode === 'enforce' || layer.name === 'claim') {
      return { effective: 'deny', decision: 'deny', layer: layer.name, ...refusal }
    }
    report ??= { layer: layer.name, ...refusal }
  }
  if (dialled.some((address) => judgeEndpoint(address, destination.port, network).prohibited)) {
    return { effective: 'deny', decision: 'deny', reason: 'address_prohibited' }
  }
  if (report === undefined) return rule === undefined ? ALLOWED : { effective: 'allow', decision: 'allow', rule }
  return { effective: 'allow', decision: 'deny', report, ...(rule === undefined ? {} : { rule }) }
}

/** Allowed by layers that list nothing. */
const ALLOWED: NameAllow = Object.freeze({ effective: 'allow', decision: 'allow' })

function literalOf(destination: Destination): readonly IpAddress[] {
  return destination.kind === 'address' ? [destination.address] : []
}
