/** The library that reads YAML, loaded when the first document is read: a gateway that is given its configuration as data never needs it. */
import { createRequire } from 'node:module'
import type * as Yaml from 'yaml'

let loaded: typeof Yaml | undefined

/** The library. */
export function yaml(): typeof Yaml {
  return (loaded ??= createRequire(import.meta.url)('yaml') as typeof Yaml)
}
