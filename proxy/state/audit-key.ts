/** The key that signs audit checkpoints: made once, kept in the state folder; its public half lies beside the log for whoever verifies. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { generateAuditKey, parseSigningKey, type SigningKey } from '../audit/key.ts'
import { SallyportError } from '../../policies/error.ts'
import { writeWhole } from './folder.ts'
import { whyUnreadable } from '../unreadable.ts'

/** Names below the state folder. */
export const AUDIT_KEY_FILE = 'audit-key.private.jwk'
/** What a verifier needs. */
export const AUDIT_PUBLIC_KEY_FILE = 'audit-key.public.jwk'

/**
 * Reads the key, or makes it on the first start.
 * @throws SallyportError `SALLYPORT_KEY_UNREADABLE`, `SALLYPORT_STATE_UNUSABLE`
 */
export async function openAuditKey(statePath: string): Promise<SigningKey> {
  const file = join(statePath, AUDIT_KEY_FILE)
  if (existsSync(file)) return parseSigningKey(readKey(file), file)
  const { key, privateJwk, publicJwk } = generateAuditKey()
  await writeWhole(file, privateJwk)
  await writeWhole(join(statePath, AUDIT_PUBLIC_KEY_FILE), publicJwk)
  return key
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
