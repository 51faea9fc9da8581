/** Whole folders: listed and removed. Every step goes through the descriptor of the folder above, so no exchanged folder leads astray. */
import fs from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import { native, type Confinement } from './confinement.ts'
import { Fault } from './fault.ts'
import { UPLOAD_PREFIX } from './files.ts'
import { pathText, type RawPath } from './path-text.ts'

// One descriptor a level.
const MAX_DEPTH = 256
const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = fs.constants

/** A regular file. */
export interface ListedFile {
  readonly path: string
  readonly size: number
}

/** Regular files below a folder, in no order; links are not followed. None when the folder is not there. @throws Fault */
export async function* listFiles(confinement: Confinement, folder: RawPath): AsyncGenerator<ListedFile> {
  let anchor
  try {
    anchor = await confinement.openFolder(folder, 'read')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return
    throw error
  }
  await using start = anchor
  yield* walk(await openFolder(start.via, false), start.real === '/' ? '' : start.real, 1)
}

/** Removes a file, a link or a whole folder; nothing there is fine. @throws Fault */
export async function remove(confinement: Confinement, file: RawPath): Promise<void> {
  let found
  try {
    found = await confinement.openParent(file)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return
    throw error
  }
  await using parent = found.parent
  await removeAt(`${parent.via}/${found.name}`, 1)
}

async function* walk(handle: FileHandle, real: RawPath, depth: number): AsyncGenerator<ListedFile> {
  await using folder = handle
  for await (const { name, entry } of entriesOf(folder)) {
    const place = `${viaOf(folder)}/${name}`
    if (entry.isDirectory()) {
      const child = await openFolder(place, true, depth).catch(ignoreGone)
      if (child !== undefined) yield* walk(child, `${real}/${name}`, depth + 1)
    } else if (entry.isFile() && !name.startsWith(UPLOAD_PREFIX)) {
      const stats = await fs.promises.lstat(native(place)).catch(ignoreGone)
      if (stats?.isFile()) yield { path: pathText(`${real}/${name}`), size: stats.size }
    }
  }
}

async function removeAt(place: RawPath, depth: number): Promise<void> {
  const stats = await fs.promises.lstat(native(place)).catch(ignoreGone)
  if (stats === undefined) return
  if (!stats.isDirectory()) {
    await fs.promises.unlink(native(place)).catch(ignoreGone)
    return
  }
  const handle = await openFolder(place, true, depth).catch(ignoreGone)
  if (handle === undefined) return
  {
    await using folder = handle
    for await (const { name } of entriesOf(folder)) await removeAt(`${viaOf(folder)}/${name}`, depth + 1)
  }
  await fs.promises.rmdir(native(place)).catch(ignoreGone)
}

async function openFolder(place: RawPath, checkLast: boolean, depth = 0): Promise<FileHandle> {
  if (depth > MAX_DEPTH) throw new Fault('too_deep', `more than ${MAX_DEPTH} folders deep`)
  return fs.promises.open(native(place), O_RDONLY | O_DIRECTORY | (checkLast ? O_NOFOLLOW : 0))
}

async function* entriesOf(folder: FileHandle): AsyncGenerator<{ name: RawPath; entry: fs.Dirent }> {
  const directory = await fs.promises.opendir(viaOf(folder), { encoding: 'latin1', bufferSize: 128 })
  for await (const entry of directory) yield { name: entry.name, entry }
}

function viaOf(folder: FileHandle): RawPath {
  return `/proc/self/fd/${folder.fd}`
}

function ignoreGone(error: NodeJS.ErrnoException): undefined {
  // A folder that became a link or a file in the meantime is gone too.
  if (error.code !== 'ENOENT' && error.code !== 'ENOTDIR' && error.code !== 'ELOOP') throw error
}
