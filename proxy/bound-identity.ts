/** The identity that a bound listener stands for: whoever connects there is this sandbox, without a token. */
import { randomUUID } from 'node:crypto'
import type { EgressPolicy } from '../policies/index.ts'
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

/** Its `tokenId` is what the audit shows and a revocation names; its claim is the policy that is defined under that name. */
export function identityOf({ sandbox, tenant, expiresAtMs = Infinity }: BoundIdentity, nowMs: number): Identity {
  const tokenId = `bound:${randomUUID()}`
  const claim = { kind: 'named', name: tokenId } as const
  return {
    tokenId,
    issuer: BOUND_ISSUER,
    keyId: undefined,
    sandbox,
    tenant,
    issuedAtMs: nowMs,
    expiresAtMs,
    claim,
    binding: undefined,
  }
}
