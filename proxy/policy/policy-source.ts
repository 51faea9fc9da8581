/** Which layers apply to an identity: the operator's ceiling, the tenant's policy, the token's claim. Decides nothing itself. */
import {
  checkPolicyShape,
  finish,
  SallyportError,
  type Checked,
  type CompiledPolicy,
  type EgressPolicy,
  type Layer,
  type Layers,
} from '../../policies/index.ts'
import type { CacheCounts } from '../cache-counts.ts'
import { systemClock, type Clock } from '../clock.ts'
import { inSlices } from '../in-slices.ts'
import { BOUND_ISSUER, type Identity } from '../tokens/identity.ts'
import {
  checkTenantLayer,
  type CheckedTenantLayer,
  layerOf,
  type TenantInForce,
  type TenantLayer,
  UNAVAILABLE_LAYER,
  unknownPolicyName,
  versionOfLayer,
} from './kept-tenants.ts'
import {
  compileOperatorPolicies,
  versionOf,
  type Freshness,
  type ModalCell,
  type OperatorPolicies,
  type PolicyCell,
  type PolicySection,
} from './operator-policies.ts'
import { byName, current, namesASet, UNAVAILABLE, UNKNOWN_TO_RESOLVER, withSetsOfNow } from './policy-now.ts'
import type { FileChange } from './tenant-files/file-layers.ts'
import type { TenantFilesStatus } from './tenant-files/tenant-files.ts'
import { openTenantLayers, type TenantLayers } from './tenant-layers.ts'
import type { TenantResolver } from './tenant-resolver.ts'

/** Settings of {@link createPolicySource}. */
export interface PolicySourceOptions {
  readonly policy: PolicySection
  /** The hosts of `@npm` and `@apt`; see `machine-sets.ts`. Empty when absent. */
  readonly machineSets?: Readonly<Record<string, readonly string[]>> | undefined
  /** For resolver policies of the section; those of the tenant resolver have their own. */
  readonly freshness?: Freshness | undefined
  /** Instead of HTTP to the `url` of the section. */
  readonly tenantResolver?: TenantResolver | undefined
  /** Entries of all that the tenant resolver says together; by default what there is memory for. */
  readonly mostEntries?: number | undefined
  readonly clock?: Clock | undefined
  /** Counts identities whose layers were put together already, and those whose were not. */
  readonly cacheCounts?: CacheCounts | undefined
  /** Told when a resolver fails; `policy` says which. The error is the resolver's own: log its code, not its text. */
  readonly onFault?: ((policy: string, error: unknown) => void) | undefined
  /** Told of each tenant whose file made another policy of it, once it is in force. */
  readonly onFileChange?: ((change: FileChange) => void) | undefined
}

/** Where the gateway gets its layers. */
export interface PolicySource {
  /** A value when everything is known already, else a promise (a resolver that was not asked before). Never rejects. */
  layersFor(identity: Identity): Layers | Promise<Layers>
  /** The same without waiting: a layer that has yet to be asked for refuses nothing. Good to refuse by, never to let out by. */
  layersKnownFor(identity: Identity): Layers
  /**
   * Takes a new section, and hosts of the machine's sets if they were read again; listeners are told.
   * @throws SallyportError `SALLYPORT_POLICY_INVALID` with every fault; the old section then stays
   */
  replace(policy: PolicySection, machineSets?: Readonly<Record<string, readonly string[]>>): void
  /**
   * Stands a policy behind the claim `{ kind: 'named', name }` of identities that this process made itself (bound listeners); tokens can't name it.
   * A second call for a name replaces the policy, and listeners are told. Returns what takes it away.
   * @throws SallyportError `SALLYPORT_POLICY_INVALID` with every fault
   */
  define(name: string, policy: EgressPolicy): () => void
  /**
   * Stands a layer in the place of what the section or its resolver says of a tenant, until it is `undefined` again; listeners are told. One that has
   * faults denies all, also when a later section makes it so.
   */
  keepTenant(tenant: string, layer: TenantLayer | undefined): void
  /** Reads a tenant's layer from unknown data, as {@link keepTenant} would. */
  checkTenant(layer: unknown): Promise<Checked<CheckedTenantLayer>>
  /** The layer of a tenant that is in force; `undefined` for a tenant that nobody knows. A resolver is asked. */
  tenantInForce(tenant: string): Promise<TenantInForce | undefined>
  /** Tenants whose layers are kept, written down in the section or in files. */
  tenants(): readonly string[]
  /** How the files of the section are; `undefined` without any. */
  tenantFiles(): TenantFilesStatus | undefined
  /** What the layers would be with another one for the tenant; `undefined` stands for what there is without a kept one. */
  layersIf(identity: Identity, layer: CheckedTenantLayer | undefined): Layers | Promise<Layers>
  /** Calls back after any change that may concern an open tunnel: a new section, another answer of a resolver, one out of reach. Returns what ends it. */
  onChange(listener: () => void): () => void
  /** Of the section, a short hash. */
  readonly version: string
  /** Ends refreshing; every layer is unavailable from then on. Idempotent. */
  close(): void
}

/** Stands for a layer that is not known yet, beside others that may refuse. */
const REFUSES_NOTHING: CompiledPolicy = { kind: 'allow-all' }
const NO_SETS = { npm: [], apt: [] }

/** One section in force. */
interface State {
  readonly operator: OperatorPolicies
  readonly tenants: TenantLayers
}

/** What was put together for an identity. */
interface Remembered {
  readonly generation: number
  readonly layers: Layers
  readonly usedMs: number
}

/** @throws SallyportError `SALLYPORT_POLICY_INVALID` with every fault */
export function createPolicySource(options: PolicySourceOptions): PolicySource {
  const { clock = systemClock, cacheCounts = { hits: 0, misses: 0 } } = options
  const listeners = new Set<() => void>()
  const remembered = new WeakMap<Identity, Remembered>()
  const defined = new Map<string, PolicyCell>()
  const kept = new Map<string, { readonly layer: TenantLayer; readonly cell: ModalCell }>()
  let generation = 0
  let machineSets = options.machineSets ?? NO_SETS
  let isClosed = false
  let state = compile(options.policy, machineSets, undefined)

  return {
    layersFor: (identity) => {
      const known = remembered.get(identity)
      if (known?.generation === generation && clock.monotonicMs() - known.usedMs < 60_000) {
        cacheCounts.hits++
        return known.layers
      }
      cacheCounts.misses++
      return assemble(identity)
    },
    layersKnownFor: (identity) => {
      const { found, build } = gather(identity)
      return build(found.map((one) => (one instanceof Promise ? REFUSES_NOTHING : one)))
    },
    replace: (policy, sets) => {
      const next = compile(policy, sets ?? machineSets, state)
      dispose(state)
      machineSets = sets ?? machineSets
      state = next
      // Only those that mean something else now: they may be many, and long.
      for (const [tenant, { layer }] of kept)
        if (layer.kind === 'named' || (layer.kind === 'static' && namesASet(layer)))
          kept.set(tenant, { layer, cell: keptCell(tenant, layer) })
      changed()
    },
    keepTenant: (tenant, layer) => {
      if (layer === undefined) kept.delete(tenant)
      else kept.set(tenant, { layer, cell: keptCell(tenant, layer) })
      changed()
    },
    checkTenant: (layer) => inSlices(checkTenantLayer(layer, state.operator)),
    tenantInForce: async (tenant) => {
      const own = kept.get(tenant)
      if (own !== undefined) return { source: 'api', layer: own.layer, version: versionOfLayer(own.layer) }
      const source = state.tenants.sourceOf(tenant)
      const { mode, cell } = state.tenants.get(tenant)
      const policy = await cell.current()
      if (source === undefined || (source === 'resolver' && cell.version() === UNKNOWN_TO_RESOLVER)) return undefined
      const layer = layerOf(policy, mode)
      return { source, layer, version: versionOfLayer(layer) }
    },
    tenants: () => [...new Set([...kept.keys(), ...state.tenants.known()])],
    tenantFiles: () => state.tenants.files(),
    layersIf: (identity, layer) => {
      const { found, build } = gather(identity, layer?.cell ?? state.tenants.get(identity.tenant ?? ''))
      if (isKnown(found)) return build(found)
      return Promise.all(found.map((one) => Promise.resolve(one))).then(build)
    },
    define: (name, policy) => {
      checkPolicyShape(policy)
      const cell = policy.kind === 'named' ? namedCell(policy.name) : compiledCell(policy)
      const former = defined.get(name)
      defined.set(name, cell)
      if (former !== undefined) {
        former.close()
        changed()
      }
      return () => {
        cell.close()
        if (defined.get(name) === cell) defined.delete(name)
      }
    },
    onChange: (listener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    get version() {
      return state.operator.version
    },
    close: () => {
      isClosed = true
      dispose(state)
      for (const cell of defined.values()) cell.close()
      generation++
      listeners.clear()
    },
  }

  function compile(
    policy: PolicySection,
    sets: Readonly<Record<string, readonly string[]>>,
    before: State | undefined,
    /** What the paths of faults begin with for us, and not for whoever wrote the policy. */
    ours = '',
  ): State {
    const shared = { onChange: changed, onFault: (which: string, error: unknown) => options.onFault?.(which, error) }
    const operator = compileOperatorPolicies(policy, {
      ...shared,
      machineSets: sets,
      freshness: options.freshness ?? {},
    })
    if (!operator.ok) {
      const faults = operator.faults.map(
        ({ path, message }) => `${path.startsWith(ours) ? path.slice(ours.length) : path}: ${message}`,
      )
      throw new SallyportError('SALLYPORT_POLICY_INVALID', `the policy can not be used: ${faults.join('; ')}`)
    }
    const tenants = openTenantLayers(policy, operator.value, {
      ...shared,
      clock,
      resolver: options.tenantResolver,
      mostEntries: options.mostEntries,
      onFileChange: options.onFileChange,
      before: before?.tenants,
    })
    return { operator: operator.value, tenants }
  }

  function compiledCell(policy: EgressPolicy): PolicyCell {
    const cell = compile({ named: { it: policy } }, machineSets, undefined, 'named.it.').operator.named.get('it')
    if (cell === undefined) throw new TypeError('no policy came of its definition')
    return cell
  }

  /** One of the operator's, as it is at each time; one that a reload takes away denies. */
  function namedCell(name: string): PolicyCell {
    if (!state.operator.named.has(name))
      throw new SallyportError(
        'SALLYPORT_POLICY_INVALID',
        `the policy can not be used: ${unknownPolicyName(name).message}`,
      )
    return {
      current: () => state.operator.named.get(name)?.current() ?? UNAVAILABLE,
      version: () => state.operator.named.get(name)?.version() ?? '',
      close: () => undefined,
    }
  }

  function keptCell(tenant: string, layer: TenantLayer): ModalCell {
    const checked = finish(checkTenantLayer(layer, state.operator))
    if (checked.ok) return checked.value.cell
    options.onFault?.(`tenant ${tenant}`, new TypeError(checked.faults[0]?.message))
    return UNAVAILABLE_LAYER
  }

  function changed(): void {
    generation++
    for (const listener of [...listeners]) listener()
  }

  function assemble(identity: Identity): Layers | Promise<Layers> {
    if (isClosed) return { layers: [], version: state.operator.version }
    const startedAt = generation
    const { found, build } = gather(identity)
    if (isKnown(found)) return remember(found)
    // A change while waiting makes what was found old: then all of it is found again.
    return Promise.all(found.map((one) => Promise.resolve(one))).then((policies) =>
      startedAt === generation ? remember(policies) : assemble(identity),
    )

    function remember(policies: readonly (CompiledPolicy | undefined)[]): Layers {
      const layers = build(policies)
      remembered.set(identity, { generation, layers, usedMs: clock.monotonicMs() })
      return layers
    }
  }

  /** The policies that apply to an identity, as far as they are known, and what makes layers of them; `instead` takes the place of the tenant's. */
  function gather(identity: Identity, instead?: ModalCell) {
    const from = state
    const { operator } = from
    const tenant = identity.tenant === undefined ? undefined : (instead ?? tenantLayer(from, identity.tenant))
    const found = [
      current(operator, operator.ceiling),
      tenant && current(operator, tenant),
      claimed(operator, identity),
    ] as const
    return { found, build }

    function build([ceiling = UNAVAILABLE, tenantPolicy, claim = UNAVAILABLE]: readonly (
      CompiledPolicy | undefined
    )[]): Layers {
      const layers: Layer[] = []
      if (operator.denied !== undefined) layers.push({ name: 'ceiling', mode: 'enforce', policy: operator.denied })
      layers.push({ name: 'ceiling', mode: operator.ceiling.mode, policy: ceiling })
      if (tenant !== undefined) layers.push({ name: 'tenant', mode: tenant.mode, policy: tenantPolicy ?? UNAVAILABLE })
      layers.push({ name: 'claim', mode: 'enforce', policy: claim })
      const own = identity.claim.kind === 'named' ? defined.get(identity.claim.name) : undefined
      const answers = [operator.ceiling.cell, tenant?.cell, own, ...operator.named.values()]
        .map((cell) => cell?.version())
        .filter(Boolean)
      const version = answers.length === 0 ? operator.version : `${operator.version}.${versionOf(answers).slice(0, 8)}`
      return { layers, version }
    }
  }

  function claimed(operator: OperatorPolicies, { issuer, claim }: Identity): CompiledPolicy | Promise<CompiledPolicy> {
    const own = issuer === BOUND_ISSUER && claim.kind === 'named' ? defined.get(claim.name) : undefined
    return own?.current() ?? byName(operator, withSetsOfNow(operator, claim))
  }

  function tenantLayer(from: State, tenant: string): ModalCell {
    return kept.get(tenant)?.cell ?? from.tenants.get(tenant)
  }
}

function isKnown(
  found: readonly (CompiledPolicy | undefined | Promise<CompiledPolicy>)[],
): found is readonly (CompiledPolicy | undefined)[] {
  return !found.some((one) => one instanceof Promise)
}

function dispose({ operator, tenants: layers }: State): void {
  layers.close()
  const { ceiling, tenants, named } = operator
  for (const { cell } of [ceiling, ...tenants.values()]) cell.close()
  for (const cell of named.values()) cell.close()
}
