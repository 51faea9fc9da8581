/** JSON or YAML out of bytes, on whichever thread this runs. What is neither is refused in a few fixed words: nothing of the document is repeated. */
import { yaml } from '../yaml.ts'

/** What a document is written in. */
export type DocumentKind = 'json' | 'yaml'

/** Why one can't be read. `busy`, `too_long` and `ended` say nothing about the document but that it was not read. */
export const DOCUMENT_FAULTS = {
  not_utf8: 'is not UTF-8',
  not_json: 'is not JSON',
  not_yaml: 'is not YAML',
  star: 'is not YAML: a text that begins with a star stands in quotes',
  aliases: 'holds more than 200 aliases',
  name: 'holds a key `__proto__`',
  too_deep: 'holds lists or maps more than 64 deep',
  busy: 'is not read: too many large ones wait',
  too_long: 'is not read: that takes too long',
  ended: 'is not read: that takes more memory than it may',
} as const

/** A key of {@link DOCUMENT_FAULTS}. */
export type DocumentFaultCode = keyof typeof DOCUMENT_FAULTS

/** A document that is not read. `message` follows its name. */
export class DocumentFault extends Error {
  readonly code: DocumentFaultCode

  constructor(code: DocumentFaultCode) {
    super(DOCUMENT_FAULTS[code])
    this.code = code
  }
}

/** Each is looked for in the whole document. */
const MAX_ALIASES = 200

/** Reads all of it at once. @throws DocumentFault */
export function parseDocument(kind: DocumentKind, bytes: Uint8Array): unknown {
  const text = decode(bytes)
  if (kind === 'json')
    try {
      return JSON.parse(text) as unknown
    } catch {
      throw new DocumentFault('not_json')
    }
  try {
    return parseYaml(text)
  } catch (error) {
    if (error instanceof DocumentFault) throw error
    throw notYaml(error instanceof ReferenceError && error.message.startsWith('Unresolved alias'))
  }
}

function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    throw new DocumentFault('not_utf8')
  }
}

/** The parser's own look for keys that stand twice compares each with all before it: minutes, for a file that is full of them. */
function parseYaml(text: string): unknown {
  const { isScalar, parseDocument: parseWholeYaml, visit } = yaml()
  const document = parseWholeYaml(text, { uniqueKeys: false, logLevel: 'error', prettyErrors: false })
  const [fault] = document.errors
  if (fault !== undefined) throw notYaml(fault.code === 'BAD_ALIAS')
  let aliases = 0
  visit(document, {
    Alias: () => {
      if (++aliases > MAX_ALIASES) throw new DocumentFault('aliases')
    },
    Map: (_key, { items }) => {
      const names = new Set<string>()
      for (const { key } of items) {
        if (!isScalar(key)) throw notYaml(false)
        const name = String(key.value)
        if (names.has(name)) throw notYaml(false)
        names.add(name)
      }
    },
  })
  return document.toJS({ maxAliasCount: 100 }) as unknown
}

function notYaml(isStar: boolean): DocumentFault {
  return new DocumentFault(isStar ? 'star' : 'not_yaml')
}
