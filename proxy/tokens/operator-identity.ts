/** A caller whose token allows everything: what is left is what the operator and the tenant say. It exists in no gateway. */
import type { Identity } from './identity.ts'

/** An identity for asking about the operator's layers alone. */
export function operatorIdentity(options: { readonly tenant: string | undefined; readonly nowMs: number }): Identity {
  return {
    tokenId: 'none',
    issuer: 'none',
    keyId: undefined,
    sandbox: undefined,
    tenant: options.tenant,
    issuedAtMs: options.nowMs,
    expiresAtMs: Infinity,
    claim: { kind: 'allow-all' },
    binding: undefined,
  }
}
