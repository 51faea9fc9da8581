/** Bundles `provider/worker` into the one file that runs inside every sandbox: `node scripts/build-worker.ts [--if-stale] FILE`. */
import { build, type Plugin } from 'esbuild'
import fs from 'node:fs'
import path from 'node:path'

const SOURCES = path.join(import.meta.dirname, '../provider/worker')

/**
 * Modules of Node that the sources import as a whole. What the bundler puts around them copies each of their names at the start, some hundred for each file
 * that imports them: that takes as long as loading them all.
 */
const WHOLE_MODULES: Plugin = {
  name: 'whole-modules',
  setup(bundler) {
    const namespace = 'whole'
    bundler.onResolve({ filter: /^node:(child_process|fs|http|net|os|path|stream|tls|v8)$/ }, ({ path, kind }) =>
      kind === 'import-statement' ? { path, namespace } : { path, external: true },
    )
    bundler.onLoad({ filter: /./, namespace }, ({ path }) => ({ contents: `export default require('${path}')` }))
  },
}

/** Writes the bundle; another process never sees half of it. */
export async function buildWorker(file: string): Promise<void> {
  const { outputFiles } = await build({
    entryPoints: [path.join(SOURCES, 'main.ts')],
    bundle: true,
    write: false,
    platform: 'node',
    format: 'cjs',
    // An image may bring its own Node.
    target: 'node20',
    // A real import() would load the whole module machinery before the first command.
    supported: { 'dynamic-import': false },
    plugins: [WHOLE_MODULES],
    // It is read and parsed at each start.
    minify: true,
    legalComments: 'none',
    logLevel: 'warning',
  })
  fs.mkdirSync(path.dirname(file), { recursive: true })
  const temporary = `${file}.${process.pid}`
  fs.writeFileSync(temporary, outputFiles[0]!.contents)
  fs.renameSync(temporary, file)
}

function isStale(file: string): boolean {
  const built = fs.statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0
  const sources = fs.readdirSync(SOURCES).map((name) => path.join(SOURCES, name))
  return [...sources, import.meta.filename].some((source) => fs.statSync(source).mtimeMs >= built)
}

if (import.meta.main) {
  const file = process.argv.at(-1)!
  if (!process.argv.includes('--if-stale') || isStale(file)) await buildWorker(file)
}
