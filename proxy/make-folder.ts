/** Makes a folder and those above it, one by one: Node's own recursive way never returns below a file system like `/proc`. */
import { mkdirSync, statSync } from 'node:fs'
import { dirname, resolve } from 'node:path'

/**
 * Makes what is missing, with mode 0700; what is there stays as it is.
 * @throws Error of `node:fs`; its code is `ENOTSUP` where the system has a place for the folder and yet makes none
 */
export function makeFolder(path: string): void {
  const missing: string[] = []
  for (let at = resolve(path); statSync(at, { throwIfNoEntry: false }) === undefined; at = dirname(at)) missing.push(at)
  for (const folder of missing.reverse()) make(folder)
  if (missing.length === 0 && !statSync(path).isDirectory())
    throw Object.assign(new Error('it is no folder'), { code: 'EEXIST' })
}

function make(folder: string): void {
  try {
    mkdirSync(folder, { mode: 0o700 })
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined
    // Somebody else was faster, or a link leads nowhere.
    if (code === 'EEXIST' && statSync(folder, { throwIfNoEntry: false })?.isDirectory()) return
    if (code === 'ENOENT') throw Object.assign(new Error('no folder can be made there'), { code: 'ENOTSUP' })
    throw error
  }
}
