/** Which hosts apt would fetch from, in both formats of its source files. */
import path from 'node:path'
import type { ConfiguredUrl, ReadFile } from './machine-sets.ts'

/** Where apt's settings are. */
interface AptSurroundings {
  readonly root: string
  readonly read: ReadFile
  /** The paths in a folder. */
  readonly list: (folder: string) => readonly string[]
}

/** apt itself reads no other names in `sources.list.d`. @see apt's sources.list(5) */
const READ_NAME = /^[A-Za-z0-9_.-]+\.(list|sources)$/
/** A folder holds some dozens. */
const MAX_FILES = 1_000

/**
 * The URLs of `sources.list` and `sources.list.d`, packages and sources alike, that are not switched off and have a host.
 * @see sources.list(5) of apt
 */
export function readAptSources({ root, read, list }: AptSurroundings): readonly ConfiguredUrl[] {
  const folder = path.join(root, 'etc/apt')
  const parts = list(path.join(folder, 'sources.list.d')).filter((file) => READ_NAME.test(path.basename(file)))
  return [path.join(folder, 'sources.list'), ...parts.slice(0, MAX_FILES)].flatMap((file) => {
    const text = read(file)
    if (text === undefined) return []
    const uris = file.endsWith('.sources') ? urisOfStanzas(text) : urisOfLines(text)
    return uris.flatMap((uri) => {
      const url = webUrl(uri)
      return url === undefined ? [] : [{ url, where: file }]
    })
  })
}

/** One a line: `deb [ options ] uri suite components`. */
function urisOfLines(text: string): readonly string[] {
  return text.split('\n').flatMap((line) => {
    const uri = /^\s*deb(?:-src)?\s+(?:\[[^\]]*\]\s*)?([^\s#]+)/.exec(line)?.[1]
    return uri === undefined ? [] : [uri]
  })
}

/** deb822: stanzas of fields, of which `URIs` may go on over several lines. */
function urisOfStanzas(text: string): readonly string[] {
  const withoutComments = text.split(/\r?\n/).filter((line) => !line.startsWith('#'))
  return withoutComments
    .join('\n')
    .split(/\n\s*\n/)
    .flatMap((stanza) => {
      const fields = parseStanza(stanza)
      if (/^(?:no|false|without|off|disable|0)$/i.test(fields.get('enabled') ?? 'yes')) return []
      return (fields.get('uris') ?? '').split(/\s+/).filter((uri) => uri !== '')
    })
}

function parseStanza(stanza: string): ReadonlyMap<string, string> {
  const fields = new Map<string, string>()
  let name = ''
  for (const line of stanza.split('\n')) {
    const [, started, value = ''] = /^([^\s:]+)\s*:\s*(.*?)\s*$/.exec(line) ?? []
    if (started !== undefined) {
      name = started.toLowerCase()
      fields.set(name, value)
    } else if (/^\s/.test(line) && name !== '') {
      fields.set(name, `${fields.get(name) ?? ''} ${line.trim()}`)
    }
  }
  return fields
}

/** `mirror+https:` and the like fetch over the last of their parts, `mirror:` over http; `cdrom:`, `file:` and others need no host. */
function webUrl(uri: string): string | undefined {
  const [, scheme, rest] = /^([a-z0-9+.-]+):(.*)$/i.exec(uri) ?? []
  const last = scheme?.toLowerCase().split('+').at(-1)
  const transport = last === 'mirror' ? 'http' : last
  return rest !== undefined && (transport === 'http' || transport === 'https') ? `${transport}:${rest}` : undefined
}
