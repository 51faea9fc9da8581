/** Keys that are the same in every run, so that an input means the same tomorrow. They are worth nothing: anybody can make them. */
import { createHash, createPrivateKey, type KeyObject } from 'node:crypto'
import { parseSigningKey, type SigningKey as AuditKey } from '../../proxy/audit/key.ts'
import type { SigningKey } from '../../proxy/tokens/signing-key.ts'

const ED25519_PKCS8 = Buffer.from('302e020100300506032b657004220420', 'hex')
const seedOf = (name: string): Buffer => createHash('sha256').update(`sallyport fuzz ${name}`).digest()

function edKey(name: string): KeyObject {
  return createPrivateKey({ key: Buffer.concat([ED25519_PKCS8, seedOf(name)]), format: 'der', type: 'pkcs8' })
}

/** Signs tokens. */
export function tokenKey(): SigningKey {
  return { kid: 'fuzz', algorithm: 'EdDSA', key: edKey('token') }
}

/** Signs checkpoints. */
export function auditKey(): AuditKey {
  return parseSigningKey(edKey('audit').export({ format: 'pem', type: 'pkcs8' }).toString(), 'the key')
}
