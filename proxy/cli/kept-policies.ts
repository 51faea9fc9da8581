/** Policies of tenants that were put through the control API: a command that speaks for the gateway counts them in, as the gateway does. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { systemClock } from '../clock.ts'
import type { Config } from '../config/schema.ts'
import type { PolicySource } from '../policy/policy-source.ts'
import { openTenantPolicies } from '../state/tenant-policies.ts'

/**
 * Reads them from the state folder, where there is one.
 * @throws SallyportError `SALLYPORT_STATE_UNUSABLE`, as the start of the gateway would
 */
export async function countInKeptPolicies(source: PolicySource, config: Config): Promise<void> {
  const folder = join(config.state, 'policies')
  if (!existsSync(folder)) return
  const kept = await openTenantPolicies(folder, systemClock)
  for (const { tenant, policy } of kept.list()) source.keepTenant(tenant, policy)
  kept.close()
}
