/**
 * Which keys of a JWK set may verify a token, and which of them a token's header means. Pure: a set is data, wherever it came from.
 * @see RFC 7517 (JWK), RFC 7518 section 6 (key types), RFC 8037 (Ed25519), RFC 8725 sections 3.1 and 3.5
 */
import { createPublicKey, hash, type KeyObject } from 'node:crypto'
import { type Parsed, faulty, parsed } from '../../policies/parsed.ts'
import { MAX_KEY_ID_LENGTH } from './compact.ts'
import { ownMember, parseStrictObject } from './strict-json.ts'

/** The signature algorithms that an issuer may use. */
export const TOKEN_ALGORITHMS = ['EdDSA', 'ES256', 'RS256', 'PS256', 'HS256'] as const

/** One of {@link TOKEN_ALGORITHMS}. */
export type TokenAlgorithm = (typeof TOKEN_ALGORITHMS)[number]

/** Keys read of one set; the rest is left out. Real issuers have two to five. */
export const MAX_KEYS = 100

/** A key that may verify tokens of one issuer. */
export interface VerificationKey {
  /** `undefined`: the key has no name, and only a token without `kid` can mean it. */
  readonly kid: string | undefined
  /** The algorithms that the key's own type and `alg` allow. */
  readonly algorithms: readonly TokenAlgorithm[]
  /** Public key, or the secret of HS256. */
  readonly key: KeyObject
  /** Equal for equal keys of equal use, so that a reloaded set can be compared with the last. Holds no key. */
  readonly fingerprint: string
}

/** The usable keys of a set, and how many were left out with the first reason. */
export interface KeySetContent {
  readonly keys: readonly VerificationKey[]
  readonly ignored: number
  readonly firstIgnored: string | undefined
}

const PRIVATE_MEMBERS = ['d', 'p', 'q', 'dp', 'dq', 'qi', 'oth', 'k']

/** Smaller RSA keys are weak. @see RFC 7518 section 3.3 */
export const MIN_RSA_BITS = 2048

/** Huge RSA keys let whoever sends tokens make verification dear. */
const MAX_RSA_BITS = 8192

/** Reads the bytes of a JWK set; fails when they are no set. Keys that are private, weak, not for signatures or not understood are left out. */
export function parseKeySet(bytes: Uint8Array): Parsed<KeySetContent> {
  const document = parseStrictObject(bytes, 'JWK set')
  if (!document.ok) return document
  const listed = ownMember(document.value, 'keys')
  if (!Array.isArray(listed)) return faulty('key_set_shape', 'the JWK set has no list `keys`')
  const keys: VerificationKey[] = []
  let ignored = 0
  let firstIgnored: string | undefined
  for (const [index, entry] of listed.entries()) {
    const key = index < MAX_KEYS ? readKey(entry) : `more than ${MAX_KEYS} keys`
    const fault =
      typeof key === 'string' ? key : keys.some((other) => collide(key, other)) ? 'its `kid` again' : undefined
    if (typeof key !== 'string' && fault === undefined) keys.push(key)
    else {
      ignored++
      firstIgnored ??= fault
    }
  }
  return parsed({ keys, ignored, firstIgnored })
}

/** The one key that a header with this algorithm and `kid` means; without `kid` only if exactly one key fits. */
export function selectKey(
  keys: readonly VerificationKey[],
  algorithm: TokenAlgorithm,
  kid: string | undefined,
): VerificationKey | undefined {
  const fitting = keys.filter((key) => key.algorithms.includes(algorithm) && (kid === undefined || key.kid === kid))
  return fitting.length === 1 ? fitting[0] : undefined
}

function collide(one: VerificationKey, other: VerificationKey): boolean {
  return (
    one.kid !== undefined && one.kid === other.kid && one.algorithms.some((name) => other.algorithms.includes(name))
  )
}

/** A usable key, or why it is left out. */
function readKey(entry: unknown): VerificationKey | string {
  if (typeof entry !== 'object' || entry === null || Array.isArray(entry)) return 'not a key'
  const jwk = entry as Readonly<Record<string, unknown>>
  if (PRIVATE_MEMBERS.some((name) => Object.hasOwn(jwk, name))) return 'a private or secret key'
  const { kid, use, alg } = { kid: ownMember(jwk, 'kid'), use: ownMember(jwk, 'use'), alg: ownMember(jwk, 'alg') }
  if (kid !== undefined && (typeof kid !== 'string' || kid === '' || kid.length > MAX_KEY_ID_LENGTH)) {
    return 'a `kid` that is not a text, or too long'
  }
  if (use !== undefined && use !== 'sig') return 'not for signatures'
  const operations = ownMember(jwk, 'key_ops')
  if (operations !== undefined && !(Array.isArray(operations) && operations.includes('verify'))) {
    return 'not for verification'
  }
  const candidates = algorithmsOf(jwk)
  // RFC 9864 gives EdDSA over Ed25519 a name of its own; a key may carry either.
  const own = alg === 'Ed25519' ? 'EdDSA' : alg
  const algorithms = own === undefined ? candidates : candidates.filter((name) => name === own)
  if (algorithms.length === 0) return 'of a type or algorithm that is not served'
  return importKey(jwk, kid, algorithms)
}

function algorithmsOf(jwk: Readonly<Record<string, unknown>>): TokenAlgorithm[] {
  const curve = ownMember(jwk, 'crv')
  switch (ownMember(jwk, 'kty')) {
    case 'RSA':
      return ['RS256', 'PS256']
    case 'EC':
      return curve === 'P-256' ? ['ES256'] : []
    case 'OKP':
      return curve === 'Ed25519' ? ['EdDSA'] : []
    default:
      return []
  }
}

function importKey(
  jwk: Readonly<Record<string, unknown>>,
  kid: string | undefined,
  algorithms: readonly TokenAlgorithm[],
): VerificationKey | string {
  let key: KeyObject
  try {
    // Also proves that the point is on the curve.
    key = createPublicKey({ key: jwk, format: 'jwk' })
  } catch {
    return 'a key that can not be read'
  }
  if (key.asymmetricKeyType === 'rsa') {
    const { modulusLength = 0, publicExponent = 0n } = key.asymmetricKeyDetails ?? {}
    if (modulusLength < MIN_RSA_BITS || modulusLength > MAX_RSA_BITS) {
      return `an RSA key outside ${MIN_RSA_BITS} to ${MAX_RSA_BITS} bits`
    }
    if (publicExponent < 3n || publicExponent % 2n === 0n) return 'an RSA key with a weak exponent'
  }
  if (key.asymmetricKeyType === 'ed25519' && isSmallOrder(key)) return 'a weak Ed25519 key'
  const spki = key.export({ type: 'spki', format: 'der' })
  const fingerprint = hash('sha256', JSON.stringify([kid ?? null, algorithms, spki.toString('base64')]))
  return { kid, algorithms, key, fingerprint }
}

/**
 * The y coordinates, as encoded and without the sign bit, of the points whose order divides 8, in the reduced and unreduced spellings: under them a
 * signature for any text can be made without a private key.
 */
const SMALL_ORDER_Y = new Set([
  '0000000000000000000000000000000000000000000000000000000000000000',
  '0100000000000000000000000000000000000000000000000000000000000000',
  'ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
  'edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
  'eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
  '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05',
  'c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a',
])

function isSmallOrder(key: KeyObject): boolean {
  const point = Buffer.from(key.export({ format: 'jwk' }).x ?? '', 'base64url')
  point[31] = (point[31] ?? 0) & 0x7f
  return SMALL_ORDER_Y.has(point.toString('hex'))
}
