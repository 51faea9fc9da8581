/**
 * What the claims of a token say, once its signature holds: who asks, until when, and what the token itself allows. A claim that can't be read
 * refuses the token; nothing is guessed and nothing is widened.
 * @see RFC 7519 section 4.1, RFC 7800 (`cnf`), RFC 8705 section 3.1 (`x5t#S256`)
 */
import { z } from 'zod'
import {
  type CompiledPolicy,
  type EntrySets,
  type LocatedFault,
  parseAddress,
  parsePolicy,
} from '../../policies/index.ts'
import { withoutBlanksAround } from '../blanks.ts'
import type { CredentialReason } from '../reasons.ts'
import type { Binding, Identity } from './identity.ts'
import type { ClaimPath, Issuer } from './issuers.ts'
import { type JsonObject, ownMember } from './strict-json.ts'

/** Longest life of a token in seconds: 24 hours. */
export const MAX_LIFE_SECONDS = 86_400

/** Claims that hold at some time: whether that is now is asked at every use. */
export type ReadClaims =
  | { readonly ok: true; readonly identity: Identity; readonly notBeforeMs: number }
  | {
      readonly ok: false
      readonly reason: CredentialReason
      readonly detail: string
      readonly known: Partial<Identity>
    }

const text = z.string().min(1).max(512)

/** Any number of JSON, also with a fraction; `1e400` is none. */
const seconds = z.number()

const claimsSchema = z.object({
  aud: z.union([z.string(), z.array(z.string())]).optional(),
  exp: seconds,
  iat: seconds,
  nbf: seconds.optional(),
  jti: text.optional(),
  sandbox: text.optional(),
  tenant: text.optional(),
  cnf: z
    .strictObject({
      'x5t#S256': z
        .string()
        .regex(/^[A-Za-z0-9_-]{43}$/)
        .optional(),
      ip: z.string().optional(),
    })
    .optional(),
})

/** Reads the claims of a verified token. `hashId` is its id where it has no `jti` and need not. */
export function readClaims(
  claims: JsonObject,
  issuer: Issuer,
  token: { readonly keyId: string | undefined; readonly hashId: string },
  sets: EntrySets,
): ReadClaims {
  const known = { issuer: issuer.issuer, keyId: token.keyId }
  const invalid = (detail: string): ReadClaims => ({ ok: false, reason: 'token_claims_invalid', detail, known })

  const names = { sandbox: issuer.claims.sandbox, tenant: issuer.claims.tenant }
  const shape = claimsSchema.safeParse(pickClaims(claims, names))
  if (!shape.success) return invalid(describeIssue(shape.error.issues[0], names))
  const { aud, exp, iat, nbf, jti, sandbox, tenant, cnf } = shape.data

  if (aud === undefined) {
    if (!issuer.optionalAudience) return invalid('the claim `aud` is missing')
  } else if (!issuer.audiences.some((name) => (typeof aud === 'string' ? aud === name : aud.includes(name)))) {
    return { ok: false, reason: 'token_audience_mismatch', detail: 'the token is for another audience', known }
  }
  if (jti === undefined && !issuer.optionalTokenId) return invalid('the claim `jti` is missing')
  if (exp - iat > MAX_LIFE_SECONDS) return invalid('the life from `iat` to `exp` is longer than 24 hours')

  const binding = readBinding(cnf)
  if (typeof binding === 'string') return invalid(binding)
  const claim = readClaimLayer(claims, issuer, sets)
  if (typeof claim === 'string') return invalid(claim)
  return {
    ok: true,
    notBeforeMs: Math.max(iat, nbf ?? iat) * 1000,
    identity: {
      tokenId: jti ?? token.hashId,
      issuer: issuer.issuer,
      keyId: token.keyId,
      sandbox,
      tenant,
      issuedAtMs: iat * 1000,
      expiresAtMs: exp * 1000,
      claim,
      binding,
    },
  }
}

interface MappedNames {
  readonly sandbox: ClaimPath
  readonly tenant: ClaimPath
}

/** The registered claims and the two that the issuer may call otherwise, under our names; what is absent stays absent. */
function pickClaims(claims: JsonObject, names: MappedNames): object {
  const wanted = ['aud', 'exp', 'iat', 'nbf', 'jti', 'cnf'].map((name) => [name, [name]] as const)
  return Object.fromEntries(
    [...wanted, ['sandbox', names.sandbox] as const, ['tenant', names.tenant] as const]
      .map(([ours, theirs]) => [ours, memberAt(claims, theirs)] as const)
      .filter(([, value]) => value !== undefined),
  )
}

/** The member at the end of a path; `undefined` when it is absent, `null`, which fits no claim, when something on the way is no object. */
function memberAt(claims: JsonObject, path: ClaimPath): unknown {
  let at: unknown = claims
  for (const name of path) {
    if (typeof at !== 'object' || at === null || Array.isArray(at)) return null
    at = ownMember(at as JsonObject, name)
    if (at === undefined) return undefined
  }
  return at
}

function describeIssue(issue: z.core.$ZodIssue | undefined, names: MappedNames): string {
  const [first, second] = issue?.path ?? []
  const claim = first === 'sandbox' || first === 'tenant' ? names[first].join('.') : String(first)
  if (issue?.code === 'unrecognized_keys') return `the claim \`${claim}\` has a member that is not understood`
  return `the claim \`${claim}${typeof second === 'string' ? `.${second}` : ''}\` is missing, of the wrong type or out of range`
}

function readBinding(cnf: z.infer<typeof claimsSchema>['cnf']): Binding | undefined | string {
  if (cnf === undefined) return undefined
  const { 'x5t#S256': certificate, ip } = cnf
  if (certificate === undefined && ip === undefined) return 'the claim `cnf` binds to nothing'
  if (ip === undefined) return { ...(certificate !== undefined && { certificate }) }
  const address = parseAddress(ip)
  if (!address.ok) return 'the claim `cnf.ip` is not an address'
  return { ...(certificate !== undefined && { certificate }), address: address.value.text }
}

/** The claim layer, or what is wrong with it. */
function readClaimLayer(claims: JsonObject, issuer: Issuer, sets: EntrySets): CompiledPolicy | string {
  const listPath = issuer.claims.allowedHosts
  const listName = listPath?.join('.')
  const egress =
    listPath === undefined ? ownMember(claims, 'egress') : readHostList(memberAt(claims, listPath), listPath.join('.'))
  if (typeof egress === 'string' && listName !== undefined) return egress
  const policy = parsePolicy(egress === undefined ? issuer.egress : egress, { from: 'token', sets })
  return policy.ok ? policy.value : `the claim \`${listName ?? 'egress'}\`: ${describeFault(policy.faults[0])}`
}

/** A mapped list as a policy: an array, or text with commas between the entries and blanks around them. */
function readHostList(value: unknown, name: string): object | string | undefined {
  if (value === undefined) return undefined
  if (Array.isArray(value)) return { kind: 'static', allowedHosts: value }
  if (typeof value !== 'string') return `the claim \`${name}\` is neither a list nor text`
  const entries = value === '' ? [] : value.split(',').map((entry) => withoutBlanksAround(entry))
  if (entries.includes('')) return `the claim \`${name}\` has an empty item`
  return { kind: 'static', allowedHosts: entries }
}

/** For the bearer: quotes the bearer's own entry, in characters fit for a header, and does not list the operator's sets. */
function describeFault(fault: LocatedFault | undefined): string {
  if (fault === undefined) return 'not a policy'
  if (fault.code === 'preset') return 'an entry names a set that does not exist here, or gives it a port'
  return fault.message.replace(/[^\x20-\x7e]/g, '?').slice(0, 300)
}
