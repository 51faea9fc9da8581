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

/** What was minted. */
export interface MintedCredential {
  /** What is shown: the token, or a handle of it. */
  readonly token: string
  /** What it is revoked by. */
  readonly tokenId: string
  /** Not later than the gateway takes it to end. */
  readonly expiresAtMs: number
}

/** Makes one of a policy that lives for so long. @throws SallyportError when none can be made */
export type Mint = (egress: EgressPolicyData, lifeSeconds: number) => Promise<MintedCredential>

/** Tokens of one sandbox. */
export interface TokenSource {
  /** @throws what a resolver throws; SallyportError when no token can be made of the policy */
  readonly current: () => Promise<string>
  /** Resolves to the ids of what was minted under former policies and may still live. @throws the same; then the old policy stays */
  readonly setPolicy: (policy: EgressPolicy) => Promise<readonly string[]>
  /** These are dead: until it is said, each further policy gives them again. */
  readonly forget: (tokenIds: readonly string[]) => void
}

/** At most 15 minutes: what is revoked here only by not being renewed must die soon. */
const LIFE_SECONDS = 600
/** A token that has less left is not used for a new connection. */
const RENEW_BEFORE_MS = 300_000

/** Signs with a key of this process. */
export function signedTokens(
  { key, issuer, audience }: TokenIssuer,
  whose: Pick<MintOptions, 'sandbox' | 'tenant'>,
): Mint {
  return (egress, lifeSeconds) => mintToken({ key, issuer, audience, ...whose, egress, lifeSeconds })
}

/** Mints nothing yet. */
export function createTokenSource(make: Mint, policy: EgressPolicy): TokenSource {
  let current: { readonly policy: EgressPolicy; readonly minted: Promise<MintedCredential> } | undefined
  let inForce = policy

  /** All that may live, by id, with its end. */
  const alive = new Map<string, number>()
  const mint = async (wanted: EgressPolicy): Promise<MintedCredential> => {
    const minted = await make(await asData(wanted), LIFE_SECONDS)
    for (const [id, endMs] of alive) if (endMs < Date.now()) alive.delete(id)
    alive.set(minted.tokenId, minted.expiresAtMs)
    return minted
  }

  /** At most one is being made at a time; a failure is not kept. */
  const renew = (wanted: EgressPolicy): Promise<MintedCredential> => {
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
      return [...alive.keys()].filter((id) => id !== minted.tokenId)
    },
    forget: (tokenIds) => {
      for (const id of tokenIds) alive.delete(id)
    },
  }
}

async function asData(policy: EgressPolicy): Promise<EgressPolicyData> {
  return policy.kind === 'resolver' ? { kind: 'static', allowedHosts: await answerOf(policy.resolve) } : policy
}
