/** A key that signs tokens, from wherever it came. The private part stays inside a `KeyObject`, which prints nothing of itself. */
import {
  type JsonWebKey,
  type KeyObject,
  createHash,
  createPrivateKey,
  createPublicKey,
  createSecretKey,
  generateKeyPairSync,
} from 'node:crypto'
import { SallyportError } from '../../policies/error.ts'
import { MIN_RSA_BITS, type TokenAlgorithm } from './key-set.ts'
import { MIN_SECRET_BYTES } from './key-source.ts'

/** Signs tokens with one algorithm. */
export interface SigningKey {
  /** Goes into the header; `undefined` for a secret. */
  readonly kid: string | undefined
  readonly algorithm: TokenAlgorithm
  /** Private, or the secret of HS256. */
  readonly key: KeyObject
}

/** The algorithms of keys that are made here. */
export type GeneratedAlgorithm = 'ES256' | 'EdDSA'

/** Makes a key; its `kid` is the start of its thumbprint in hex, so that it is a file name and a plain argument. @see RFC 7638 */
export function generateSigningKey(algorithm: GeneratedAlgorithm): SigningKey {
  const { privateKey } =
    algorithm === 'ES256' ? generateKeyPairSync('ec', { namedCurve: 'P-256' }) : generateKeyPairSync('ed25519')
  return { kid: keyIdOf(privateKey), algorithm, key: privateKey }
}

/** The public JWK of a key, for a JWK set. */
export function publicJwk(key: SigningKey): JsonWebKey {
  const jwk = createPublicKey(key.key).export({ format: 'jwk' })
  return { ...jwk, ...(key.kid !== undefined && { kid: key.kid }), alg: key.algorithm, use: 'sig' }
}

/** The private JWK of a key. Secret. */
export function privateJwk(key: SigningKey): JsonWebKey {
  return { ...key.key.export({ format: 'jwk' }), ...(key.kid !== undefined && { kid: key.kid }), alg: key.algorithm }
}

/**
 * Reads a private key: a JWK or PEM (PKCS #8). `kid` and `algorithm` of a JWK count, unless they are given.
 * @throws SallyportError `SALLYPORT_KEY_UNREADABLE`; the message holds nothing of the key
 */
export function readSigningKey(
  text: string,
  given: { readonly kid?: string | undefined; readonly algorithm?: TokenAlgorithm | undefined } = {},
): SigningKey {
  try {
    const jwk = text.trimStart().startsWith('{') ? (JSON.parse(text) as JsonWebKey) : undefined
    const key = jwk ? createPrivateKey({ key: jwk, format: 'jwk' }) : createPrivateKey(text)
    const fitting = algorithmsOf(key)
    const stated = given.algorithm ?? jwk?.['alg']
    const algorithm = stated === undefined ? fitting[0] : fitting.find((name) => name === stated)
    const own = jwk?.['kid']
    if (algorithm !== undefined)
      return { kid: given.kid ?? (typeof own === 'string' ? own : undefined), algorithm, key }
  } catch {
    // The cause may quote the key.
    throw new SallyportError('SALLYPORT_KEY_UNREADABLE', 'the private key is neither a private JWK nor PEM')
  }
  throw new SallyportError('SALLYPORT_KEY_UNREADABLE', 'the private key is not of a type or algorithm that is served')
}

/**
 * A secret for HS256.
 * @throws SallyportError `SALLYPORT_KEY_UNREADABLE` for one that is too short
 */
export function secretSigningKey(secret: Uint8Array): SigningKey {
  if (secret.length >= MIN_SECRET_BYTES) return { kid: undefined, algorithm: 'HS256', key: createSecretKey(secret) }
  throw new SallyportError('SALLYPORT_KEY_UNREADABLE', `HS256 needs a secret of ${MIN_SECRET_BYTES} bytes or more`)
}

function algorithmsOf(key: KeyObject): TokenAlgorithm[] {
  switch (key.asymmetricKeyType) {
    case 'ec':
      return key.asymmetricKeyDetails?.namedCurve === 'prime256v1' ? ['ES256'] : []
    case 'ed25519':
      return ['EdDSA']
    case 'rsa':
      return (key.asymmetricKeyDetails?.modulusLength ?? 0) >= MIN_RSA_BITS ? ['RS256', 'PS256'] : []
    default:
      return []
  }
}

function keyIdOf(key: KeyObject): string {
  const { crv, kty, x, y } = createPublicKey(key).export({ format: 'jwk' })
  // Members in the order of RFC 7638; an Ed25519 key has no `y`, and JSON.stringify leaves it out.
  return createHash('sha256').update(JSON.stringify({ crv, kty, x, y })).digest('hex').slice(0, 16)
}
