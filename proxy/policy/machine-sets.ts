/** The sets `@npm` and `@apt`: the hosts that this machine's npm and apt are configured for. No host is written down here. */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { parseEntry } from '../../policies/index.ts'
import { readAptSources } from './apt-sources.ts'
import { readNpmRegistries } from './npm-registries.ts'

/** Where to look; everything defaults to this machine and this process. */
export interface MachineSetOptions {
  /** Stands for `/`, for everything that is configured for the whole machine. */
  readonly root?: string | undefined
  /** The home folder. */
  readonly home?: string | undefined
  /** The project folder. */
  readonly cwd?: string | undefined
  readonly env?: Readonly<Record<string, string | undefined>> | undefined
}

/** What was found. */
export interface MachineSets {
  /** Entries, as `allowedHosts` takes them. */
  readonly sets: { readonly npm: readonly string[]; readonly apt: readonly string[] }
  /** For the operator, a line each, for those who use the set: what could not be used, and whether it is empty. Never holds a URL, which may hold a password. */
  readonly notes: readonly { readonly set: 'npm' | 'apt'; readonly text: string }[]
}

/** A URL that is configured, and where, for a note. */
export interface ConfiguredUrl {
  readonly url: string
  readonly where: string
}

/** Gives the text of a file, or `undefined` where there is none. */
export type ReadFile = (file: string) => string | undefined

/** Configuration files are small; more than this is something else. */
const MAX_FILE_BYTES = 1_048_576

/** Reads the configuration of npm and apt as it is now. Never throws. */
export function readMachineSets(options: MachineSetOptions = {}): MachineSets {
  const { root = '/', home = os.homedir(), cwd = process.cwd(), env = process.env } = options
  let notes: string[] = []
  const npm = entriesOf(readNpmRegistries({ root, home, cwd, env, read, follow }))
  if (npm.length === 0) notes.push('`@npm` is empty: no registry is configured on this machine')
  const notesOnNpm = notes
  notes = []
  const apt = entriesOf(readAptSources({ root, read, list }))
  if (apt.length === 0) notes.push('`@apt` is empty: no source with a host is configured on this machine')
  const tell = (set: 'npm' | 'apt', texts: readonly string[]) => texts.map((text) => ({ set, text }))
  return { sets: { npm, apt }, notes: [...tell('npm', notesOnNpm), ...tell('apt', notes)] }

  function entriesOf(urls: readonly ConfiguredUrl[]): readonly string[] {
    const entries = new Set<string>()
    for (const { url, where } of urls) {
      const entry = entryOf(url)
      if (entry === undefined) notes.push(`${where}: no URL with a host that can be allowed`)
      else entries.add(entry)
    }
    return [...entries]
  }

  function read(file: string): string | undefined {
    try {
      const found = fs.statSync(file)
      if (found.isFile() && found.size <= MAX_FILE_BYTES) return fs.readFileSync(file, 'utf8')
      if (!found.isDirectory()) notes.push(`${file}: not a file of reasonable size`)
    } catch (error) {
      noteUnlessAbsent(file, error)
    }
    return undefined
  }

  function follow(file: string): string | undefined {
    try {
      return fs.realpathSync(file)
    } catch {
      return undefined
    }
  }

  function list(folder: string): readonly string[] {
    try {
      return fs
        .readdirSync(folder)
        .sort()
        .map((name) => path.join(folder, name))
    } catch (error) {
      noteUnlessAbsent(folder, error)
      return []
    }
  }

  function noteUnlessAbsent(file: string, error: unknown): void {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown'
    if (code !== 'ENOENT' && code !== 'ENOTDIR') notes.push(`${file}: can not be read (${code})`)
  }
}

/** The host, with its port unless that is 80 or 443, which an entry without one covers. */
function entryOf(url: string): string | undefined {
  const read = URL.canParse(url) ? new URL(url) : undefined
  if (read === undefined || (read.protocol !== 'http:' && read.protocol !== 'https:')) return undefined
  const isUsual = read.port === '' || read.port === '80' || read.port === '443'
  const entry = parseEntry(isUsual ? read.hostname : read.host, { from: 'file' })
  return entry.ok ? entry.value.text : undefined
}
