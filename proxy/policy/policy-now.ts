/** What the operator's policies come to at the moment: a layer, a name, a claim with sets, an answer of the tenant resolver. */
import { compilePolicy, parsePolicySteps, SallyportError, type CompiledPolicy } from '../../policies/index.ts'
import { inSlices } from '../in-slices.ts'
import type { LoadedPolicy } from './dynamic-policy.ts'
import { type ModalCell, type OperatorPolicies, versionSteps } from './operator-policies.ts'

const DENY_ALL: CompiledPolicy = { kind: 'deny-all' }
/** The version of a tenant that the resolver does not know. */
export const UNKNOWN_TO_RESOLVER = 'unknown'
/** Stands for a policy that can't be had, and denies. */
export const UNAVAILABLE: CompiledPolicy = { kind: 'unavailable' }

/** What a layer of the operator's is now; a name stands for its policy. */
export function current(operator: OperatorPolicies, layer: ModalCell): CompiledPolicy | Promise<CompiledPolicy> {
  const policy = layer.cell.current()
  return policy instanceof Promise ? policy.then((found) => byName(operator, found)) : byName(operator, policy)
}

/** A policy that stands for another becomes that one; one that nobody wrote denies. */
export function byName({ named }: OperatorPolicies, policy: CompiledPolicy): CompiledPolicy | Promise<CompiledPolicy> {
  if (policy.kind !== 'named') return policy
  return named.get(policy.name)?.current() ?? UNAVAILABLE
}

/** An entry of a claim that names a set means the set of now, not the one that the token was read with. */
export function withSetsOfNow({ context }: OperatorPolicies, claim: CompiledPolicy): CompiledPolicy {
  if (claim.kind !== 'static') return claim
  const { kind, allowedHosts, deniedHosts } = claim
  if (!namesASet(claim)) return claim
  const compiled = compilePolicy({ kind, allowedHosts, deniedHosts }, { ...context, from: 'token' })
  return compiled.ok ? compiled.value : UNAVAILABLE
}

/** Whether an entry stands for a set, and so for other hosts when that changes. */
export function namesASet({
  allowedHosts,
  deniedHosts = [],
}: Readonly<{ allowedHosts: readonly string[]; deniedHosts?: readonly string[] | undefined }>): boolean {
  return [allowedHosts, deniedHosts].some((list) => list.some((entry) => entry.startsWith('@')))
}

/** What a tenant resolver gave. Rejects for what is no policy. */
export async function loadedTenant(data: unknown, operator: OperatorPolicies): Promise<LoadedPolicy> {
  if (data === undefined) return { policy: DENY_ALL, version: UNKNOWN_TO_RESOLVER }
  const policy = await inSlices(parsePolicySteps(data, operator.context))
  if (policy.ok) return { policy: policy.value, version: await inSlices(versionSteps(data)) }
  const [first] = policy.faults
  throw new SallyportError('SALLYPORT_POLICY_INVALID', `the tenant resolver gave no policy: ${first?.message ?? ''}`)
}
