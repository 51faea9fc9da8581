/** What a configuration means for decisions, apart from the layers: which addresses, which sets, where TLS is expected. Replaced as a whole at a reload. */
import {
  compilePolicy,
  decideName,
  type Destination,
  type EntrySets,
  type Layers,
  type LocatedFault,
  type NetworkRules,
  type OwnListener,
  parseNetworkRules,
  parseSets,
  SallyportError,
} from '../policies/index.ts'
import type { Config } from './config/schema.ts'

/** The rules of one configuration. */
export interface Ruleset {
  readonly config: Config
  readonly network: NetworkRules
  /** The operator's and the machine's named sets. */
  readonly sets: EntrySets
  /** Whether the server name of the client's first TLS message is compared with the host. */
  readonly expectsTls: (destination: Destination) => boolean
}

/** The hosts behind `@npm` and `@apt`. */
export type MachineSetEntries = Readonly<Record<string, readonly string[]>>

/**
 * `own` are the gateway's listeners: never reachable through it.
 * @throws SallyportError `SALLYPORT_CONFIG_INVALID` with every fault
 */
export function compileRuleset(config: Config, machineSets: MachineSetEntries, own: readonly OwnListener[]): Ruleset {
  const sets = valueOf('policy.sets', parseSets({ ...machineSets, ...config.policy.sets }))
  const network = valueOf('network', parseNetworkRules(config.network, own))
  const withoutTls = valueOf(
    'sni.off',
    compilePolicy({ kind: 'static', allowedHosts: config.sni.off }, { from: 'file', sets }),
  )
  const exempt: Layers = { version: '', layers: [{ name: 'ceiling', mode: 'enforce', policy: withoutTls }] }
  const ports = new Set(config.sni.ports)
  return {
    config,
    network,
    sets,
    expectsTls: (destination) =>
      ports.has(destination.port) && decideName(exempt, destination, network).effective === 'deny',
  }
}

function valueOf<T>(
  section: string,
  checked: { readonly ok: true; readonly value: T } | { readonly ok: false; readonly faults: readonly LocatedFault[] },
): T {
  if (checked.ok) return checked.value
  const lines = checked.faults.map(
    ({ path, message, hint }) =>
      `${section}.${path}: ${message}${hint === undefined ? '' : ` (did you mean \`${hint}\`?)`}`,
  )
  throw new SallyportError('SALLYPORT_CONFIG_INVALID', lines.join('\n'))
}
