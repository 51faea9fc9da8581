/** The version of this package, from its own package.json: beside the sources, or above `dist/`. */
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

/** Such as `0.1.0`; `unknown` where package.json can't be found. */
export function packageVersion(): string {
  for (let folder = import.meta.dirname; dirname(folder) !== folder; folder = dirname(folder)) {
    const file = join(folder, 'package.json')
    if (!existsSync(file)) continue
    const content: unknown = JSON.parse(readFileSync(file, 'utf8'))
    if (typeof content === 'object' && content !== null && 'name' in content && content.name === 'sallyport') {
      return 'version' in content && typeof content.version === 'string' ? content.version : 'unknown'
    }
  }
  return 'unknown'
}
