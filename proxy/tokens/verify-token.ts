/**
 * What becomes of a token that was not seen before: its structure, issuer, key, signature and claims, in this order. What is found depends on the
 * token and the keys alone, not on the time or the client, so it can be remembered.
 * @see RFC 8725, and RFC 7515 section 5.2 for the order
 */
import type { EntrySets } from '../../policies/index.ts'
import type { CredentialReason } from '../reasons.ts'
import { readClaims } from './claims.ts'
import { type TokenHeader, parseCompact } from './compact.ts'
import { FAILURE_COST_US } from './failure-budget.ts'
import type { Identity } from './identity.ts'
import type { Issuer } from './issuers.ts'
import { jose } from './jose.ts'
import type { VerifiedToken } from './judge.ts'
import type { TokenAlgorithm, VerificationKey } from './key-set.ts'

/** A token whose signature and claims hold. */
export interface Verified extends VerifiedToken {
  readonly ok: true
  /** What verified it: the verdict is good while `keys` still holds `key`. */
  readonly source: Pick<Issuer, 'keys'> & { readonly key: VerificationKey }
}

/** A token that is refused, whoever brings it. */
export interface Refused {
  readonly ok: false
  readonly reason: CredentialReason
  /** For the bearer. */
  readonly detail: string
  /** What is known for sure, once the signature was verified. */
  readonly identity?: Partial<Identity>
  /** What it cost to find out. */
  readonly costUs: number
  /** Whether the same token is refused again while `source` holds (or for good, without one); else another look may end otherwise. */
  readonly settled: boolean
  readonly source?: Verified['source']
}

/** What became of a token. */
export type Verdict = Verified | Refused

/**
 * Judges a token. `takeTurn` is awaited before the signature is verified; what it gives instead of a turn is handed through.
 */
export async function verifyToken<T>(
  token: string,
  trust: { readonly issuers: ReadonlyMap<string, Issuer>; readonly sets: EntrySets },
  takeTurn: () => Promise<(() => void) | { readonly instead: T }>,
): Promise<Verdict | T> {
  const parts = parseCompact(token)
  if (!parts.ok) return refuse('token_malformed', parts.fault.message)
  const { header, claims, hashId } = parts.value

  const name = Object.hasOwn(claims, 'iss') ? claims['iss'] : undefined
  const issuer = typeof name === 'string' ? trust.issuers.get(name) : undefined
  if (!issuer) return refuse('token_issuer_unknown', 'the issuer of the token is not known here')
  if (!acceptsType(issuer, header)) return refuse('token_malformed', 'the `typ` of the token is not accepted')
  if (!issuer.algorithms.has(header.alg)) return refuseSignature('the algorithm is not one of the issuer')

  const algorithm = header.alg as TokenAlgorithm
  const first = issuer.keys.find(algorithm, header.kid) ?? (await findAgain(issuer, algorithm, header.kid))
  if (!first) return { ...refuseSignature('no key of the issuer fits the token'), settled: false }

  const turn = await takeTurn()
  if (typeof turn !== 'function') return turn.instead
  try {
    const key = await findSigner(token, issuer, algorithm, header.kid, first)
    const source = { keys: issuer.keys, key: key ?? first }
    if (!key) {
      return { ...refuseSignature('the signature does not hold'), costUs: FAILURE_COST_US.signature, source }
    }
    const read = readClaims(claims, issuer, { keyId: key.kid, hashId }, trust.sets)
    if (read.ok) return { ...read, source }
    const { reason, detail, known } = read
    return { ...refuse(reason, detail), costUs: FAILURE_COST_US.signature, identity: known, source }
  } finally {
    turn()
  }
}

/** The key that signed the token. Keys without a name change unnoticed, so for a token without `kid` the set is looked at again. */
async function findSigner(
  token: string,
  issuer: Issuer,
  algorithm: TokenAlgorithm,
  kid: string | undefined,
  key: VerificationKey,
): Promise<VerificationKey | undefined> {
  if (await isSignedBy(token, algorithm, key)) return key
  if (kid !== undefined) return undefined
  const other = await findAgain(issuer, algorithm, kid)
  return other && other !== key && (await isSignedBy(token, algorithm, other)) ? other : undefined
}

async function findAgain(
  issuer: Issuer,
  algorithm: TokenAlgorithm,
  kid: string | undefined,
): Promise<VerificationKey | undefined> {
  await issuer.keys.refresh()
  return issuer.keys.find(algorithm, kid)
}

async function isSignedBy(token: string, algorithm: TokenAlgorithm, key: VerificationKey): Promise<boolean> {
  const { compactVerify } = await jose()
  try {
    await compactVerify(token, key.key, { algorithms: [algorithm] })
    return true
  } catch {
    return false
  }
}

function acceptsType(issuer: Issuer, header: TokenHeader): boolean {
  const { typ } = header
  return typ === undefined ? issuer.types.includes('none') : typ !== 'none' && issuer.types.some((type) => type === typ)
}

function refuseSignature(detail: string): Refused {
  return refuse('token_signature_invalid', detail)
}

function refuse(reason: CredentialReason, detail: string): Refused {
  return { ok: false, reason, detail, costUs: FAILURE_COST_US.cheap, settled: true }
}
