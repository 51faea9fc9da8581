/** One open file of the log: appends, notices when somebody else touched the file, and takes back half a line. Knows bytes, not lines. */
import {
  close,
  closeSync,
  fdatasync,
  fstatSync,
  fsync,
  ftruncateSync,
  open,
  openSync,
  readSync,
  statSync,
  unlinkSync,
  writeSync,
} from 'node:fs'
import { dirname } from 'node:path'
import { makeFolder } from '../make-folder.ts'

/** What can be put in place of the system's write: for tests of faults that a test can't cause. */
export type WriteBytes = (fd: number, bytes: Buffer, offset: number, length: number) => number

/** The same for bringing a file to the disk. */
export type SyncFile = (fd: number, done: (error: Error | null) => void) => void

/**
 * What became of an append. `ok`: all bytes are in the file. `failed`: only the first `written` are, and they can be taken back. `removed`: the file is no
 * longer in its folder, but can be restored. `moved`: all is written, into a file that now has another name. `foreign`: the file was replaced or changed by
 * somebody else; what was written is of no use.
 */
export type Appended =
  | { readonly state: 'ok' | 'removed' | 'moved' | 'foreign' }
  | { readonly state: 'failed'; readonly written: number; readonly code: string }

const COPY_BYTES = 1 << 20
/** Gone (then a file is restored, or closed for good), not to be read by us, or of a file system that has no such thing. */
const NO_FOLDER_SYNC = ['ENOENT', 'EACCES', 'EINVAL', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP']

/** An open segment. `size` counts only what {@link Segment.commit} was told of. */
export class Segment {
  readonly path: string
  readonly number: number
  #fd: number
  #inode: number
  #size = 0
  readonly #write: WriteBytes
  readonly #syncFile: SyncFile
  #isFolderSynced = false

  /** Creates the file, and the folder when it is gone; throws the system's error, also when the file is there already. */
  constructor(path: string, number: number, write: WriteBytes = writeSync, syncFile: SyncFile = fdatasync) {
    this.path = path
    this.number = number
    this.#write = write
    this.#syncFile = syncFile
    this.#fd = create(path)
    this.#inode = fstatSync(this.#fd).ino
  }

  /** Bytes that count. */
  get size(): number {
    return this.#size
  }

  /** Writes after the committed bytes. */
  append(bytes: Buffer): Appended {
    let written = 0
    try {
      while (written < bytes.length) {
        const count = this.#write(this.#fd, bytes, written, bytes.length - written)
        if (count <= 0) return { state: 'failed', written, code: 'EIO' }
        written += count
      }
      return { state: this.#look(this.#size + written) }
    } catch (error) {
      return { state: 'failed', written, code: errorCode(error) }
    }
  }

  /** `bytes` more of what was appended counts. */
  commit(bytes: number): void {
    this.#size += bytes
  }

  /** Cuts what doesn't count; how many bytes of it are left when that failed. */
  takeBack(written: number): number {
    try {
      ftruncateSync(this.#fd, this.#size)
      return 0
    } catch {
      return written
    }
  }

  /** Puts the committed bytes of a removed file back under its name; throws the system's error. */
  restore(): void {
    const fd = create(this.path)
    try {
      copyBytes(this.#fd, fd, this.#size)
    } catch (error) {
      closeSync(fd)
      unlinkQuietly(this.path)
      throw error
    }
    closeSync(this.#fd)
    this.#fd = fd
    this.#inode = fstatSync(fd).ino
    this.#isFolderSynced = false
  }

  /** Brings what was written to the disk, and that the file is there; calls back, also on failure. */
  sync(done: (error: Error | null) => void): void {
    const fd = this.#fd
    this.#syncFile(fd, (error) => {
      // Restored meanwhile: what counts is in another file now.
      if (fd !== this.#fd) this.sync(done)
      else if (error !== null || this.#isFolderSynced) done(error)
      else
        syncFolder(dirname(this.path), (failed) => {
          this.#isFolderSynced ||= failed === null
          done(failed)
        })
    })
  }

  /** Syncs and closes; calls back with the fault of the former. */
  close(done: (error: Error | null) => void): void {
    this.sync((error) => close(this.#fd, () => done(error)))
  }

  /** Closes and removes a file of which nothing counts. */
  discard(): void {
    closeSync(this.#fd)
    if (this.#size === 0) unlinkQuietly(this.path)
  }

  #look(expectedSize: number): 'ok' | 'removed' | 'moved' | 'foreign' {
    const found = statSync(this.path, { throwIfNoEntry: false })
    if (found === undefined) return fstatSync(this.#fd).nlink === 0 ? 'removed' : 'moved'
    return found.ino === this.#inode && found.size === expectedSize ? 'ok' : 'foreign'
  }
}

/** The code of a system error, such as `ENOSPC`. */
export function errorCode(error: unknown): string {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : 'UNKNOWN'
}

function create(path: string): number {
  makeFolder(dirname(path))
  // O_EXCL: never follows a link, never writes on in a file of somebody else.
  return openSync(path, 'ax+', 0o600)
}

/** The name of a new file is in its folder, which has to reach the disk as well. */
function syncFolder(folder: string, done: (error: Error | null) => void): void {
  const doneUnlessBroken = (error: Error | null): void =>
    done(error !== null && !NO_FOLDER_SYNC.includes(errorCode(error)) ? error : null)
  open(folder, 'r', (error, fd) => {
    if (error !== null) doneUnlessBroken(error)
    else fsync(fd, (failed) => close(fd, () => doneUnlessBroken(failed)))
  })
}

function copyBytes(from: number, to: number, size: number): void {
  const buffer = Buffer.allocUnsafe(Math.min(COPY_BYTES, Math.max(size, 1)))
  for (let at = 0; at < size;) {
    const count = readSync(from, buffer, 0, Math.min(buffer.length, size - at), at)
    if (count === 0)
      throw Object.assign(new Error('the removed file is shorter than what was written'), { code: 'EIO' })
    for (let done = 0; done < count;) done += writeSync(to, buffer, done, count - done)
    at += count
  }
}

function unlinkQuietly(path: string): void {
  try {
    unlinkSync(path)
  } catch {
    // It stays, empty; whoever reads the log skips it.
  }
}
