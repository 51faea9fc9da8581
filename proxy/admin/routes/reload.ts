/** `/v1/reload`: reads the configuration again, as SIGHUP does. */
import { z } from 'zod'
import { SallyportError } from '../../../policies/error.ts'
import { ConfigError } from '../../config/load.ts'
import { AdminError } from '../admin-error.ts'
import { type Control, recordFirst } from '../control.ts'
import { type AdminRoute, defineRoute } from '../route.ts'

/** The route. */
export function reloadRoutes(control: Control): readonly AdminRoute[] {
  return [
    defineRoute({
      method: 'POST',
      path: '/v1/reload',
      id: 'reload',
      tag: 'gateway',
      summary: 'Read the configuration again; one that is wrong changes nothing',
      scopes: ['admin'],
      errors: ['config_invalid', 'not_supported', 'audit_unavailable'],
      reply: z.object({ policyVersion: z.string() }),
      handle: async ({ caller }) => {
        const { reload } = control
        if (reload === undefined) throw new AdminError('not_supported', 'this gateway was not started from a file')
        await recordFirst(control, caller, { action: 'reload_asked' })
        try {
          await reload()
        } catch (error) {
          throw toldAs(error)
        }
        return { policyVersion: control.policies.version }
      },
    }),
  ]
}

function toldAs(error: unknown): unknown {
  if (error instanceof ConfigError) {
    const faults = error.faults.slice(0, 100).map(({ path, message, hint, line }) => ({
      path,
      message: line === undefined ? message : `line ${line}: ${message}`,
      ...(hint !== undefined && { hint }),
    }))
    return new AdminError('config_invalid', 'the configuration has faults; the old one stays in force', { faults })
  }
  if (error instanceof SallyportError) return new AdminError('config_invalid', error.message)
  return error
}
