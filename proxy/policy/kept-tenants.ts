/** Policies of tenants that were put through the control API: they stand in the place of what the configuration or the resolver says of the tenant. */
import {
  type Checked,
  parseLayerPolicySteps,
  type LocatedFault,
  quoted,
  type CompiledPolicy,
  type Steps,
} from '../../policies/index.ts'
import { type ModalCell, type OperatorPolicies, type PolicySetting, versionOf } from './operator-policies.ts'

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

/** Reads a layer from unknown data, by the sets and named policies of the operator. It may be long. */
export function* checkTenantLayer(
  input: unknown,
  { context, named }: OperatorPolicies,
): Steps<Checked<CheckedTenantLayer>> {
  const read = yield* parseLayerPolicySteps(input, context)
  if (!read.ok) return read
  const { policy, mode } = read.value
  if (policy.kind === 'named' && !named.has(policy.name)) return { ok: false, faults: [unknownPolicyName(policy.name)] }
  const layer = layerOf(policy, mode)
  yield
  const version = versionOf(layer)
  return {
    ok: true,
    value: {
      layer,
      version,
      cell: { mode, cell: { current: () => policy, version: () => version, close: () => undefined } },
    },
  }
}

/** A compiled layer as data; what can't be had right now denies. */
export function layerOf(policy: CompiledPolicy, mode: 'enforce' | 'report'): TenantLayer {
  switch (policy.kind) {
    case 'static':
      return { kind: 'static', allowedHosts: policy.allowedHosts, deniedHosts: policy.deniedHosts, mode }
    case 'named':
      return { kind: 'named', name: policy.name, mode }
    case 'allow-all':
      return { kind: 'allow-all', mode }
    default:
      return { kind: 'deny-all', mode }
  }
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
