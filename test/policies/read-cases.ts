/** Reads a file of handed cases; the files are kept as they are, and every case becomes a test by its name. */
import { readFileSync } from 'node:fs'
import { z } from 'zod'

/** The cases, each of the given shape; a file without any is a fault. */
export function readCases<T>(file: string, shape: z.ZodType<T>): readonly T[] {
  const text = readFileSync(new URL(`../cases/${file}`, import.meta.url), 'utf8')
  const document: unknown = JSON.parse(text)
  return z.object({ cases: z.array(shape).min(1) }).parse(document).cases
}

/** The document as it is. */
export function readDocument(file: string): unknown {
  return JSON.parse(readFileSync(new URL(`../cases/${file}`, import.meta.url), 'utf8'))
}
