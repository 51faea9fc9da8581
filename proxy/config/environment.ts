/** Environment variables that override single fields: `SALLYPORT_LISTEN_PROXY` for `listen.proxy`. Reads a map; never `process.env` itself. */
import { configFields, variableName, type Field, type JsonSchema } from './fields.ts'
import { suggest } from './suggest.ts'
import { yaml } from '../yaml.ts'

/** Variables by name, such as `process.env`. */
export type Environment = Readonly<Record<string, string | undefined>>

/** One field that a variable sets. */
export interface Override {
  readonly path: readonly string[]
  readonly variable: string
  readonly value: unknown
}

/** What the environment sets, and the variables that look like a misspelt override. */
export interface Overrides {
  readonly overrides: readonly Override[]
  readonly misspelt: readonly { readonly variable: string; readonly hint: string }[]
}

/** Variables of the command line and of the clients; they share the prefix and set no field. */
const OTHER_VARIABLES = new Set(['SALLYPORT_CONFIG', 'SALLYPORT_TOKEN', 'SALLYPORT_TOKEN_FILE', 'SALLYPORT_PROXY'])

/**
 * Reads the overrides. A variable that is merely close to one stops the start, since a limit that was meant and is not set is a hole; others with
 * the prefix are left alone: Kubernetes sets `SALLYPORT_PORT_3128_TCP` and the like by itself for a service of that name.
 */
export function readOverrides(environment: Environment): Overrides {
  const named = Object.entries(environment).filter(
    ([variable]) => variable.startsWith('SALLYPORT_') && !OTHER_VARIABLES.has(variable),
  )
  // The fields are read from the schema, which takes a start longer than all else about the configuration.
  if (named.length === 0) return { overrides: [], misspelt: [] }
  const fields = new Map(configFields().map((field) => [variableName(field.path), field]))
  fields.delete('SALLYPORT_$SCHEMA')
  const overrides: Override[] = []
  const misspelt: { readonly variable: string; readonly hint: string }[] = []
  for (const [variable, text] of named) {
    if (text === undefined) continue
    const field = fields.get(variable)
    if (field !== undefined) overrides.push({ path: field.path, variable, value: valueOf(field, text) })
    else {
      const hint = isFromService(variable) ? undefined : suggest(variable, [...fields.keys()])
      if (hint !== undefined) misspelt.push({ variable, hint })
    }
  }
  return { overrides, misspelt }
}

/** Lays the overrides over a document; the document itself stays as it is. */
export function applyOverrides(document: unknown, overrides: readonly Override[]): unknown {
  if (overrides.length === 0 || typeof document !== 'object' || document === null || Array.isArray(document))
    return document
  const result: Section = { ...document }
  for (const { path, value } of overrides) {
    let section = result
    for (const name of path.slice(0, -1)) section = section[name] = sectionOf(section[name])
    const last = path.at(-1)
    if (last !== undefined) section[last] = value
  }
  return result
}

type Section = Record<string, unknown>

/** A copy, so that the document stays as it is; what is no section gives way. */
function sectionOf(value: unknown): Section {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : {}
}

function valueOf(field: Field, text: string): unknown {
  const types = typesOf(field.schema)
  const trimmed = text.trim()
  if (!/^[[{]/.test(trimmed)) {
    if (types.has('array') && (trimmed.includes(',') || !types.has('string'))) return splitList(trimmed)
    if (types.has('string') && types.size === 1) return text
  }
  try {
    return yaml().parse(text, { maxAliasCount: 0 }) as unknown
  } catch {
    return text // the schema then says what it expected
  }
}

function splitList(text: string): readonly unknown[] {
  return text === '' ? [] : text.split(',').map((item) => (/^\s*\d+\s*$/.test(item) ? Number(item) : item.trim()))
}

function typesOf(schema: JsonSchema): ReadonlySet<string> {
  const nested = [...(schema.anyOf ?? []), ...(schema.oneOf ?? [])]
  const types = new Set(nested.flatMap((alternative) => [...typesOf(alternative)]))
  if (schema.type !== undefined) types.add(schema.type)
  return types
}

function isFromService(variable: string): boolean {
  return /^SALLYPORT_(.+_)?(SERVICE_(HOST|PORT)|PORT)(_|$)/.test(variable)
}
