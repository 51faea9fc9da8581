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
import { inSlices, type Waits } from '../in-slices.ts'
import type { CloseReason } from '../reasons.ts'
import type { DecidedBy } from '../request.ts'
import type { Identity } from '../tokens/identity.ts'
import type { TunnelRegistry, Watched } from './registry.ts'

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

/** What was looked at again. */
export interface Rechecked {
  /** What was cut has ended, and what had to wait for a policy that has yet to be asked for was looked at too. Never rejects. */
  readonly over: Promise<void>
}

/**
 * Looks at every open tunnel again, a few at a time, and cuts what a new connection would not get. Resolves when nothing passes any more on what is lost for
 * sure. Whoever is let out meanwhile was judged, or is looked at when it begins, by what holds by then.
 */
export async function recheckAll(registry: TunnelRegistry, checks: LiveChecks): Promise<Rechecked> {
  const waiting: Promise<void>[] = []
  await inSlices(recheckSteps(registry, checks, waiting))
  return { over: Promise.all(waiting).then(() => registry.cutsDone()) }
}

function* recheckSteps(registry: TunnelRegistry, checks: LiveChecks, waiting: Promise<void>[]): Waits<void> {
  for (const watched of registry.list()) {
    const waits = recheck(registry, watched, checks)
    if (waits !== undefined) waiting.push(waits)
    yield undefined
  }
}

/** The same for one; a promise only where a policy has yet to be asked for. A fault while deciding cuts: nothing stays open unchecked. */
export function recheck(registry: TunnelRegistry, watched: Watched, checks: LiveChecks): undefined | Promise<void> {
  const { tunnel } = watched
  const cutFor = (lost: Lost | undefined): void => {
    if (lost) registry.cut(watched, closeReasonOf(lost))
  }
  try {
    const losing = lostPermission(tunnel, checks)
    if (!(losing instanceof Promise)) {
      cutFor(losing)
      return undefined
    }
    const waited = losing.then(cutFor).catch(() => registry.cut(watched, 'policy_changed'))
    // What is lost for sure does not wait for a policy that has yet to be asked for.
    const lost = lostUnder(checks.layersKnownFor(tunnel.identity), tunnel, checks)
    cutFor(lost)
    return lost ? undefined : waited
  } catch {
    registry.cut(watched, 'policy_changed')
    return undefined
  }
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
