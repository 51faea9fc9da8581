/** The folder that holds what must survive a restart, and the files in it: nobody but the gateway's own user may change them. */
import { randomBytes } from 'node:crypto'
import { type Stats } from 'node:fs'
import { open, rename, stat, unlink } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { SallyportError } from '../../policies/error.ts'
import { makeFolder } from '../make-folder.ts'
import { whyUnreadable } from '../unreadable.ts'

/** Group and others may write. */
const WRITABLE_BY_OTHERS = 0o022

/**
 * Makes the folder (mode 0700) or checks the one that is there.
 * @throws SallyportError `SALLYPORT_STATE_UNUSABLE` when it can't be made, is no folder, belongs to another user, or others may write in it
 */
export async function openFolder(path: string): Promise<void> {
  let stats: Stats
  try {
    makeFolder(path)
    stats = await stat(path)
  } catch (error) {
    throw unusable(path, `can't be made or read (${whyUnreadable(error)})`, error)
  }
  if (!stats.isDirectory()) throw unusable(path, 'is not a folder')
  const user = process.geteuid?.()
  if (user === undefined) return
  if (stats.uid !== user) {
    throw unusable(
      path,
      `belongs to user ${stats.uid}, and the gateway runs as user ${user}; use a folder of that user`,
    )
  }
  if ((stats.mode & WRITABLE_BY_OTHERS) !== 0) {
    throw unusable(path, `can be written by other users; take that away with chmod go-w`)
  }
}

/**
 * Writes a file whole or not at all, mode 0600: a reader sees the old bytes or the new ones.
 * @throws SallyportError `SALLYPORT_STATE_UNUSABLE`
 */
export async function writeWhole(path: string, bytes: string | Uint8Array): Promise<void> {
  const draft = join(dirname(path), `.${randomBytes(9).toString('hex')}.draft`)
  try {
    const file = await open(draft, 'wx', 0o600)
    try {
      await file.writeFile(bytes)
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(draft, path)
    await syncFolder(dirname(path))
  } catch (error) {
    await unlink(draft).catch(() => undefined)
    throw unusable(path, `can't be written (${whyUnreadable(error)})`, error)
  }
}

/** Makes a name that was just given to a file survive a crash of the machine. */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r')
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}

/** The system's code of a fault of `node:fs`, such as `EACCES`. */
export function faultCode(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'unknown fault'
}

/** A fault of the state, in one line. */
export function unusable(path: string, what: string, cause?: unknown): SallyportError {
  return new SallyportError('SALLYPORT_STATE_UNUSABLE', `state \`${path}\` ${what}`, { cause })
}
