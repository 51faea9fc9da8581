/** The engine's own description of its API, used where it lies; it is not part of this repository. */
import { existsSync } from 'node:fs'
import path from 'node:path'
import { readSwagger } from '../swagger.ts'
import type { RecordedRequest } from './record-requests.ts'

const FILE = path.join(import.meta.dirname, '../../../../shared/contracts/docker/engine-v1.43.swagger.yaml')

/** Printed where the description is missing. */
export const MISSING = existsSync(FILE) ? undefined : `the description of the engine's API is not at ${FILE}`

/** Reads it once. A version may stand before each path, and names of images have slashes. */
export function readContract(): (request: RecordedRequest) => readonly string[] {
  return readSwagger(
    FILE,
    (template) =>
      `(?:/v[\\d.]+)?${template.replaceAll('.', '\\.').replaceAll(/\{[^}]+\}/g, template.startsWith('/images/') ? '.+' : '[^/]+')}`,
  )
}
