/** Turns what the schema found into words for whoever wrote the file: the path, what is wrong, what would be right. */
import type { z } from 'zod'
import type { Fault } from '../../policies/parsed.ts'
import { schemasAt } from './fields.ts'
import { suggest } from './suggest.ts'
import { found } from './values.ts'

/** A {@link Fault} in a configuration file or in the environment. */
export interface ConfigFault extends Fault {
  /** Such as `issuers[0].algorithms`; empty for the whole file. */
  readonly path: string
  /** Where in the file, from 1; absent for what is missing or comes from the environment. */
  readonly line?: number
  readonly column?: number
  /** The environment variable it comes from. */
  readonly variable?: string
}

/** A fault before its place in the file is known. */
export interface RawFault extends Fault {
  readonly keys: readonly PropertyKey[]
}

/** Every fault of a schema's verdict; `document` is what was checked, to quote from. */
export function describeIssues(issues: readonly z.core.$ZodIssue[], document: unknown): readonly RawFault[] {
  return issues.flatMap((issue) => describe(issue, issue.path, document))
}

/** `['issuers', 0, 'jwks']` → `issuers[0].jwks`; a key that is no plain word is quoted. */
export function pathText(keys: readonly PropertyKey[]): string {
  let text = ''
  for (const key of keys) {
    if (typeof key === 'number') text += `[${key}]`
    else if (/^[$\w-]+$/.test(String(key))) text += text === '' ? String(key) : `.${String(key)}`
    else text += `[${JSON.stringify(String(key))}]`
  }
  return text
}

/** The keys of a path as `pathText` writes it. */
export function pathKeys(path: string): readonly (string | number)[] {
  const keys: (string | number)[] = []
  for (const match of path.matchAll(/\[(?<index>\d+)\]|\[(?<quoted>"(?:[^"\\]|\\.)*")\]|(?<word>[$\w-]+)/g)) {
    const { index, quoted, word } = match.groups ?? {}
    if (index !== undefined) keys.push(Number(index))
    else if (quoted !== undefined) keys.push(JSON.parse(quoted) as string)
    else if (word !== undefined) keys.push(word)
  }
  return keys
}

/** One line for a fault: `sallyport.yaml:4:3: listen.proxx: unknown key; did you mean \`proxy\`?` */
export function faultText(fault: ConfigFault, file?: string): string {
  const place = fault.line === undefined ? '' : `:${fault.line}:${fault.column ?? 1}`
  const where = fault.variable ?? (file === undefined ? undefined : `${file}${place}`)
  const isTold = fault.hint === undefined || fault.message.endsWith(`write \`${fault.hint}\``)
  const hint = isTold ? '' : `; did you mean \`${fault.hint}\`?`
  return [where, fault.path, `${fault.message}${hint}`].filter((part) => part !== undefined && part !== '').join(': ')
}

/** What stands at a path of the document; `undefined` where nothing does. */
export function valueAt(document: unknown, keys: readonly PropertyKey[]): unknown {
  let value = document
  for (const key of keys) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return undefined
    value = (value as Record<PropertyKey, unknown>)[key]
  }
  return value
}

function describe(issue: z.core.$ZodIssue, keys: readonly PropertyKey[], document: unknown): readonly RawFault[] {
  const value = valueAt(document, keys)
  switch (issue.code) {
    case 'unrecognized_keys': {
      const known = schemasAt(keys).flatMap((schema) => Object.keys(schema.properties ?? {}))
      return issue.keys.map((key) => unknownKey(keys, key, known))
    }
    case 'invalid_type':
      return value === undefined
        ? [fault(keys, 'wrong_type', 'is required')]
        : [
            fault(
              keys,
              'wrong_type',
              `expected ${typeName(issue.expected)}, found ${found(value)}`,
              wrapped(issue.expected, keys, value),
            ),
          ]
    case 'invalid_value':
      return [oneOf(keys, issue.values.map(String), value)]
    case 'invalid_union':
      return describeUnion(issue, keys, document)
    case 'invalid_key':
      return [
        fault(
          keys,
          'bad_name',
          `\`${String(keys.at(-1))}\` can not be a name here; use lower-case letters, digits and hyphens`,
        ),
      ]
    case 'too_small':
      return [fault(keys, 'too_small', amount('at least', issue.minimum, issue.origin))]
    case 'too_big':
      return [fault(keys, 'too_big', amount('at most', issue.maximum, issue.origin))]
    case 'invalid_format':
      return [fault(keys, 'bad_form', ownWords(issue) ?? `${found(value)} is not spelled as it must be`)]
    case 'custom': {
      const hint: unknown = issue.params?.['hint']
      return [fault(keys, 'invalid', issue.message, typeof hint === 'string' ? hint : undefined)]
    }
    default:
      return [fault(keys, 'invalid', `${found(value)} can not stand here`)]
  }
}

function describeUnion(
  issue: z.core.$ZodIssueInvalidUnion,
  keys: readonly PropertyKey[],
  document: unknown,
): readonly RawFault[] {
  const value = valueAt(document, keys)
  if ('discriminator' in issue && issue.errors.length === 0) {
    return [
      oneOf(
        keys,
        schemasAt(keys).map((schema) => String(schema.const)),
        value,
      ),
    ]
  }
  // The alternative that was meant is the one of the right type; of several, the one that liked the value best.
  const meant = issue.errors
    .filter((branch) => !branch.some((nested) => nested.path.length === 0 && isWrongKind(nested)))
    .toSorted((left, right) => left.length - right.length)[0]
  if (meant !== undefined) return meant.flatMap((nested) => describe(nested, [...keys, ...nested.path], document))
  return [
    fault(
      keys,
      'wrong_type',
      ownWords(issue) ?? (value === undefined ? 'is required' : `${found(value)} can not stand here`),
    ),
  ]
}

/** What the schema itself says of such a fault, where it says anything. */
function ownWords(issue: z.core.$ZodIssue): string | undefined {
  return issue.message.startsWith('Invalid') ? undefined : issue.message
}

/** A word where a list or a section is expected: `ES256` → `[ES256]`, `allow-all` → `{ kind: allow-all }`. */
function wrapped(expected: string, keys: readonly PropertyKey[], value: unknown): string | undefined {
  if (typeof value !== 'string' || !/^\w[\w.-]*$/.test(value)) return undefined
  if (expected === 'array') return `[${value}]`
  const kinds = schemasAt([...keys, 'kind']).map((schema) => schema.const)
  return kinds.includes(value) ? `{ kind: ${value} }` : undefined
}

function isWrongKind(issue: z.core.$ZodIssue): boolean {
  return issue.code === 'invalid_type' || issue.code === 'invalid_value'
}

function unknownKey(keys: readonly PropertyKey[], key: string, known: readonly string[]): RawFault {
  const hint = suggest(key, known)
  const message =
    hint === undefined && known.length > 0
      ? `unknown key; known here: ${known.map((name) => `\`${name}\``).join(', ')}`
      : 'unknown key'
  return fault([...keys, key], 'unknown_key', message, hint)
}

function oneOf(keys: readonly PropertyKey[], values: readonly string[], value: unknown): RawFault {
  const names = [...new Set(values)].map((name) => `\`${name}\``)
  const choice = names.length === 1 ? (names[0] ?? '') : `one of ${names.join(', ')}`
  const hint = typeof value === 'string' ? suggest(value, values) : undefined
  return value === undefined
    ? fault(keys, 'missing', `is required: ${choice}`)
    : fault(keys, 'not_a_choice', `expected ${choice}; found ${found(value)}`, hint)
}

function amount(bound: string, limit: number | bigint, origin: string): string {
  if (origin === 'array')
    return limit === 1 && bound === 'at least'
      ? 'must not be an empty list'
      : `must hold ${bound} ${String(limit)} entries`
  if (origin === 'string')
    return limit === 1 && bound === 'at least' ? 'must not be empty' : `must have ${bound} ${String(limit)} characters`
  return `must be ${bound} ${String(limit)}`
}

function typeName(expected: string): string {
  const names: Readonly<Record<string, string>> = {
    object: 'a section',
    record: 'a section',
    array: 'a list',
    string: 'text',
    int: 'a whole number',
    number: 'a number',
    boolean: '`true` or `false`',
  }
  return names[expected] ?? expected
}

function fault(keys: readonly PropertyKey[], code: string, message: string, hint?: string): RawFault {
  return hint === undefined ? { keys, code, message } : { keys, code, message, hint }
}
