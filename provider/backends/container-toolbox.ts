/**
 * What is mounted into an image that lacks it: the worker, this process's own Node, and the libraries that Node was linked with.
 *
 * Node is started through its own dynamic loader with its own libraries, so that neither the image's C library nor its absence matters.
 */
import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { constants } from 'node:fs'
import {
  chmod,
  copyFile,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  realpath,
  rename,
  rm,
  stat,
  writeFile,
} from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { workerFile } from '../worker-file.ts'
import { linkSource } from './container-link-file.ts'
import { INSIDE } from './inside.ts'

/** A folder and a file of the host, ready to be mounted. */
export interface Toolbox {
  /** Has `worker.cjs`, `link.mjs` and `lib/`; to be mounted at {@link TOOLS}. */
  readonly folder: string
  /** Node of the host, to be mounted at {@link NODE}; undefined where the image's own has to do. */
  readonly nodeFile: string | undefined
  /** How Node is started inside: a program and its first arguments. */
  readonly command: readonly string[]
}

/** Where the folder is, inside. */
export const TOOLS = path.posix.dirname(INSIDE.worker)
/** Where Node is, inside. */
export const NODE = '/run/sallyport/node'
/** Where the link is, inside. */
export const LINK = path.posix.join(TOOLS, 'link.mjs')

/** Prepares the toolbox; made once for each version of what is in it, and kept in the user's cache folder. */
export async function openToolbox(nodePath: string | undefined, executable = process.execPath): Promise<Toolbox> {
  const [worker, link] = await Promise.all([workerFile().then((file) => readFile(file)), linkSource()])
  const ownNode = nodePath === undefined
  const libraries = ownNode ? await librariesOf(executable) : []
  const hash = createHash('sha256').update(worker).update(link)
  for (const { file } of libraries) {
    const { size, mtimeMs } = await stat(file)
    hash.update(`${file} ${size} ${mtimeMs}\n`)
  }
  const folder = path.join(cacheFolder(), `container-tools-${hash.digest('hex').slice(0, 24)}`)
  await make(folder, worker, link, libraries)

  const loader = libraries.find(({ isLoader }) => isLoader)
  const command = !ownNode
    ? [nodePath]
    : loader === undefined
      ? [NODE]
      : [`${TOOLS}/lib/${loader.name}`, '--library-path', `${TOOLS}/lib`, NODE]
  return { folder, nodeFile: ownNode ? await realpath(executable) : undefined, command }
}

interface Library {
  readonly name: string
  readonly file: string
  readonly isLoader: boolean
}

/** What `ldd` says: `libm.so.6 => /lib/libm.so.6 (0x…)`, and the loader by its path alone. None for a static program. */
async function librariesOf(executable: string): Promise<readonly Library[]> {
  const { stdout } = await promisify(execFile)('ldd', [executable], {
    env: { LC_ALL: 'C', PATH: process.env['PATH'] },
  }).catch(() => ({ stdout: '' }))
  const libraries: Library[] = []
  for (const line of stdout.split('\n')) {
    const [, linked, file] = /^\s*(?:(\S+) => )?(\/\S+) \(0x/.exec(line) ?? []
    if (file !== undefined)
      libraries.push({
        name: path.basename(linked ?? file),
        file,
        isLoader: linked === undefined || /^ld-|\/ld-/.test(file),
      })
  }
  return libraries
}

async function make(folder: string, worker: Buffer, link: string, libraries: readonly Library[]): Promise<void> {
  if (await exists(folder)) return
  await mkdir(path.dirname(folder), { recursive: true, mode: 0o700 })
  const temporary = await mkdtemp(`${folder}.`)
  try {
    await mkdir(path.join(temporary, 'lib'))
    await Promise.all([
      writeFile(path.join(temporary, 'worker.cjs'), worker, { mode: 0o644 }),
      writeFile(path.join(temporary, 'link.mjs'), link, { mode: 0o644 }),
      ...libraries.map(({ name, file }) =>
        copyFile(file, path.join(temporary, 'lib', name), constants.COPYFILE_FICLONE),
      ),
    ])
    await chmodTree(temporary)
    await rename(temporary, folder)
  } catch (error) {
    await rm(temporary, { recursive: true, force: true })
    // Another process was faster.
    if (!(await exists(folder))) throw error
  }
}

/** Readable by whoever runs inside. */
async function chmodTree(folder: string): Promise<void> {
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    await chmod(path.join(entry.parentPath, entry.name), 0o755)
  }
  await chmod(folder, 0o755)
}

function cacheFolder(): string {
  return path.join(process.env['XDG_CACHE_HOME'] ?? path.join(os.homedir(), '.cache'), 'sallyport')
}

function exists(file: string): Promise<boolean> {
  return stat(file).then(
    () => true,
    () => false,
  )
}
