/** A gateway of several processes, from the one that supervises the others. */
import { SallyportError } from '../../policies/error.ts'
import { type GatewayOptions, openCore } from '../core.ts'
import { type Gateway, gatewayAround, type Workers } from '../gateway.ts'
import { readMachineSets } from '../policy/machine-sets.ts'
import type { RestartRules } from './restarts.ts'
import { SharedUsage } from './shared-usage.ts'
import { createSupervisor } from './supervisor.ts'

/** What tests put in the place of the real thing. */
export interface SupervisedOptions extends GatewayOptions {
  readonly restart?: RestartRules
  readonly program?: URL
}

/** A gateway, and its end by itself. */
export interface SupervisedGateway {
  readonly gateway: Gateway
  /** Resolves when a worker ended again and again, so that there is no use in going on. The caller closes the gateway. */
  readonly failed: Promise<SallyportError>
}

/**
 * The supervising process has the state, the policies and an audit log of its own, the admin listener and the bound listeners; clients with tokens come to
 * the workers.
 * @throws as `createGateway`
 */
export async function createSupervisedGateway(options: SupervisedOptions): Promise<SupervisedGateway> {
  const { version = 'unknown', restart, program } = options
  const machineSets = options.machineSets ?? readMachineSets()
  const usage = new SharedUsage(options.config.workers)
  const { promise: failed, resolve: onFailed } = Promise.withResolvers<SallyportError>()
  const made: { supervisor?: Workers } = {}
  const { workers: configured } = options.config
  const core = await openCore(
    { ...options, machineSets },
    {
      workers: configured,
      untold: usage.untold,
      counts: () => made.supervisor?.counts() ?? { configured, serving: 0, replaced: 0 },
    },
  )
  usage.use(core.limits)
  const { sets } = machineSets
  const supervisor = createSupervisor(core, { usage, version, machineSets: sets, onFailed, restart, program })
  made.supervisor = supervisor
  return { gateway: gatewayAround(core, options, { workers: supervisor }), failed }
}
