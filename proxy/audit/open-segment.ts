/** Opens files of the log to read from, and nothing that is not one: no link that leads elsewhere, no pipe that is waited for, no device that never ends. */
import { closeSync, constants, fstatSync, openSync } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'

/** Where the system knows them. A pipe is not waited for: what it is shows once it is open. */
const FLAGS = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW

const NO_FILE = 'ENOTAFILE'
/** How systems refuse to open what is none: a link, a socket. */
const REFUSALS = new Set<unknown>(['ELOOP', 'EMLINK', 'EFTYPE', 'ENXIO'])

/** The file. Rejects with the system's error, or with one that {@link isNoFile} knows. */
export async function openSegment(path: string): Promise<FileHandle> {
  const file = await open(path, FLAGS).catch((error: unknown) => {
    throw asNoFile(error)
  })
  try {
    if ((await file.stat()).isFile()) return file
  } catch (error) {
    await file.close()
    throw error
  }
  await file.close()
  throw noFile()
}

/** The same at once; gives back its descriptor. */
export function openSegmentSync(path: string): number {
  let fd: number | undefined
  try {
    fd = openSync(path, FLAGS)
    if (fstatSync(fd).isFile()) return fd
  } catch (error) {
    if (fd !== undefined) closeSync(fd)
    throw asNoFile(error)
  }
  closeSync(fd)
  throw noFile()
}

/** Whether a fault says that there is something else than a file: a link, a folder, a pipe, a socket, a device. */
export function isNoFile(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === NO_FILE
}

function asNoFile(error: unknown): unknown {
  return error instanceof Error && 'code' in error && REFUSALS.has(error.code) ? noFile() : error
}

function noFile(): Error {
  return Object.assign(new Error('it is no file'), { code: NO_FILE })
}
