/**
 * Reads the JSON of a token part so that no two readers can understand it differently: UTF-8 without a byte order mark, one object, no member
 * twice, no `__proto__`, at most {@link MAX_DEPTH} levels.
 * @see RFC 7515 section 4 and RFC 7519 section 4: member names must be unique, and a parser may refuse repeated ones
 */
import { type Parsed, faulty, parsed } from '../../policies/parsed.ts'

/** Levels of nesting. A token of ours has four. */
export const MAX_DEPTH = 16

/** A JSON object as it came; only own members count. */
export type JsonObject = Readonly<Record<string, unknown>>

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** Parses the bytes of one JSON object; `what` names them in the fault, which never repeats them. */
export function parseStrictObject(bytes: Uint8Array, what: string): Parsed<JsonObject> {
  let text: string
  let value: unknown
  try {
    text = utf8.decode(bytes)
    value = JSON.parse(text)
  } catch {
    return faulty('json_invalid', `the ${what} is not JSON`)
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return faulty('json_not_object', `the ${what} is not a JSON object`)
  }
  const fault = findAmbiguity(text)
  return fault === undefined ? parsed(value as JsonObject) : faulty('json_ambiguous', `the ${what} ${fault}`)
}

/** An own member of an object, `undefined` when there is none. */
export function ownMember(object: JsonObject, name: string): unknown {
  return Object.hasOwn(object, name) ? object[name] : undefined
}

/** `text` is known to be JSON, so only strings, brackets and commas need looking at. */
function findAmbiguity(text: string): string | undefined {
  const levels: { readonly names: Set<string> | undefined; nameNext: boolean }[] = []
  for (let at = 0; at < text.length; at++) {
    const level = levels.at(-1)
    switch (text.charCodeAt(at)) {
      case 0x22: {
        const end = endOfString(text, at)
        if (level?.names !== undefined && level.nameNext) {
          const raw = text.slice(at, end + 1)
          const name = raw.includes('\\') ? (JSON.parse(raw) as string) : raw.slice(1, -1)
          if (name === '__proto__') return 'has a member that is never lawful'
          if (level.names.has(name)) return 'has a member twice'
          level.names.add(name)
          level.nameNext = false
        }
        at = end
        break
      }
      case 0x7b:
      case 0x5b:
        if (levels.length === MAX_DEPTH) return 'is nested too deep'
        levels.push(
          text.charCodeAt(at) === 0x7b ? { names: new Set(), nameNext: true } : { names: undefined, nameNext: false },
        )
        break
      case 0x7d:
      case 0x5d:
        levels.pop()
        break
      case 0x2c:
        if (level) level.nameNext = true
        break
    }
  }
  return undefined
}

function endOfString(text: string, start: number): number {
  for (let at = start + 1; ; at++) {
    const code = text.charCodeAt(at)
    if (code === 0x5c) at++
    else if (code === 0x22) return at
  }
}
