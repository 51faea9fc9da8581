/** Builds `proxy/console` into the folder that the admin listener serves: `node scripts/build-console.ts [--if-stale] FOLDER`. */
import fs from 'node:fs'
import path from 'node:path'
import { build } from 'vite'

const SOURCES = path.join(import.meta.dirname, '../proxy/console')

/** Of a build that was killed. */
const FORGOTTEN_MS = 60_000

/** Writes the files; nobody sees half of them. */
async function buildConsole(folder: string): Promise<void> {
  const fresh = `${folder}.${process.pid}`
  await build({
    configFile: path.join(SOURCES, 'vite.config.ts'),
    root: SOURCES,
    build: { outDir: fresh, emptyOutDir: true },
  })
  fs.rmSync(folder, { recursive: true, force: true })
  fs.renameSync(fresh, folder)
}

/** One process at a time: whoever comes second finds what the first has built. */
async function alone(folder: string, work: () => Promise<void>): Promise<void> {
  const lock = `${folder}.lock`
  fs.mkdirSync(path.dirname(folder), { recursive: true })
  while (!tryLock(lock)) await new Promise((resolve) => setTimeout(resolve, 100))
  try {
    await work()
  } finally {
    fs.rmSync(lock, { recursive: true, force: true })
  }
}

function tryLock(lock: string): boolean {
  try {
    fs.mkdirSync(lock)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    const since = fs.statSync(lock, { throwIfNoEntry: false })?.mtimeMs ?? Date.now()
    if (Date.now() - since > FORGOTTEN_MS) fs.rmSync(lock, { recursive: true, force: true })
    return false
  }
}

function isStale(folder: string): boolean {
  const built = fs.statSync(path.join(folder, 'index.html'), { throwIfNoEntry: false })?.mtimeMs ?? 0
  const sources = fs.readdirSync(SOURCES, { recursive: true, encoding: 'utf8' }).map((name) => path.join(SOURCES, name))
  return [...sources, import.meta.filename].some((source) => fs.statSync(source).mtimeMs >= built)
}

if (import.meta.main) {
  const folder = path.resolve(process.argv.at(-1)!)
  const isAlways = !process.argv.includes('--if-stale')
  await alone(folder, async () => {
    if (isAlways || isStale(folder)) await buildConsole(folder)
  })
}
