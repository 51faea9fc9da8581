/** The built files of the console: beside the product in the package, built on demand in a checkout. They are read once; what a request names is looked up in memory. */
import { execFile } from 'node:child_process'
import { readdir, readFile, stat } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'

/** One file, as it is served. */
export interface ConsoleFile {
  readonly type: string
  readonly body: Buffer
}

/** Files by their path below the console, such as `index.html` and `assets/main-4f2a.js`. */
export type ConsoleFiles = ReadonlyMap<string, ConsoleFile>

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
}
/** After a build that failed. */
const RETRY_MS = 10_000

let reading: Promise<ConsoleFiles> | undefined

/** All of them, read once for each process. Rejects where they are not built and can't be; the next try is ten seconds later at the earliest. */
export function consoleFiles(): Promise<ConsoleFiles> {
  reading ??= read().catch((error: unknown) => {
    setTimeout(() => (reading = undefined), RETRY_MS).unref()
    throw error
  })
  return reading
}

async function read(): Promise<ConsoleFiles> {
  const root = path.join(import.meta.dirname, '../..')
  const published = path.join(root, 'console')
  return readFolder((await exists(path.join(published, 'index.html'))) ? published : await build(root))
}

async function build(root: string): Promise<string> {
  const folder = path.join(root, 'node_modules/.cache/sallyport/console')
  // A process of its own: the bundler is no dependency of the package.
  await promisify(execFile)(process.execPath, [path.join(root, 'scripts/build-console.ts'), '--if-stale', folder])
  return folder
}

async function readFolder(folder: string): Promise<ConsoleFiles> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const files = entries
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name))
    .map(async (file) => {
      const type = TYPES[path.extname(file)] ?? 'application/octet-stream'
      return [path.relative(folder, file).replaceAll(path.sep, '/'), { type, body: await readFile(file) }] as const
    })
  return new Map(await Promise.all(files))
}

function exists(file: string): Promise<boolean> {
  return stat(file).then(
    () => true,
    () => false,
  )
}
