/** Whether what was let out may go on, whenever time has passed or something has changed. The rules are those of a new connection. */
import {
  type Deny,
  type DenyReason,
  type Layers,
  type NetworkRules,
  type Permit,
  stillAllowed,
} from '../../policies/index.ts'
import type { Clock } from '../clock.ts'
import type { CloseReason } from '../reasons.ts'
import type { DecidedBy } from '../request.ts'
import type { Identity } from '../tokens/identity.ts'
import type { Tunnel, TunnelRegistry } from './registry.ts'

/** What is asked of the gateway as it is now. */
export interface LiveChecks {
  readonly isRevoked: (identity: Identity) => boolean
  readonly layersFor: (identity: Identity) => Layers | Promise<Layers>
  /** Without the layers that have yet to be asked for. */
  readonly layersKnownFor: (identity: Identity) => Layers
  readonly network: () => NetworkRules
  readonly clock: Clock
}

/** What was let out, for whom and until when. */
export interface Permission {
  readonly identity: Identity
  readonly permit: Permit
  readonly decidedBy: DecidedBy
  /** Wall clock, milliseconds. */
  readonly expiresAtMs: number
}

/** Why a permission does not hold any more. */
export type Lost =
  | { readonly reason: 'token_revoked' | 'token_expired' }
  | { readonly reason: DenyReason; readonly verdict: Deny; readonly policyVersion: string }

/** Looks at every open tunnel again, and cuts what a new connection would not get. */
export async function recheckAll(registry: TunnelRegistry, checks: LiveChecks): Promise<void> {
  const waiting = registry.list().map((tunnel) => recheck(tunnel, checks))
  await Promise.all(waiting.filter((one) => one instanceof Promise))
}

/** The same for one; a promise only where a policy has yet to be asked for. A fault while deciding cuts: nothing stays open unchecked. */
export function recheck(tunnel: Tunnel, checks: LiveChecks): undefined | Promise<void> {
  try {
    const losing = lostPermission(tunnel, checks)
    if (!(losing instanceof Promise)) {
      cutFor(tunnel, losing)
      return undefined
    }
    const waited = losing.then((lost) => cutFor(tunnel, lost)).catch(() => tunnel.relay.cut('policy_changed'))
    // What is lost for sure does not wait for a policy that has yet to be asked for.
    const lost = lostUnder(checks.layersKnownFor(tunnel.identity), tunnel, checks)
    cutFor(tunnel, lost)
    return lost ? undefined : waited
  } catch {
    tunnel.relay.cut('policy_changed')
    return undefined
  }
}

function cutFor(tunnel: Tunnel, lost: Lost | undefined): void {
  if (lost) tunnel.relay.cut(closeReasonOf(lost))
}

/** Asks everything again that can have changed since the permission was given; `undefined` while it holds. A promise only where a policy has yet to be asked for. */
export function lostPermission(
  permission: Permission,
  checks: LiveChecks,
): Lost | undefined | Promise<Lost | undefined> {
  const layers = checks.layersFor(permission.identity)
  // All the rest after the wait, if there is one.
  if (layers instanceof Promise) return layers.then((found) => lostUnder(found, permission, checks))
  return lostUnder(layers, permission, checks)
}

function lostUnder(
  layers: Layers,
  { identity, permit, decidedBy, expiresAtMs }: Permission,
  checks: LiveChecks,
): Lost | undefined {
  if (checks.isRevoked(identity)) return { reason: 'token_revoked' }
  if (checks.clock.wallMs() >= expiresAtMs) return { reason: 'token_expired' }
  const network = checks.network()
  // The same question has the same answer.
  if (layers === decidedBy.layers && network === decidedBy.network) return undefined
  const verdict = stillAllowed(layers, permit.destination, permit.addresses, network)
  return verdict && { reason: verdict.reason, verdict, policyVersion: layers.version }
}

function closeReasonOf({ reason }: Lost): CloseReason {
  return reason === 'token_revoked' || reason === 'token_expired' ? reason : 'policy_changed'
}
