/** Where the bundled worker is: beside this file in the package, built on demand in a checkout. */
import { execFile } from 'node:child_process'
import { stat } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'

let found: Promise<string> | undefined

/**
 * Path of the one file that runs inside every sandbox (`node worker.cjs SETTINGS`).
 *
 * In a checkout it is bundled again when the sources are newer, at the first call of a process.
 */
export function workerFile(): Promise<string> {
  // Once for each process: the start of every sandbox waits for it.
  found ??= find().catch((error: unknown) => {
    found = undefined
    throw error
  })
  return found
}

async function find(): Promise<string> {
  const published = path.join(import.meta.dirname, 'worker.cjs')
  return (await exists(published)) ? published : build()
}

async function build(): Promise<string> {
  const root = path.join(import.meta.dirname, '..')
  const file = path.join(root, 'node_modules/.cache/sallyport/worker.cjs')
  // A process of its own: the bundler is no dependency of the package.
  await promisify(execFile)(process.execPath, [path.join(root, 'scripts/build-worker.ts'), '--if-stale', file])
  return file
}

function exists(file: string): Promise<boolean> {
  return stat(file).then(
    () => true,
    () => false,
  )
}
