/** The Ed25519 key of the checkpoints: reading it from JWK or PEM, making one, and naming it. It signs nothing else, above all no token. */
import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type JsonWebKey,
  KeyObject,
} from 'node:crypto'
import { SallyportError } from '../../policies/error.ts'

/** What checks checkpoints. */
export interface VerifyKey {
  /** RFC 7638 thumbprint of the public key: `signer` in a checkpoint. */
  readonly id: string
  readonly publicKey: KeyObject
}

/** What signs checkpoints. */
export interface SigningKey extends VerifyKey {
  readonly privateKey: KeyObject
}

/** A new key, and how it is kept: the private JWK for the state folder (mode 0600), the public one for whoever verifies. */
export function generateAuditKey(): {
  readonly key: SigningKey
  readonly privateJwk: string
  readonly publicJwk: string
} {
  const { privateKey } = generateKeyPairSync('ed25519')
  const key = signingKeyFrom(privateKey, 'the new key')
  return { key, privateJwk: printJwk(privateKey, key.id), publicJwk: printJwk(key.publicKey, key.id) }
}

/**
 * The signing key in `material`: a private JWK, a set that holds one key, or PEM (PKCS #8).
 * @param name What to call the material in an error, such as its file.
 * @throws SallyportError `SALLYPORT_KEY_UNREADABLE`
 */
export function parseSigningKey(material: string, name: string): SigningKey {
  const [key, ...others] = readKeys(material, name)
  if (key?.type !== 'private' || others.length > 0)
    throw unreadable(name, 'holds no private key, or several; one Ed25519 private key is needed')
  return signingKeyFrom(key, name)
}

/**
 * The public keys in `material`: a JWK, a JWK set or PEM, public or private (of which the public part is taken).
 * @throws SallyportError `SALLYPORT_KEY_UNREADABLE`
 */
export function parseVerifyKeys(material: string, name: string): readonly VerifyKey[] {
  const keys = readKeys(material, name)
  if (keys.length === 0) throw unreadable(name, 'holds no key')
  return keys.map((key) => verifyKeyFrom(key, name))
}

function signingKeyFrom(privateKey: KeyObject, name: string): SigningKey {
  return { ...verifyKeyFrom(privateKey, name), privateKey }
}

function verifyKeyFrom(key: KeyObject, name: string): VerifyKey {
  if (key.asymmetricKeyType !== 'ed25519')
    throw unreadable(name, `is a key of type \`${key.asymmetricKeyType ?? 'secret'}\`; checkpoints need Ed25519`)
  const publicKey = key.type === 'private' ? createPublicKey(key) : key
  const { crv, kty, x } = publicKey.export({ format: 'jwk' })
  return { id: createHash('sha256').update(JSON.stringify({ crv, kty, x })).digest('base64url'), publicKey }
}

function readKeys(material: string, name: string): readonly KeyObject[] {
  try {
    if (material.includes('-----BEGIN'))
      return [
        /-----BEGIN [A-Z ]*PRIVATE KEY-----/.test(material) ? createPrivateKey(material) : createPublicKey(material),
      ]
    return jwksOf(JSON.parse(material)).map((jwk) =>
      'd' in jwk ? createPrivateKey({ key: jwk, format: 'jwk' }) : createPublicKey({ key: jwk, format: 'jwk' }),
    )
  } catch {
    // The cause may quote the key.
    throw unreadable(name, 'is no Ed25519 key as JWK, JWK set or PEM')
  }
}

function jwksOf(document: unknown): readonly JsonWebKey[] {
  if (typeof document !== 'object' || document === null) return []
  if ('keys' in document && Array.isArray(document.keys)) return document.keys as readonly JsonWebKey[]
  return [document as JsonWebKey]
}

function printJwk(key: KeyObject, id: string): string {
  return `${JSON.stringify({ ...key.export({ format: 'jwk' }), kid: id, use: 'sig', alg: 'EdDSA' })}\n`
}

function unreadable(name: string, why: string): SallyportError {
  return new SallyportError('SALLYPORT_KEY_UNREADABLE', `audit key \`${name}\` ${why}`)
}
