/** An issuer of the test's own, with keys made for the run, and a clock that moves by hand. */
import { createPublicKey, sign } from 'node:crypto'
import type { Clock } from '../../../proxy/clock.ts'
import type { ClientInfo, Credentials } from '../../../proxy/request.ts'
import {
  type Identified,
  type Identifier,
  type IdentifierOptions,
  createIdentifier,
} from '../../../proxy/tokens/identify.ts'
import type { IssuerOptions } from '../../../proxy/tokens/issuers.ts'
import { type MintOptions, mintToken } from '../../../proxy/tokens/mint.ts'
import { type SigningKey, generateSigningKey, publicJwk } from '../../../proxy/tokens/signing-key.ts'

/** The issuer of {@link tokenOf}. */
export const ISSUER = 'https://own.issuer.test'

/** A client on loopback. */
export const CLIENT: ClientInfo = { address: '127.0.0.1', port: 40_000 }

/** Nobody is revoked. */
export const NOT_REVOKED: IdentifierOptions['revocations'] = { isRevoked: () => false, isCurrent: () => true }

/** A clock that stands still until it is moved. */
export interface ManualClock extends Clock {
  readonly advance: (ms: number) => void
}

/** Starts at the present, so that tokens minted now are good. */
export function manualClock(): ManualClock {
  let passed = 0
  const start = Date.now()
  return { wallMs: () => start + passed, monotonicMs: () => passed, advance: (ms) => void (passed += ms) }
}

/** A key of one run. */
export function newKey(): SigningKey {
  return generateSigningKey('ES256')
}

/** An entry of `issuers` with these keys as data. */
export function issuerOf(keys: readonly SigningKey[], more: Partial<IssuerOptions> = {}): IssuerOptions {
  return { issuer: ISSUER, algorithms: ['ES256'], keySet: keySetOf(keys), ...more }
}

/** The public JWK set of keys. */
export function keySetOf(keys: readonly SigningKey[]): { readonly keys: readonly object[] } {
  return { keys: keys.map(publicJwk) }
}

/** An identifier of one issuer with one key. */
export function identifierOf(key: SigningKey, more: Partial<IdentifierOptions> = {}): Identifier {
  return createIdentifier({ issuers: [issuerOf([key])], revocations: NOT_REVOKED, ...more })
}

/** A token that allows everything. */
export async function tokenOf(key: SigningKey, more: Partial<MintOptions> = {}): Promise<string> {
  return (await mintToken({ key, issuer: ISSUER, egress: { kind: 'allow-all' }, ...more })).token
}

/** A token with claims and header as they are given, signed with an ES256 key. */
export function rawToken(key: SigningKey, claims: object | string, header: object | string = {}): string {
  const members =
    typeof header === 'string' ? header : JSON.stringify({ alg: 'ES256', kid: key.kid, typ: 'egress+jwt', ...header })
  const payload = typeof claims === 'string' ? claims : JSON.stringify(claims)
  const input = `${Buffer.from(members).toString('base64url')}.${Buffer.from(payload).toString('base64url')}`
  const signature = sign('sha256', Buffer.from(input), { key: key.key, dsaEncoding: 'ieee-p1363' })
  return `${input}.${signature.toString('base64url')}`
}

/** Claims that are good now. */
export function goodClaims(more: object = {}): Record<string, unknown> {
  const now = Math.floor(Date.now() / 1000)
  return {
    iss: ISSUER,
    aud: 'sallyport',
    iat: now - 5,
    exp: now + 600,
    jti: 'j1',
    egress: { kind: 'allow-all' },
    ...more,
  }
}

/** Presents a token. */
export function present(identifier: Identifier, token: string, client = CLIENT): Identified | Promise<Identified> {
  const credentials: Credentials = { kind: 'token', token }
  return identifier.identify(credentials, client)
}

/** What became of a token in one word: `ok` or the reason. */
export async function outcomeOf(identifier: Identifier, token: string, client = CLIENT): Promise<string> {
  const outcome = await present(identifier, token, client)
  return outcome.ok ? 'ok' : outcome.reason
}

/** The public key of a signing key in the forms in which it could be mistaken for a secret. */
export function publicForms(key: SigningKey): Buffer[] {
  const open = createPublicKey(key.key)
  const jwk = open.export({ format: 'jwk' })
  return [
    Buffer.from(open.export({ type: 'spki', format: 'pem' })),
    Buffer.from(String(open.export({ type: 'spki', format: 'pem' })).trim()),
    open.export({ type: 'spki', format: 'der' }),
    Buffer.from(JSON.stringify(jwk)),
    Buffer.from(jwk.x ?? '', 'base64url'),
    Buffer.alloc(0),
  ].filter((bytes) => bytes.length > 0)
}
