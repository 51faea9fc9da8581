/**
 * Tokens for the control API. They are signed by the gateway's own keys and are nothing to the proxy: another `typ`, issuer and audience, each of which
 * alone keeps the two kinds apart. An issuer of the configuration can't have this name or this audience.
 */
import { randomUUID } from 'node:crypto'
import type { Clock } from '../clock.ts'
import type { CredentialReason } from '../reasons.ts'
import type { ClientInfo } from '../request.ts'
import type { Revocations } from '../state/revocations.ts'
import { MAX_LIFE_SECONDS } from './claims.ts'
import { parseCompact } from './compact.ts'
import { FAILURE_COST_US } from './failure-budget.ts'
import { fetchDocument } from './fetch-document.ts'
import { ADMIN_AUDIENCE, closeIssuers, createIssuers } from './issuers.ts'
import { jose } from './jose.ts'
import { refuseNow } from './judge.ts'
import type { KeyDocument } from './key-file.ts'
import type { SigningKey } from './signing-key.ts'
import { verifyToken } from './verify-token.ts'

/** What a caller of the control API may do; `admin` is all of it. */
export const ADMIN_SCOPES = ['read', 'policy', 'token', 'admin'] as const

/** One of {@link ADMIN_SCOPES}. */
export type AdminScope = (typeof ADMIN_SCOPES)[number]

/** What an admin token is to say. */
export interface AdminTokenOptions {
  /** The gateway's own. */
  readonly key: SigningKey
  readonly scopes: readonly AdminScope[]
  /** Who holds it, for the audit log; `sub`. */
  readonly name?: string | undefined
  /** At most 86,400. */
  readonly lifeSeconds: number
}

/** Who a good admin token stands for. */
export interface AdminBearer {
  readonly name: string | undefined
  readonly tokenId: string
  readonly expiresAtMs: number
  readonly scopes: ReadonlySet<AdminScope>
  /** Asked again while something long goes on, such as a stream. */
  readonly isGood: () => boolean
}

/** The bearer, or why the token is not accepted. */
export type AdminVerdict =
  | { readonly ok: true; readonly bearer: AdminBearer }
  | { readonly ok: false; readonly reason: CredentialReason; readonly detail?: string; readonly costUs: number }

/** Verifies admin tokens. */
export interface AdminVerifier {
  readonly verify: (token: string, client: ClientInfo) => Promise<AdminVerdict>
  /** Stops watching keys; idempotent. */
  readonly close: () => void
}

/**
 * Signs an admin token.
 * @throws TypeError for a life, a name or scopes that no gateway accepts
 */
export async function mintAdminToken({ key, scopes, name, lifeSeconds }: AdminTokenOptions): Promise<{
  readonly token: string
  readonly tokenId: string
  /** Milliseconds since the epoch. */
  readonly expiresAtMs: number
}> {
  if (!(lifeSeconds > 0 && lifeSeconds <= MAX_LIFE_SECONDS))
    throw new TypeError(`the life of a token is more than 0 and at most ${MAX_LIFE_SECONDS} seconds`)
  if (scopes.length === 0) throw new TypeError('an admin token has one scope or more')
  if (name !== undefined && (name === '' || name.length > 100)) throw new TypeError('a name has 1 to 100 characters')
  const issuedAt = Math.floor(Date.now() / 1000)
  const expires = issuedAt + lifeSeconds
  const tokenId = randomUUID()
  const claims = {
    iss: ADMIN_AUDIENCE,
    aud: ADMIN_AUDIENCE,
    iat: issuedAt,
    exp: expires,
    jti: tokenId,
    scope: [...new Set(scopes)].join(' '),
    ...(name !== undefined && { sub: name }),
  }
  const { SignJWT } = await jose()
  const header = { alg: key.algorithm, typ: 'admin+jwt', ...(key.kid !== undefined && { kid: key.kid }) }
  return {
    token: await new SignJWT(claims).setProtectedHeader(header).sign(key.key),
    tokenId,
    expiresAtMs: expires * 1000,
  }
}

/** Accepts what the gateway's own keys signed for the control API, and nothing else. */
export function createAdminVerifier(options: {
  readonly stateKeys: KeyDocument
  readonly revocations: Pick<Revocations, 'isRevoked'>
  readonly clock: Clock
}): AdminVerifier {
  const { stateKeys, revocations, clock } = options
  const registry = createIssuers(
    [
      {
        issuer: ADMIN_AUDIENCE,
        audience: ADMIN_AUDIENCE,
        algorithms: ['ES256', 'EdDSA'],
        stateKeys: true,
        typ: ['admin+jwt'],
      },
    ],
    { fetch: fetchDocument, clock, stateKeys, onKeyEvent: () => undefined },
  )
  const trust = { issuers: registry.issuers, sets: new Map() }

  async function verify(token: string, client: ClientInfo): Promise<AdminVerdict> {
    const verdict = await verifyToken<never>(token, trust, () => Promise.resolve(() => undefined))
    if (!verdict.ok) return { ok: false, reason: verdict.reason, detail: verdict.detail, costUs: verdict.costUs }
    // Its holder is no sandbox: revoking a sandbox of the same name does not concern it.
    const { sandbox: name, ...rest } = verdict.identity
    const identity = { ...rest, sandbox: undefined, tenant: undefined }
    const scopes = readScopes(token)
    if (scopes === undefined)
      return {
        ok: false,
        reason: 'token_claims_invalid',
        detail: 'the claim `scope` names no scope, or an unknown one',
        costUs: FAILURE_COST_US.signature,
      }
    const refusal = (): CredentialReason | undefined =>
      refuseNow({ identity, notBeforeMs: verdict.notBeforeMs }, client, clock.wallMs(), revocations.isRevoked)
    const reason = refusal()
    if (reason !== undefined) return { ok: false, reason, costUs: 0 }
    const { tokenId, expiresAtMs } = identity
    const { keys, key } = verdict.source
    const isGood = (): boolean => keys.holds(key) && refusal() === undefined
    return { ok: true, bearer: { name, tokenId, expiresAtMs, scopes, isGood } }
  }

  return { verify, close: () => closeIssuers(registry) }
}

/** The scopes of a token that was verified: words with one blank between them, all of them known. @see RFC 8693 section 4.2 */
function readScopes(token: string): ReadonlySet<AdminScope> | undefined {
  const parts = parseCompact(token)
  const scope: unknown =
    parts.ok && Object.hasOwn(parts.value.claims, 'scope') ? parts.value.claims['scope'] : undefined
  if (typeof scope !== 'string') return undefined
  const words = scope.split(' ')
  return words.every(isScope) ? new Set(words) : undefined
}

function isScope(word: string): word is AdminScope {
  return (ADMIN_SCOPES as readonly string[]).includes(word)
}
