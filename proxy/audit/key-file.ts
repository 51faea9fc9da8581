/** Where the audit key is kept: the private part in the state folder, the public part in a file beside it that anybody may have. */
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { SallyportError } from '../../policies/error.ts'
import { generateAuditKey, parseSigningKey, parseVerifyKeys, type SigningKey, type VerifyKey } from './key.ts'
import { errorCode } from './segment.ts'

/** In the state folder, mode 0600. */
export const PRIVATE_KEY_FILE = 'audit-key.jwk'

/** In the state folder; a JWK set may take its place when keys were changed. */
export const PUBLIC_KEY_FILE = 'audit-key.pub.jwk'

/**
 * The audit key of `folder`; made there when there is none.
 * @throws SallyportError `SALLYPORT_KEY_UNREADABLE`
 */
export function openAuditKey(folder: string): SigningKey {
  const path = join(folder, PRIVATE_KEY_FILE)
  try {
    if (existsSync(path)) return parseSigningKey(readFileSync(path, 'utf8'), path)
    const { key, privateJwk, publicJwk } = generateAuditKey()
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    writeFileSync(path, privateJwk, { flag: 'wx', mode: 0o600 })
    writeFileSync(join(folder, PUBLIC_KEY_FILE), publicJwk, { mode: 0o644 })
    chmodSync(join(folder, PUBLIC_KEY_FILE), 0o644)
    return key
  } catch (error) {
    if (error instanceof SallyportError) throw error
    throw new SallyportError('SALLYPORT_KEY_UNREADABLE', `audit key \`${path}\` can't be read or made (${errorCode(error)})`, { cause: error })
  }
}

/**
 * The public keys in a file.
 * @throws SallyportError `SALLYPORT_KEY_UNREADABLE`
 */
export function readVerifyKeys(path: string): readonly VerifyKey[] {
  let material: string
  try {
    material = readFileSync(path, 'utf8')
  } catch (error) {
    throw new SallyportError('SALLYPORT_KEY_UNREADABLE', `audit key \`${path}\` can't be read (${errorCode(error)})`, { cause: error })
  }
  return parseVerifyKeys(material, path)
}

/**
 * The public key file that lies beside a log: in its folder or the one above. Only as good as that folder: whoever can write it can replace the key too,
 * so compare its thumbprint with one that was noted elsewhere.
 */
export function findPublicKeyFile(logPath: string): string | undefined {
  const folders = [logPath, dirname(logPath), dirname(dirname(logPath))]
  return folders.map((folder) => join(folder, PUBLIC_KEY_FILE)).find((path) => existsSync(path))
}
