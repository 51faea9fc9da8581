/** Whether an open tunnel may stay open, after a revocation, a change of policy or a reload. The rules are those of a new connection. */
import { type Layers, type NetworkRules, stillAllowed } from '../../policies/index.ts'
import type { CloseReason } from '../reasons.ts'
import type { Identity } from '../tokens/identity.ts'
import type { Tunnel, TunnelRegistry } from './registry.ts'

/** What is asked of the gateway as it is now. */
export interface LiveChecks {
  readonly isRevoked: (identity: Identity) => boolean
  readonly layersFor: (identity: Identity) => Layers | Promise<Layers>
  readonly network: () => NetworkRules
}

/** Looks at every open tunnel again, and cuts what a new connection would not get. */
export async function recheckAll(registry: TunnelRegistry, checks: LiveChecks): Promise<void> {
  await Promise.all([...registry.list()].map((tunnel) => recheck(tunnel, checks)))
}

/** The same for one. A fault while deciding cuts: nothing stays open unchecked. */
export async function recheck(tunnel: Tunnel, checks: LiveChecks): Promise<void> {
  const reason = checks.isRevoked(tunnel.identity) ? 'token_revoked' : await lostPermission(tunnel, checks)
  if (reason) tunnel.relay.cut(reason)
}

async function lostPermission({ identity, permit }: Tunnel, checks: LiveChecks): Promise<CloseReason | undefined> {
  try {
    const layers = await checks.layersFor(identity)
    return stillAllowed(layers, permit.destination, permit.addresses, checks.network()) ? 'policy_changed' : undefined
  } catch {
    return 'policy_changed'
  }
}
