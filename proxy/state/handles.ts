/**
 * Handles: 36 characters that stand for a token too long for a client. A handle is kept as its hash, and the token beside it encrypted under a key
 * made from the handle, so the folder gives away neither; and since what comes out is a token, it is verified like one that was sent whole.
 */
import { createCipheriv, createDecipheriv, hash, hkdfSync, randomBytes } from 'node:crypto'
import { readFile, readdir, stat, unlink, utimes } from 'node:fs/promises'
import { join } from 'node:path'
import { SallyportError } from '../../policies/error.ts'
import type { Clock } from '../clock.ts'
import { openFolder, unusable, writeWhole } from './folder.ts'
import { whyUnreadable } from '../unreadable.ts'

/** Handles kept at most; each is a file of little more than its token. */
const MAX_HANDLES = 100_000

/** Bytes of a file: a token of 32 KiB, and the rest. */
const MAX_FILE_BYTES = 33 * 1024

const NONCE_BYTES = 12
const TAG_BYTES = 16

/** Milliseconds that a handle outlives its token, so that a late caller is told `token_expired` and not that nobody knows it. */
const GRACE_MS = 600_000

/** Milliseconds between two sweeps of one process. */
const SWEEP_EVERY_MS = 60_000

const FORM = /^sph_[A-Za-z0-9_-]{32}$/

/** Whether a credential is meant as a handle; it may still be none. */
export function isHandle(credential: string): boolean {
  return credential.startsWith('sph_')
}

/** The handles of a state folder. */
export interface Handles {
  /**
   * Makes a handle for a token; usable at once by every gateway on the folder. Verifies nothing.
   * @throws SallyportError `SALLYPORT_STATE_UNUSABLE` when it can't be kept
   */
  readonly mint: (token: string, expiresAtMs: number) => Promise<string>
  /** The token that a handle stands for; `undefined` for anything that nobody minted here. Never rejects. */
  readonly open: (handle: string) => Promise<string | undefined>
}

/**
 * Opens the handles below a state folder.
 * @throws SallyportError `SALLYPORT_STATE_UNUSABLE`
 */
export async function openHandles(path: string, clock: Clock): Promise<Handles> {
  await openFolder(path)
  let count = 0
  let nextSweepMs = -Infinity

  /** Deletes what expired, and drafts of a process that died, and counts what is left. */
  async function sweep(): Promise<void> {
    nextSweepMs = clock.monotonicMs() + SWEEP_EVERY_MS
    count = 0
    for (const name of await readdir(path)) {
      const stats = await stat(join(path, name)).catch(() => undefined)
      if (stats === undefined) continue
      if (stats.mtimeMs + GRACE_MS < clock.wallMs()) await unlink(join(path, name)).catch(() => undefined)
      else count++
    }
  }

  async function mint(token: string, expiresAtMs: number): Promise<string> {
    const handle = `sph_${randomBytes(24).toString('base64url')}`
    await openFolder(path)
    try {
      if (clock.monotonicMs() >= nextSweepMs) await sweep()
      if (count >= MAX_HANDLES) throw unusable(path, `holds ${MAX_HANDLES} handles, and no more are made`)
      await writeWhole(join(path, fileName(handle)), seal(handle, token))
      // The time of modification says when the file may go, so that a sweep need not read it.
      const goes = new Date(expiresAtMs)
      await utimes(join(path, fileName(handle)), goes, goes)
    } catch (error) {
      throw error instanceof SallyportError ? error : unusable(path, `can't be used (${whyUnreadable(error)})`, error)
    }
    count++
    return handle
  }

  return {
    mint,
    open: async (handle) => (FORM.test(handle) ? readSealed(join(path, fileName(handle)), handle) : undefined),
  }
}

const fileName = (handle: string): string => `${hash('sha256', handle)}.sealed`

/** The key is another function of the handle than the file's name. */
function sealingKey(handle: string): Uint8Array {
  return new Uint8Array(hkdfSync('sha256', handle, '', 'sallyport handle v1', 32))
}

function seal(handle: string, token: string): Buffer {
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv('aes-256-gcm', sealingKey(handle), nonce)
  const sealed = [cipher.update(token, 'latin1'), cipher.final()]
  return Buffer.concat([nonce, cipher.getAuthTag(), ...sealed])
}

async function readSealed(path: string, handle: string): Promise<string | undefined> {
  try {
    if ((await stat(path)).size > MAX_FILE_BYTES) return undefined
    const bytes = await readFile(path)
    const nonce = bytes.subarray(0, NONCE_BYTES)
    const decipher = createDecipheriv('aes-256-gcm', sealingKey(handle), nonce, { authTagLength: TAG_BYTES })
    decipher.setAuthTag(bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES))
    return decipher.update(bytes.subarray(NONCE_BYTES + TAG_BYTES), undefined, 'latin1') + decipher.final('latin1')
  } catch {
    // Unknown, expired, or changed by somebody: in each case no token.
    return undefined
  }
}
