/** Every route of the control API, in the order of its document. */
import type { Control } from '../control.ts'
import type { AdminRoute } from '../route.ts'
import { auditRoutes } from './audit.ts'
import { callerRoutes } from './caller.ts'
import { explainRoutes } from './explain.ts'
import { identityRoutes } from './identities.ts'
import { integrityRoutes } from './integrity.ts'
import { listenerRoutes } from './listeners.ts'
import { policyRoutes } from './policies.ts'
import { reloadRoutes } from './reload.ts'
import { revocationRoutes } from './revocations.ts'
import { statusRoutes } from './status.ts'
import { tokenRoutes } from './tokens.ts'
import { tunnelRoutes } from './tunnels.ts'

/** All of them. */
export function adminRoutes(control: Control): readonly AdminRoute[] {
  return [
    ...tokenRoutes(control),
    ...revocationRoutes(control),
    ...policyRoutes(control),
    ...explainRoutes(control),
    ...tunnelRoutes(control),
    ...identityRoutes(control),
    ...listenerRoutes(control),
    ...auditRoutes(control),
    ...integrityRoutes(control),
    ...statusRoutes(control),
    ...callerRoutes(),
    ...reloadRoutes(control),
  ]
}
