/** The text of `container-link`, as plain JavaScript: built beside this file in the package, stripped of its types in a checkout. */
import { readFile } from 'node:fs/promises'
import module from 'node:module'
import path from 'node:path'

/** For `link.mjs`. */
export async function linkSource(): Promise<string> {
  if (import.meta.filename.endsWith('.js')) return readFile(path.join(import.meta.dirname, 'container-link.js'), 'utf8')
  return module.stripTypeScriptTypes(await readFile(path.join(import.meta.dirname, 'container-link.ts'), 'utf8'))
}
