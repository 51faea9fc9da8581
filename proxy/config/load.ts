/** Reads the configuration file. The file is opened here and nowhere else; what it means is the affair of `parse.ts`. */
import { open } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import type { Document, LineCounter, YAMLParseError } from 'yaml'
import { SallyportError } from '../../policies/error.ts'
import { quoted } from '../../policies/parsed.ts'
import type { Environment } from './environment.ts'
import { faultText, pathKeys, type ConfigFault } from './faults.ts'
import { whyUnreadable } from '../unreadable.ts'
import { visibleLine } from '../visible-text.ts'
import { yaml } from '../yaml.ts'
import { parseConfig, type ParsedConfig, type ParseOptions } from './parse.ts'
import type { Config } from './schema.ts'

/** A larger file is no configuration. */
const MAX_FILE_BYTES = 8 * 1024 * 1024

/** A configuration that can't be used. `faults` holds all of them; the message has one line for each. */
export class ConfigError extends SallyportError {
  readonly faults: readonly ConfigFault[]

  /** `file` is how the reader calls the file. */
  constructor(faults: readonly ConfigFault[], file?: string) {
    super('SALLYPORT_CONFIG_INVALID', faults.map((fault) => faultText(fault, file)).join('\n'))
    this.faults = faults
  }
}

/** What a file is read with. */
export interface LoadOptions extends Omit<ParseOptions, 'folder'> {
  /** Path of the file; absent: defaults and the environment only, relative to the working directory. */
  readonly file?: string
  readonly environment?: Environment
}

/**
 * Reads and checks the whole configuration.
 * @throws {@link ConfigError} with every fault, also when the file can't be read
 */
export async function loadConfig(options: LoadOptions): Promise<Config> {
  const { file, ...rest } = options
  const result =
    file === undefined
      ? parseConfig({}, { ...rest, folder: process.cwd() })
      : parseConfigText(await readText(file), { ...rest, folder: dirname(resolve(file)) })
  if (result.ok) return result.config
  throw new ConfigError(result.faults, file)
}

/** Reads the text of a YAML (or JSON) file; faults carry their line. */
export function parseConfigText(text: string, options: ParseOptions): ParsedConfig {
  const lines = new (yaml().LineCounter)()
  const document = yaml().parseDocument(text, { lineCounter: lines, prettyErrors: false, merge: false })
  if (document.errors.length > 0)
    return { ok: false, faults: document.errors.map((error) => syntaxFault(error, lines)) }
  const unquoted = unquotedStars(document, lines)
  if (unquoted.length > 0) return { ok: false, faults: unquoted }
  const plain = toPlain(document)
  if (plain === undefined)
    return { ok: false, faults: [{ code: 'syntax', path: '', message: 'holds too many aliases' }] }
  const result = parseConfig(plain.value, options)
  if (result.ok) return result
  return { ok: false, faults: result.faults.map((fault) => locate(fault, document, lines)) }
}

/** Adds their lines to faults of a document that was read otherwise. */
export function locateFaults(text: string, faults: readonly ConfigFault[]): readonly ConfigFault[] {
  const lineCounter = new (yaml().LineCounter)()
  const document = yaml().parseDocument(text, { lineCounter, prettyErrors: false, merge: false })
  return faults.map((fault) => locate(fault, document, lineCounter))
}

async function readText(file: string): Promise<string> {
  try {
    const handle = await open(file, 'r')
    try {
      const { size } = await handle.stat()
      if (size > MAX_FILE_BYTES) throw new ConfigError([unreadable(`is larger than ${MAX_FILE_BYTES} bytes`)], file)
      return await handle.readFile('utf8')
    } finally {
      await handle.close()
    }
  } catch (error) {
    if (error instanceof ConfigError) throw error
    throw new ConfigError([unreadable(whyUnreadable(error))], file)
  }
}

/** The plain value, whose texts are no parts of the file's, which would stay in memory with each of them; `undefined` for a file whose aliases multiply (the library throws then). */
function toPlain(document: Document): { readonly value: unknown } | undefined {
  try {
    return { value: structuredClone(document.toJS({ maxAliasCount: 100 })) }
  } catch {
    return undefined
  }
}

function unreadable(reason: string): ConfigFault {
  return { code: 'unreadable', path: '', message: `can not be read: ${reason}` }
}

/** `*.example.com` without quotes is an alias of something that is nowhere. */
function unquotedStars(document: Document, lines: LineCounter): readonly ConfigFault[] {
  const faults: ConfigFault[] = []
  const anchors = new Set<string>()
  const { isAlias, visit } = yaml()
  visit(document, {
    Node(_key, node) {
      if (!isAlias(node)) {
        if (node.anchor !== undefined) anchors.add(node.anchor)
        return
      }
      if (anchors.has(node.source)) return
      const { line, col } = lines.linePos(node.range?.[0] ?? 0)
      const text = `*${node.source}`
      const message = `${quoted(text)} without quotes is an alias in YAML; write \`'${text}'\``
      faults.push({ code: 'syntax', path: '', line, column: col, message })
    },
  })
  return faults
}

/** Of what the parser says, which repeats the text. */
const MAX_SAID = 200

function syntaxFault(
  { code, message, pos }: Pick<YAMLParseError, 'code' | 'message' | 'pos'>,
  lines: LineCounter,
): ConfigFault {
  const { line, col } = lines.linePos(pos[0])
  const first = visibleLine((message.split('\n')[0] ?? '').slice(0, MAX_SAID))
  const wantsQuotes = code === 'BAD_ALIAS' || code === 'BAD_SCALAR_START'
  return {
    code: 'syntax',
    path: '',
    line,
    column: col,
    message: `is not YAML: ${first.charAt(0).toLowerCase()}${first.slice(1)}${wantsQuotes ? '; put the text in quotes' : ''}`,
  }
}

/** Finds the line of the key, or of the nearest section around a key that is missing. */
function locate(
  fault: ConfigFault & { readonly keys?: readonly PropertyKey[] },
  document: Document,
  lines: LineCounter,
): ConfigFault {
  if (fault.variable !== undefined) return fault
  const offset = offsetOf(document, pathKeys(fault.path))
  if (offset === undefined) return fault
  const { line, col } = lines.linePos(offset)
  return { ...fault, line, column: col }
}

function offsetOf(document: Document, keys: readonly (string | number)[]): number | undefined {
  const { isNode } = yaml()
  for (let length = keys.length; length > 0; length -= 1) {
    const holder: unknown = length === 1 ? document.contents : document.getIn(keys.slice(0, length - 1), true)
    const last = keys[length - 1]
    if (typeof last === 'string' && typeof holder === 'object' && holder !== null && 'items' in holder) {
      for (const pair of holder.items as readonly { readonly key?: unknown }[]) {
        if (isNode(pair.key) && 'value' in pair.key && pair.key.value === last) return pair.key.range?.[0]
      }
    }
    const node: unknown = document.getIn(keys.slice(0, length), true)
    if (isNode(node)) return node.range?.[0]
  }
  return undefined
}
