/** The key that signs audit checkpoints: made once, kept in the state folder; its public half lies beside the log for whoever verifies. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { generateAuditKey, parseSigningKey, parseVerifyKeys, type SigningKey } from '../audit/key.ts'
import { SallyportError } from '../../policies/error.ts'
import { writeWhole } from './folder.ts'
import { whyUnreadable } from '../unreadable.ts'

/** Names below the state folder. */
export const AUDIT_KEY_FILE = 'audit-key.private.jwk'
/** What a verifier needs. */
export const AUDIT_PUBLIC_KEY_FILE = 'audit-key.public.jwk'

const MAX_EARLIER_KEYS = 64

/**
 * Reads the key, or makes it on the first start.
 * @throws SallyportError `SALLYPORT_KEY_UNREADABLE`, `SALLYPORT_STATE_UNUSABLE`
 */
export async function openAuditKey(statePath: string): Promise<SigningKey> {
  const file = join(statePath, AUDIT_KEY_FILE)
  if (existsSync(file)) return parseSigningKey(readKey(file), file)
  const { key, privateJwk, publicJwk } = generateAuditKey()
  await writeWhole(file, privateJwk)
  const publicFile = join(statePath, AUDIT_PUBLIC_KEY_FILE)
  await writeWhole(publicFile, withEarlierKeys(publicJwk, publicFile))
  return key
}

/** The private key was taken away so that a new one is made: what the old one signed must still verify. */
function withEarlierKeys(publicJwk: string, file: string): string {
  if (!existsSync(file)) return publicJwk
  const earlier = parseVerifyKeys(readKey(file), file).map(({ id, publicKey }) => ({
    ...publicKey.export({ format: 'jwk' }),
    kid: id,
  }))
  const own = JSON.parse(publicJwk) as object
  return `${JSON.stringify({ keys: [own, ...earlier.slice(0, MAX_EARLIER_KEYS)] })}\n`
}

function readKey(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new SallyportError(
      'SALLYPORT_KEY_UNREADABLE',
      `audit key \`${file}\` can't be read (${whyUnreadable(error)})`,
      {
        cause: error,
      },
    )
  }
}
