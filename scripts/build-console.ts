/** Builds `proxy/console` into the folder that the admin listener serves: `node scripts/build-console.ts [--if-stale] FOLDER`. */
import fs from 'node:fs'
import path from 'node:path'
import { build } from 'vite'

const SOURCES = path.join(import.meta.dirname, '../proxy/console')

/** Writes the files; another process sees the old ones or the new ones. */
async function buildConsole(folder: string): Promise<void> {
  const fresh = `${folder}.${process.pid}`
  await build({
    configFile: path.join(SOURCES, 'vite.config.ts'),
    root: SOURCES,
    build: { outDir: fresh, emptyOutDir: true },
  })
  const old = `${fresh}.old`
  if (fs.existsSync(folder)) fs.renameSync(folder, old)
  fs.renameSync(fresh, folder)
  fs.rmSync(old, { recursive: true, force: true })
}

function isStale(folder: string): boolean {
  const built = fs.statSync(path.join(folder, 'index.html'), { throwIfNoEntry: false })?.mtimeMs ?? 0
  const sources = fs.readdirSync(SOURCES, { recursive: true, encoding: 'utf8' }).map((name) => path.join(SOURCES, name))
  return [...sources, import.meta.filename].some((source) => fs.statSync(source).mtimeMs >= built)
}

if (import.meta.main) {
  const folder = path.resolve(process.argv.at(-1)!)
  if (!process.argv.includes('--if-stale') || isStale(folder)) await buildConsole(folder)
}
