/** Single files and folders: read, write, look, make, move. */
import type { Readable } from 'node:stream'
import fs from 'node:fs'
import { native, type Anchor, type Confinement } from './confinement.ts'
import { Fault } from './fault.ts'
import { pathText, type RawPath } from './path-text.ts'

/** What a file is called while it is being written: lists leave it out. */
export const UPLOAD_PREFIX = '.sallyport-upload-'

const READ_BYTES = 256 * 1024
const PERMISSIONS = 0o7777
let uploads = 0

/** What is at a path. */
export interface FileStat {
  readonly path: string
  readonly kind: 'file' | 'directory' | 'other'
  readonly size: number
  readonly mode: number
  readonly modifiedMs: number
}

/** A regular file that is open for reading; whoever gets it consumes or destroys `bytes`. */
export interface OpenFile {
  readonly size: number
  /** Exactly `size` bytes, or an error when the file has become shorter. */
  readonly bytes: Readable
}

/** @throws Fault `not_a_file` for anything but a regular file */
export async function openFile(confinement: Confinement, file: RawPath): Promise<OpenFile> {
  await using anchor = await confinement.open(file, 'read')
  if (anchor.stats.isDirectory()) throw new Fault('EISDIR', 'a folder, not a file')
  if (!anchor.stats.isFile()) throw new Fault('not_a_file', 'not a regular file')
  const handle = await fs.promises.open(native(anchor.via), fs.constants.O_RDONLY)
  const { size } = anchor.stats
  // `end` is the last byte, and there is none in an empty file.
  return { size, bytes: handle.createReadStream({ start: 0, end: Math.max(0, size - 1), highWaterMark: READ_BYTES }) }
}

/**
 * Writes a file whole or not at all: beside the old one, and then in its place. A link is followed, if it stays below a writable root.
 *
 * @throws Fault; what was at the path is then as it was
 */
export async function writeFile(
  confinement: Confinement,
  file: RawPath,
  bytes: AsyncIterable<Buffer> | Buffer,
  mode: number | undefined,
): Promise<{ size: number }> {
  const { parent, name } = await openTarget(confinement, file)
  await using folder = parent
  const place = `${folder.via}/${name}`
  const present = await fs.promises.lstat(native(place)).catch(ignoreMissing)
  if (present?.isDirectory()) throw new Fault('EISDIR', 'a folder is there')
  const temporary = `${folder.via}/${UPLOAD_PREFIX}${process.pid}-${Date.now()}-${++uploads}`
  const { O_CREAT, O_EXCL, O_WRONLY, O_NOFOLLOW } = fs.constants
  const handle = await fs.promises.open(native(temporary), O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW, 0o600)
  try {
    // A stream goes piece by piece, each when the one before is written.
    await handle.writeFile(bytes)
    await handle.chmod(mode ?? (present?.isFile() ? present.mode & PERMISSIONS : 0o644))
    const { size } = await handle.stat()
    await fs.promises.rename(native(temporary), native(place))
    return { size }
  } catch (error) {
    await fs.promises.unlink(native(temporary)).catch(() => undefined)
    throw error
  } finally {
    await handle.close()
  }
}

/** Links followed; a link to nothing is there all the same. Undefined when nothing is. */
export async function statFile(confinement: Confinement, file: RawPath): Promise<FileStat | undefined> {
  try {
    await using anchor = await confinement.open(file, 'read')
    return describe(anchor.real, anchor.stats)
  } catch (error) {
    ignoreMissing(error as NodeJS.ErrnoException)
    return undefined
  }
}

/** Makes a folder and those above it. */
export async function makeFolder(confinement: Confinement, folder: RawPath): Promise<void> {
  const { handle } = await confinement.openFolder(folder, 'write', true)
  await handle.close()
}

/** Moves within and between the writable roots of one file system; what is at `to` gives way, as with rename(2). */
export async function move(confinement: Confinement, from: RawPath, to: RawPath): Promise<void> {
  const source = await confinement.openParent(from)
  await using sourceFolder = source.parent
  await fs.promises.lstat(native(`${sourceFolder.via}/${source.name}`))
  const target = await confinement.openParent(to, true)
  await using targetFolder = target.parent
  await fs.promises.rename(native(`${sourceFolder.via}/${source.name}`), native(`${targetFolder.via}/${target.name}`))
}

/** The folder and name to write at, where a link at the end of the path leads. */
async function openTarget(confinement: Confinement, file: RawPath): Promise<{ parent: Anchor; name: RawPath }> {
  const target = await confinement.openParent(file, true)
  const link = await fs.promises.readlink(native(`${target.parent.via}/${target.name}`)).catch(() => undefined)
  if (link === undefined) return target
  await using parent = target.parent
  await using end = await confinement.open(`${parent.via}/${target.name}`, 'write')
  return await confinement.openParent(end.real)
}

function describe(real: RawPath, stats: fs.Stats): FileStat {
  return {
    path: pathText(real),
    kind: stats.isFile() ? 'file' : stats.isDirectory() ? 'directory' : 'other',
    size: stats.size,
    mode: stats.mode & PERMISSIONS,
    modifiedMs: Math.round(stats.mtimeMs),
  }
}

function ignoreMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT' && error.code !== 'ENOTDIR') throw error
}
