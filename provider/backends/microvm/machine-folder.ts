/** A machine's folder: the images it is made from, by links where that can be, and its sockets. The one place that its program sees. */
import { chmod, chown, constants, copyFile, link, mkdir, rm, stat, symlink } from 'node:fs/promises'
import path from 'node:path'
import { fileFault, MicrovmError } from './microvm-error.ts'

/** Names in the folder. The program is told these, never a path of the host, so that a snapshot fits any other machine's folder. */
export const FILE = {
  kernel: 'kernel',
  initrd: 'initrd',
  rootfs: 'rootfs',
  state: 'snapshot.state',
  memory: 'snapshot.memory',
} as const

/**
 * Makes the folder, of the machine's user alone.
 *
 * @throws MicrovmError `name_taken` when there is one
 */
export async function makeMachineFolder(folder: string, uid: number | undefined): Promise<void> {
  await mkdir(path.dirname(folder), { recursive: true, mode: 0o755 })
  try {
    await mkdir(folder, { mode: 0o700 })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw fileFault(`make the folder \`${folder}\``, error)
    throw new MicrovmError('name_taken', `there is a machine at \`${folder}\` already: \`sallyport sandbox reap\` takes away what nobody owns, or remove it by hand`, error) // prettier-ignore
  }
  if (uid !== undefined) await chown(folder, uid, uid)
}

/**
 * Puts an image into the folder: as a hard link, else as a copy (which costs its size), and for whoever runs it as themselves as a symbolic link. The
 * machine's user may read it and never write.
 *
 * @throws MicrovmError `image_missing`, `image_unusable` or `quota_exhausted`
 */
export async function stage(source: string, folder: string, name: string, uid: number | undefined): Promise<void> {
  const place = path.join(folder, name)
  if (uid === undefined) return symlink(source, place)
  const { mode, uid: owner } = await stat(source).catch((error: unknown) => {
    throw fileFault(`read the image \`${source}\``, error)
  })
  const isSafe = owner !== uid && (mode & 0o022) === 0 && (mode & 0o004) !== 0
  if (isSafe) {
    try {
      await link(source, place)
      return
    } catch {
      // On another file system, or too many links.
    }
  }
  try {
    await copyFile(source, place, constants.COPYFILE_FICLONE)
    await chmod(place, 0o444)
  } catch (error) {
    throw fileFault(`copy the image \`${source}\``, error)
  }
}

/** Removes what is there; nothing is fine. */
export async function removeFolders(folders: readonly string[]): Promise<void> {
  for (const folder of folders) await rm(folder, { recursive: true, force: true, maxRetries: 3 })
}
