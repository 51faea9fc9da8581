/** The identity that a bound listener stands for: whoever connects there is this sandbox, without a token. */
import { randomUUID } from 'node:crypto'
import { compilePolicy, type EgressPolicy, type EgressPolicyData, type EntrySets, SallyportError } from '../policies/index.ts'
import { BOUND_ISSUER, type Identity } from './tokens/identity.ts'

/** What the host says of the sandbox behind a bound listener. */
export interface BoundIdentity {
  readonly sandbox: string
  readonly tenant?: string | undefined
  /** The claim layer; `deny-all` by default. A resolver is asked as the gateway needs it. */
  readonly egress?: EgressPolicy | undefined
  /** Until when, in milliseconds since the epoch; by default until the listener is closed. */
  readonly expiresAtMs?: number | undefined
}

/** What making an identity needs of the gateway. */
export interface BoundContext {
  readonly nowMs: number
  /** The named sets that an entry may mean. */
  readonly sets: EntrySets
}

/**
 * `id` is the identity's `tokenId`: what the audit shows and a revocation names. A `resolver` becomes the named policy of that id.
 * @throws SallyportError `SALLYPORT_POLICY_INVALID` with every fault of the policy
 */
export function identityOf(bound: BoundIdentity, { nowMs, sets }: BoundContext): Identity {
  const { sandbox, tenant, egress = { kind: 'deny-all' }, expiresAtMs = Infinity } = bound
  const tokenId = `bound:${randomUUID()}`
  const policy: EgressPolicyData = egress.kind === 'resolver' ? { kind: 'named', name: tokenId } : egress
  const claim = compilePolicy(policy, { from: 'file', sets })
  if (!claim.ok) {
    throw new SallyportError('SALLYPORT_POLICY_INVALID', claim.faults.map(({ path, message }) => `${path}: ${message}`).join('\n'))
  }
  return { tokenId, issuer: BOUND_ISSUER, keyId: undefined, sandbox, tenant, issuedAtMs: nowMs, expiresAtMs, claim: claim.value, binding: undefined }
}
