/** Reads a file of handed cases; the files are kept as they are, and every case becomes a test by its name. */
import { readFileSync } from 'node:fs'

/** The document as it is; `T` is what its `about` says that a case holds. */
export function readCases<T extends { readonly name: string }>(file: string): { readonly cases: readonly T[] } {
  const text = readFileSync(new URL(`../cases/${file}`, import.meta.url), 'utf8')
  const document = JSON.parse(text) as { readonly cases: readonly T[] }
  if (document.cases.length === 0) throw new Error(`${file} holds no cases`)
  return document
}
