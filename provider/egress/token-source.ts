/** The current token of one sandbox, for a gateway elsewhere: minted when it is needed, renewed before it ends, asked anew for each policy. */
import type { EgressPolicy, EgressPolicyData } from '../../policies/index.ts'
import { type MintOptions, mintToken, type SigningKey } from '../../proxy/index.ts'
import { answerOf } from './resolved-policy.ts'

/** Who signs, and for whom. */
export interface TokenIssuer {
  readonly key: SigningKey
  readonly issuer: string
  readonly audience?: string | undefined
}

/** Tokens of one sandbox. */
export interface TokenSource {
  /** @throws what a resolver throws; SallyportError when no token can be made of the policy */
  readonly current: () => Promise<string>
  /** The same; then the old policy stays. */
  readonly setPolicy: (policy: EgressPolicy) => Promise<void>
}

/** At most 15 minutes: what is revoked here only by not being renewed must die soon. */
const LIFE_SECONDS = 600
/** A token that has less left is not used for a new connection. */
const RENEW_BEFORE_MS = 300_000

/** Mints nothing yet. */
export function createTokenSource(
  { key, issuer, audience }: TokenIssuer,
  whose: Pick<MintOptions, 'sandbox' | 'tenant'>,
  policy: EgressPolicy,
): TokenSource {
  let current: { readonly policy: EgressPolicy; readonly minted: Promise<Minted> } | undefined
  let inForce = policy

  const mint = async (wanted: EgressPolicy): Promise<Minted> =>
    mintToken({ key, issuer, audience, ...whose, egress: await asData(wanted), lifeSeconds: LIFE_SECONDS })

  /** At most one is being made at a time; a failure is not kept. */
  const renew = (wanted: EgressPolicy): Promise<Minted> => {
    const entry = { policy: wanted, minted: mint(wanted) }
    current = entry
    entry.minted.catch(() => {
      if (current === entry) current = undefined
    })
    return entry.minted
  }

  return {
    current: async () => {
      if (current?.policy !== inForce) return (await renew(inForce)).token
      const entry = current
      const known = await entry.minted
      if (known.expiresAtMs - Date.now() > RENEW_BEFORE_MS) return known.token
      // Another call may have begun already.
      return (await (current === entry ? renew(inForce) : current.minted)).token
    },
    setPolicy: async (next) => {
      const minted = await mint(next)
      inForce = next
      current = { policy: next, minted: Promise.resolve(minted) }
    },
  }
}

interface Minted {
  readonly token: string
  readonly expiresAtMs: number
}

async function asData(policy: EgressPolicy): Promise<EgressPolicyData> {
  return policy.kind === 'resolver' ? { kind: 'static', allowedHosts: await answerOf(policy.resolve) } : policy
}
