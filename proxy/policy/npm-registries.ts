/** Which registries npm would use: the one in force, and those of single scopes. */
import path from 'node:path'
import type { ConfiguredUrl, ReadFile } from './machine-sets.ts'

/** Where npm's settings are. */
interface NpmSurroundings {
  readonly root: string
  readonly home: string
  readonly cwd: string
  readonly env: Readonly<Record<string, string | undefined>>
  readonly read: ReadFile
  /** What a link leads to; `undefined` where there is nothing. */
  readonly follow: (file: string) => string | undefined
}

/** One place with settings, by their name in a `.npmrc`. */
interface Place {
  readonly where: string
  readonly settings: ReadonlyMap<string, string>
}

/**
 * Environment, project, user and machine, in npm's order: the first `registry` counts, and every `@scope:registry`. Without any, npm's own default,
 * read from npm itself.
 * @see npmrc(5) of npm
 */
export function readNpmRegistries(surroundings: NpmSurroundings): readonly ConfiguredUrl[] {
  const { env } = surroundings
  const places = [environment(env), ...files(surroundings)]
  const found: ConfiguredUrl[] = []
  const taken = new Set<string>()
  for (const { where, settings } of places) {
    for (const [name, value] of settings) {
      const isRegistry = name === 'registry' || /^@[^:]+:registry$/.test(name)
      // A scope that is set in two places has one registry, as the general one has.
      if (!isRegistry || value === '' || taken.has(name)) continue
      taken.add(name)
      found.push({ where: `${where}: \`${name}\``, url: value })
    }
  }
  if (taken.has('registry')) return found
  const own = npmsOwnDefault(surroundings)
  return own === undefined ? found : [{ where: "npm's default", url: own }, ...found]
}

/** `npm_config_registry` in either case; `npm_config_@scope:registry`. */
function environment(env: NpmSurroundings['env']): Place {
  const settings = new Map<string, string>()
  for (const [name, value] of Object.entries(env)) {
    if (value !== undefined && /^npm_config_/i.test(name))
      settings.set(name.slice('npm_config_'.length).toLowerCase(), value)
  }
  return { where: 'environment', settings }
}

function files({ root, home, cwd, env, read }: NpmSurroundings): readonly Place[] {
  const named = environment(env).settings
  const user = named.get('userconfig') ?? path.join(home, '.npmrc')
  const machine = ['usr/local/etc/npmrc', 'usr/etc/npmrc', 'etc/npmrc'].map((file) => path.join(root, file))
  const global = named.get('globalconfig')
  const all = [path.join(cwd, '.npmrc'), user, ...(global === undefined ? machine : [global])]
  return [...new Set(all)].flatMap((file) => {
    const text = read(file)
    return text === undefined ? [] : [{ where: file, settings: parseNpmrc(text, env) }]
  })
}

/** `name = value`, comments after `;` and `#` at the start of a line, quotes, `${VARIABLE}`. Later lines win. Sections are none of npm's. */
function parseNpmrc(text: string, env: NpmSurroundings['env']): ReadonlyMap<string, string> {
  const settings = new Map<string, string>()
  for (const line of text.split(/\r?\n/)) {
    const [, name, value] = /^\s*([^;#=\s][^=]*?)\s*=\s*(.*?)\s*$/.exec(line) ?? []
    if (name !== undefined && value !== undefined) settings.set(unquoted(name), expanded(unquoted(value), env))
  }
  return settings
}

function unquoted(text: string): string {
  return /^(["']).*\1$/.test(text) && text.length > 1 ? text.slice(1, -1) : text
}

/** An unknown variable is left as it stands, as npm leaves it; `${VARIABLE?}` is then empty. */
function expanded(text: string, env: NpmSurroundings['env']): string {
  return text.replace(
    /(?<!\\)\$\{([^${}?]+)(\?)?\}/g,
    (whole, name: string, optional?: string) => env[name] ?? (optional === undefined ? whole : ''),
  )
}

/** Where npm 7 to 11 keep what each setting defaults to. */
const DEFINITIONS = ['node_modules/@npmcli/config/lib/definitions/definitions.js', 'lib/utils/config/definitions.js']
/** What is between the setting's name and its default in any of them. */
const DEFAULT_REGISTRY = /['"]registry['"],\s*\{\s*default:\s*['"]([^'"]+)['"]/

/** Read from the npm that is first on the PATH; nothing is run. */
function npmsOwnDefault({ env, read, follow }: NpmSurroundings): string | undefined {
  for (const folder of (env['PATH'] ?? '').split(path.delimiter)) {
    if (!path.isAbsolute(folder)) continue
    // npm's program is a link to `bin/npm-cli.js` of its package.
    const program = follow(path.join(folder, 'npm'))
    if (program === undefined) continue
    for (const file of DEFINITIONS) {
      const found = DEFAULT_REGISTRY.exec(read(path.join(path.dirname(program), '..', file)) ?? '')?.[1]
      if (found !== undefined) return found
    }
  }
  return undefined
}
