/** Folders in and out of a sandbox, file by file. What comes out has names that the sandbox chose: none of them leads out of the folder it is written to. */
import { constants, createReadStream } from 'node:fs'
import { chmod, lstat, mkdir, open, readdir, realpath, stat } from 'node:fs/promises'
import path from 'node:path'
import { pathText, rawPath } from './worker/path-text.ts'
import { SandboxError } from './sandbox-error.ts'
import type { WorkerClient } from './worker-client.ts'

type Files = Pick<WorkerClient, 'writeFile' | 'mkdir' | 'stat' | 'listFiles' | 'readFileStream'>

/** Permission bits; the rest (set-user-id and the like) stays behind. */
const MODE_BITS = 0o777

/**
 * Copies a host file or folder to `target`. Links in a folder are followed to regular files of that same folder, and left out otherwise.
 * @throws SandboxError `SALLYPORT_SANDBOX_FILE_FAILED`
 */
export async function copyIn(files: Files, hostPath: string, target: string): Promise<void> {
  const source = await failingAsSandbox(`read \`${hostPath}\``, () => realpath(hostPath))
  const found = await stat(source)
  if (found.isFile()) return files.writeFile(target, createReadStream(source), { mode: found.mode & MODE_BITS })
  if (!found.isDirectory()) throw failed(`\`${hostPath}\` is neither a file nor a folder`)
  await copyFolderIn(files, Buffer.from(source), source, target)
}

async function copyFolderIn(files: Files, folder: Buffer, root: string, target: string): Promise<void> {
  await files.mkdir(target)
  const entries = await failingAsSandbox('read a folder', () =>
    readdir(folder, { withFileTypes: true, encoding: 'buffer' }),
  )
  for (const entry of entries) {
    const from = Buffer.concat([folder, Buffer.from('/'), entry.name])
    const to = `${target}/${pathText(entry.name.toString('latin1'))}`
    if (entry.isDirectory()) await copyFolderIn(files, from, root, to)
    else if (entry.isFile()) await copyFileIn(files, from, to)
    else if (entry.isSymbolicLink()) {
      const real = await realpath(from, { encoding: 'buffer' }).catch(() => undefined)
      if (
        real?.toString('latin1').startsWith(`${Buffer.from(root).toString('latin1')}/`) === true &&
        (await lstat(real)).isFile()
      )
        await copyFileIn(files, real, to)
    }
  }
}

async function copyFileIn(files: Files, from: Buffer, to: string): Promise<void> {
  const { mode } = await lstat(from)
  await files.writeFile(to, createReadStream(from), { mode: mode & MODE_BITS })
}

/**
 * Copies a file or a folder of the sandbox to the host. Only regular files come out: links are neither followed nor made, and folders without files are
 * left out. What is at a place already is replaced if it is a regular file.
 * @throws SandboxError `SALLYPORT_SANDBOX_FILE_FAILED`
 */
export async function copyOut(files: Files, source: string, hostPath: string): Promise<void> {
  const found = await files.stat(source)
  if (found === undefined) throw failed(`there is nothing at \`${source}\` in the sandbox`)
  if (found.kind === 'file') return receive(files, found.path, Buffer.from(path.resolve(hostPath)), found.mode)
  if (found.kind !== 'directory') throw failed(`\`${source}\` is neither a file nor a folder`)
  await failingAsSandbox(`make \`${hostPath}\``, () => mkdir(hostPath, { recursive: true }))
  const root = await realpath(hostPath)
  const prefix = found.path === '/' ? '/' : `${found.path}/`
  for (const { path: each } of await files.listFiles(source)) {
    const raw = each.startsWith(prefix) ? rawPath(each.slice(prefix.length)) : undefined
    const segments = raw?.split('/') ?? []
    // The worker is not trusted.
    if (raw === undefined || segments.some((segment) => segment === '' || segment === '.' || segment === '..'))
      throw failed('the sandbox lists a file outside of the folder')
    const target = Buffer.concat([Buffer.from(`${root}/`), Buffer.from(raw, 'latin1')])
    await makeParents(root, segments.slice(0, -1))
    await receive(files, each, target, (await files.stat(each))?.mode)
  }
}

/** One by one, so that a link in the host's folder is not walked through. */
async function makeParents(root: string, segments: readonly string[]): Promise<void> {
  let folder = Buffer.from(root)
  for (const segment of segments) {
    folder = Buffer.concat([folder, Buffer.from('/'), Buffer.from(segment, 'latin1')])
    const present = await lstat(folder).catch(() => undefined)
    if (present === undefined) await failingAsSandbox('make a folder', () => mkdir(folder))
    else if (!present.isDirectory()) throw failed('something that is no folder is in the way on the host')
  }
}

async function receive(files: Files, source: string, target: Buffer, mode: number | undefined): Promise<void> {
  await failingAsSandbox('write a file on the host', async () => {
    const present = await lstat(target).catch(() => undefined)
    if (present !== undefined && !present.isFile())
      throw failed('something that is no regular file is in the way on the host')
    // Not through a link that came in between.
    const handle = await open(
      target,
      constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC | constants.O_NOFOLLOW,
      0o644,
    )
    try {
      for await (const chunk of files.readFileStream(source)) await handle.writeFile(chunk)
    } finally {
      await handle.close()
    }
    if (mode !== undefined) await chmod(target, mode & MODE_BITS)
  })
}

async function failingAsSandbox<T>(what: string, action: () => Promise<T>): Promise<T> {
  try {
    return await action()
  } catch (error) {
    if (error instanceof SandboxError) throw error
    throw failed(`can't ${what}: ${(error as NodeJS.ErrnoException).code ?? 'unknown fault'}`, error)
  }
}

function failed(message: string, cause?: unknown): SandboxError {
  return new SandboxError('SALLYPORT_SANDBOX_FILE_FAILED', message, { cause })
}
