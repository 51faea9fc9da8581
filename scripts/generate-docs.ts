/** Writes what is generated from the code: `node scripts/generate-docs.ts`. With `--check` it writes nothing and fails when something is out of date. */
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { format, resolveConfig } from 'prettier'
import { configJsonSchema } from '../proxy/config/fields.ts'
import { configurationPage } from './configuration-page.ts'
import { grafanaDashboard } from './grafana-dashboard.ts'

const ROOT = join(import.meta.dirname, '..')

/** Every generated file of the repository, by its path, and what must stand in it. */
async function generatedFiles(): Promise<ReadonlyMap<string, string>> {
  const page = 'docs/configuration.md'
  const dashboard = 'deploy/observability/grafana-dashboard.json'
  const style = await resolveConfig(join(ROOT, page))
  return new Map([
    ['schemas/config.schema.json', `${JSON.stringify(configJsonSchema(), null, 2)}\n`],
    [page, await format(configurationPage(), { ...style, filepath: page })],
    [dashboard, await format(JSON.stringify(grafanaDashboard()), { ...style, filepath: dashboard })],
  ])
}

/** The generated files that are missing or not what the code says. */
export async function outdatedFiles(): Promise<readonly string[]> {
  const outdated: string[] = []
  for (const [path, text] of await generatedFiles()) {
    const present = await readFile(join(ROOT, path), 'utf8').catch(() => undefined)
    if (present !== text) outdated.push(path)
  }
  return outdated
}

if (import.meta.main) {
  const outdated = await outdatedFiles()
  if (process.argv.includes('--check')) {
    for (const path of outdated) console.error(`${path} is out of date; run \`node scripts/generate-docs.ts\``)
    process.exitCode = outdated.length === 0 ? 0 : 1
  } else {
    for (const [path, text] of await generatedFiles()) {
      await mkdir(dirname(join(ROOT, path)), { recursive: true })
      await writeFile(join(ROOT, path), text)
    }
  }
}
