/** What the gateway keeps between runs and shares with the command line: revocations, handles and tenants' policies, below one folder. */
import { join } from 'node:path'
import { type Clock, systemClock } from '../clock.ts'
import { openFolder } from './folder.ts'
import { type Handles, openHandles } from './handles.ts'
import { type Revocations, openRevocations } from './revocations.ts'
import { openTenantPolicies, type TenantPolicies } from './tenant-policies.ts'

/** An open state folder. */
export interface State {
  readonly path: string
  readonly revocations: Revocations
  readonly handles: Handles
  readonly tenantPolicies: TenantPolicies
  /** Looks now for what other processes changed, instead of in a moment; whether all that is on the disk is in force here. */
  readonly look: () => boolean
  /** Stops looking for what other processes change; idempotent. */
  readonly close: () => void
}

/**
 * Opens the state folder; makes it when it isn't there.
 * @throws SallyportError `SALLYPORT_STATE_UNUSABLE`: one line for the operator
 */
export async function openState(
  path: string,
  options: { readonly clock?: Clock; readonly onFault?: (message: string) => void } = {},
): Promise<State> {
  const { clock = systemClock, onFault } = options
  await openFolder(path)
  const handles = await openHandles(join(path, 'handles'), clock)
  const revocations = await openRevocations(join(path, 'revocations'), clock, onFault)
  const tenantPolicies = await openTenantPolicies(join(path, 'policies'), clock, onFault).catch((error: unknown) => {
    revocations.close()
    throw error
  })
  return {
    path,
    revocations,
    handles,
    tenantPolicies,
    look: () => {
      const areRevocationsKnown = revocations.look()
      return tenantPolicies.look() && areRevocationsKnown
    },
    close: () => {
      revocations.close()
      tenantPolicies.close()
    },
  }
}
