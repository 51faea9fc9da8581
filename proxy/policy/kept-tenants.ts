/** Policies of tenants that were put through the control API: they stand in the place of what the configuration or the resolver says of the tenant. */
import {
  type Checked,
  type parseLayerPolicy,
  parseLayerPolicySteps,
  type LocatedFault,
  quoted,
  type CompiledPolicy,
  type StaticPolicy,
  type Steps,
} from '../../policies/index.ts'
import {
  type ModalCell,
  type OperatorPolicies,
  type PolicySetting,
  versionOf,
  versionSteps,
} from './operator-policies.ts'
import { namesASet } from './policy-now.ts'

/** A layer of a tenant as data: entries in canonical form, and always with a mode. */
export type TenantLayer = Exclude<PolicySetting, { readonly kind: 'resolver' }>

/** A layer that was checked, and what it compiles to. */
export interface CheckedTenantLayer {
  readonly layer: TenantLayer
  readonly cell: ModalCell
  /** Of the layer; 12 hexadecimal digits. */
  readonly version: string
}

/** Where a tenant's policy comes from. */
export type TenantSource = 'api' | 'configuration' | 'file' | 'resolver'

/** A tenant's policy that is in force. */
export interface TenantInForce {
  readonly source: TenantSource
  readonly layer: TenantLayer
  readonly version: string
}

/** The one layer of each list and mode, and what it was made of: a long one is not read and compared again and again. Neither ever changes. */
const layersOfLists = new WeakMap<StaticPolicy, Map<TenantLayer['mode'], TenantLayer>>()
const listsOfLayers = new WeakMap<object, StaticPolicy>()
const versions = new WeakMap<TenantLayer, string>()

/** Reads a layer from unknown data, by the sets and named policies of the operator. It may be long. */
export function* checkTenantLayer(
  input: unknown,
  { context, named }: OperatorPolicies,
): Steps<Checked<CheckedTenantLayer>> {
  const read = readBefore(input) ?? (yield* parseLayerPolicySteps(input, context))
  if (!read.ok) return read
  const { policy, mode } = read.value
  if (policy.kind === 'named' && !named.has(policy.name)) return { ok: false, faults: [unknownPolicyName(policy.name)] }
  const layer = layerOf(policy, mode)
  yield
  const version = versions.get(layer) ?? (yield* versionSteps(layer))
  versions.set(layer, version)
  return {
    ok: true,
    value: {
      layer,
      version,
      cell: { mode, cell: { current: () => policy, version: () => version, close: () => undefined } },
    },
  }
}

/** One that came of {@link layerOf}: its entries mean the same whatever the operator says, unless they name sets. */
function readBefore(input: unknown): ReturnType<typeof parseLayerPolicy> | undefined {
  const policy = typeof input === 'object' && input !== null ? listsOfLayers.get(input) : undefined
  if (policy === undefined || namesASet(policy)) return undefined
  return { ok: true, value: { policy, mode: (input as TenantLayer).mode ?? 'enforce' } }
}

/** {@link CheckedTenantLayer.version} */
export function versionOfLayer(layer: TenantLayer): string {
  const known = versions.get(layer)
  if (known !== undefined) return known
  const version = versionOf(layer)
  versions.set(layer, version)
  return version
}

/** A compiled layer as data; what can't be had right now denies. */
export function layerOf(policy: CompiledPolicy, mode: 'enforce' | 'report'): TenantLayer {
  switch (policy.kind) {
    case 'static':
      return layerOfList(policy, mode)
    case 'named':
      return { kind: 'named', name: policy.name, mode }
    case 'allow-all':
      return { kind: 'allow-all', mode }
    default:
      return { kind: 'deny-all', mode }
  }
}

function layerOfList(policy: StaticPolicy, mode: 'enforce' | 'report'): TenantLayer {
  const known = layersOfLists.get(policy)?.get(mode)
  if (known !== undefined) return known
  const { allowedHosts, deniedHosts } = policy
  const layer = Object.freeze({ kind: 'static', allowedHosts, deniedHosts, mode })
  const modes = layersOfLists.get(policy) ?? new Map<TenantLayer['mode'], TenantLayer>()
  layersOfLists.set(policy, modes.set(mode, layer))
  listsOfLayers.set(layer, policy)
  return layer
}

/** Stands in for a kept policy that does not fit the configuration any more, such as one with a set that is gone: it denies. */
export const UNAVAILABLE_LAYER: ModalCell = {
  mode: 'enforce',
  cell: { current: () => ({ kind: 'unavailable' }), version: () => 'unavailable', close: () => undefined },
}

/** The fault of a name that stands for no policy. */
export function unknownPolicyName(name: string): LocatedFault {
  return { path: 'name', code: 'named', message: `no policy in \`policy.named\` is called ${quoted(name)}` }
}
