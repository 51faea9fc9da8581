/**
 * Which files a request may touch. A path is opened first, links and all, without reading anything; then the kernel is asked what was opened,
 * and everything else goes through that descriptor. So no exchange of a folder for a link between check and use leads anywhere.
 */
import fs from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import path from 'node:path'
import { Fault } from './fault.ts'
import type { RawPath } from './path-text.ts'
import type { WorkerRoot } from './settings.ts'

/** Something that was opened, below a root. */
export interface Anchor extends AsyncDisposable {
  readonly handle: FileHandle
  /** Where it is in truth. */
  readonly real: RawPath
  readonly stats: fs.Stats
  /** Leads to the very thing that was opened, whatever has taken its place since. */
  readonly via: RawPath
}

/** What to do with it. */
export type Access = 'read' | 'write'

/** Finds files for requests. */
export interface Confinement {
  readonly rootDir: string
  /** Links followed. @throws Fault `outside`, `read_only` or an errno */
  open(file: RawPath, access: Access): Promise<Anchor>
  /** A folder; made when asked, with those above it. @throws as `open` */
  openFolder(folder: RawPath, access: Access, make?: boolean): Promise<Anchor>
  /** The folder above a path, and the name in it: for what must not follow a last link. @throws as `open`, and `root` for a root itself */
  openParent(file: RawPath, make?: boolean): Promise<{ readonly parent: Anchor; readonly name: RawPath }>
}

/** A path for the system's calls. */
export function native(raw: RawPath): Buffer {
  return Buffer.from(raw, 'latin1')
}

// Opens what a name stands for and nothing of what is in it. A constant of Linux, the same on all of Node's architectures there.
const O_PATH = 0o10000000
const LINUX = process.platform === 'linux'

interface RealRoot {
  readonly real: RawPath
  readonly writable: boolean
}

/** @throws Error when a root is not there */
export function createConfinement(roots: readonly WorkerRoot[]): Confinement {
  const real: readonly RealRoot[] = roots.map((root) => ({
    real: fs.realpathSync.native(root.path, { encoding: 'latin1' }),
    writable: root.writable,
  }))
  const [first] = real
  if (first === undefined) throw new Error('there must be a root')

  const absolute = (file: RawPath): RawPath => {
    const whole = path.posix.normalize(file.startsWith('/') ? file : `${first.real}/${file}`)
    return whole.length > 1 && whole.endsWith('/') ? whole.slice(0, -1) : whole
  }

  const check = (place: RawPath, access: Access): void => {
    const root = real
      .filter((candidate) => isWithin(place, candidate.real))
      .sort((a, b) => b.real.length - a.real.length)[0]
    if (root === undefined) throw new Fault('outside', 'the path leads out of the folders of this sandbox')
    if (access === 'write' && !root.writable) throw new Fault('read_only', 'the folder may only be read')
  }

  const openAt = async (file: RawPath, access: Access): Promise<Anchor> => {
    const anchor = await openAnchor(file)
    try {
      check(anchor.real, access)
      return anchor
    } catch (error) {
      await anchor.handle.close()
      throw error
    }
  }

  const openFolder = async (folder: RawPath, access: Access, make = false): Promise<Anchor> => {
    const whole = absolute(folder)
    let anchor: Anchor
    try {
      anchor = await openAt(whole, access)
    } catch (error) {
      if (!make || (error as NodeJS.ErrnoException).code !== 'ENOENT' || whole === '/') throw error
      await using parent = await openFolder(path.posix.dirname(whole), 'write', true)
      const place = `${parent.via}/${path.posix.basename(whole)}`
      await fs.promises.mkdir(native(place)).catch(ignoreExisting)
      anchor = await openAt(place, access)
    }
    if (anchor.stats.isDirectory()) return anchor
    await anchor.handle.close()
    throw new Fault('ENOTDIR', 'not a folder')
  }

  return {
    rootDir: Buffer.from(first.real, 'latin1').toString('utf8'),
    open: (file, access) => openAt(absolute(file), access),
    openFolder,
    async openParent(file, make = false) {
      const whole = absolute(file)
      const parent = await openFolder(path.posix.dirname(whole), 'read', make)
      try {
        const name = path.posix.basename(whole)
        const place = `${parent.real === '/' ? '' : parent.real}/${name}`
        check(place, 'write')
        if (real.some((root) => isWithin(root.real, place)))
          throw new Fault('root', 'a folder of the sandbox itself stays where it is')
        return { parent, name }
      } catch (error) {
        await parent.handle.close()
        throw error
      }
    },
  }
}

async function openAnchor(file: RawPath): Promise<Anchor> {
  const place = LINUX ? file : await fs.promises.realpath(native(file), { encoding: 'latin1' })
  const { O_RDONLY, O_NONBLOCK, O_NOFOLLOW } = fs.constants
  const handle = await fs.promises.open(native(place), LINUX ? O_PATH : O_RDONLY | O_NONBLOCK | O_NOFOLLOW)
  try {
    const via = LINUX ? `/proc/self/fd/${handle.fd}` : place
    const real = LINUX ? await fs.promises.readlink(via, { encoding: 'latin1' }) : place
    const stats = await handle.stat()
    return { handle, real, via, stats, [Symbol.asyncDispose]: () => handle.close() }
  } catch (error) {
    await handle.close()
    throw error
  }
}

function isWithin(place: RawPath, folder: RawPath): boolean {
  return place === folder || folder === '/' || place.startsWith(`${folder}/`)
}

function ignoreExisting(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EEXIST') throw error
}
