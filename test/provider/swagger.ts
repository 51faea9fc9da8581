/** A description of an API (Swagger 2.0 or OpenAPI 3), used where it lies, and whether requests and replies hold to it. Descriptions are not part of this repository. */
import { readFileSync } from 'node:fs'
import { Ajv, type ValidateFunction } from 'ajv'
import { parse } from 'yaml'

/** One request, and what came back. */
export interface Exchange {
  readonly method: string
  /** Without the query. */
  readonly path: string
  readonly query: URLSearchParams
  /** JSON; undefined for none. */
  readonly body: unknown
  readonly status: number
  /** JSON of the reply, where it is to be looked at. */
  readonly reply?: unknown
}

type Schema = Readonly<Record<string, unknown>>

interface Parameter {
  readonly name: string
  readonly in: 'query' | 'path' | 'body' | 'header'
  readonly required?: boolean
  readonly schema?: Schema
}

/** The schema lies under the type of the content since OpenAPI 3. */
interface Content {
  readonly schema?: Schema
  readonly content?: Readonly<Record<string, { readonly schema?: Schema }>>
  readonly required?: boolean
}

interface Operation {
  readonly parameters?: readonly Parameter[]
  readonly requestBody?: Content
  readonly responses: Readonly<Record<string, Content>>
}

/** By method; `parameters` are those of all of them. */
type Operations = Readonly<Record<string, Operation>> & { readonly parameters?: readonly Parameter[] }

interface Description {
  readonly paths: Readonly<Record<string, Operations>>
  readonly definitions?: Readonly<Record<string, Schema>>
  readonly components?: Readonly<Record<string, Readonly<Record<string, unknown>>>>
}

/** What a description lacks, in its own words. */
export type AddedPaths = Description['paths']

/**
 * Reads it once. `pathOf` makes a regular expression of a path's template; by default a parameter is one segment. `added` are operations that the platform
 * has and its description has not.
 */
export function readSwagger(
  file: string,
  pathOf: (template: string) => string = (template) =>
    template.replaceAll('.', '\\.').replaceAll(/\{[^}]+\}/g, '[^/]+'),
  added: AddedPaths = {},
): (exchange: Exchange) => readonly string[] {
  const { paths: described, ...shared } = parse(readFileSync(file, 'utf8')) as Description
  const paths = { ...described }
  for (const [template, operations] of Object.entries(added)) paths[template] = { ...paths[template], ...operations }
  const { definitions = {}, components = {} } = shared
  const resolve = <T>(value: T): T => (lookUp((value as Schema)['$ref'], shared) as T | undefined) ?? value
  const ajv = new Ajv({ strict: false, allErrors: true, validateFormats: false })
  const compiled = new Map<Schema, ValidateFunction>()
  const compile = (schema: Schema): ValidateFunction => {
    const validate = compiled.get(schema) ?? ajv.compile({ ...schema, definitions, components })
    compiled.set(schema, validate)
    return validate
  }
  const routes = Object.entries(paths).map(([template, operations]) => ({
    pattern: new RegExp(`^${pathOf(template)}$`),
    literal: template.split('{')[0]?.length ?? 0,
    operations,
  }))

  /** Names in a body that the description does not know: a validator takes them for additions, and an engine ignores them. */
  const unknownNames = (schema: Schema, value: unknown, at: string): string[] => {
    const parts = flatten(schema, shared)
    if (Array.isArray(value))
      return value.flatMap((each, index) =>
        parts.flatMap(({ items }) =>
          items === undefined ? [] : unknownNames(items as Schema, each, `${at}[${index}]`),
        ),
      )
    if (typeof value !== 'object' || value === null) return []
    const known = Object.assign({}, ...parts.map(({ properties }) => properties ?? {})) as Readonly<
      Record<string, Schema>
    >
    const isMap = parts.some(
      ({ additionalProperties }) => additionalProperties !== undefined && additionalProperties !== false,
    )
    return Object.entries(value).flatMap(([name, each]) => {
      const property = known[name]
      if (property !== undefined) return unknownNames(property, each, `${at}.${name}`)
      return isMap || Object.keys(known).length === 0 ? [] : [`${at}.${name} is not in the description`]
    })
  }

  return ({ method, path: requested, query, body, status, reply }) => {
    const route = routes
      .filter(({ pattern, operations }) => pattern.test(requested) && method.toLowerCase() in operations)
      .sort((a, b) => b.literal - a.literal)[0]
    const operation = (route?.operations as Readonly<Record<string, Operation>> | undefined)?.[method.toLowerCase()]
    if (operation === undefined) return [`${method} ${requested} is not in the description`]
    const faults: string[] = []
    const parameters = [...(route?.operations.parameters ?? []), ...(operation.parameters ?? [])].map(resolve)
    for (const [name, value] of query) {
      const parameter = parameters.find((each) => each.in === 'query' && each.name === name)
      if (parameter === undefined) faults.push(`unknown query \`${name}\``)
      else if (parameter.schema !== undefined && !compile(parameter.schema)(valueOf(value, resolve(parameter.schema))))
        faults.push(`query \`${name}\` can't be \`${value}\``)
    }
    for (const { name, required } of parameters.filter((each) => each.in === 'query'))
      if (required === true && !query.has(name)) faults.push(`query \`${name}\` is missing`)
    const inBody = operation.requestBody === undefined ? undefined : resolve(operation.requestBody)
    const expected = parameters.find((each) => each.in === 'body')?.schema ?? schemaOf(inBody)
    const isNeeded =
      inBody?.required === true || parameters.some((each) => each.in === 'body' && each.required === true)
    if (isNeeded && body === undefined) faults.push('the body is missing')
    if (expected !== undefined && body !== undefined) {
      const validate = compile(expected)
      if (!validate(body))
        faults.push(
          ...(validate.errors ?? []).map(({ instancePath, message }) => `body${instancePath} ${message ?? ''}`),
        )
      faults.push(...unknownNames(expected, body, 'body'))
    } else if (Object.keys((body as object | undefined) ?? {}).some((name) => !query.has(name)))
      faults.push('a body that the operation does not take')
    const found = operation.responses[String(status)] ?? operation.responses['default']
    const answer = found === undefined ? undefined : schemaOf(resolve(found))
    if (found === undefined) faults.push(`status ${status} is not in the description`)
    if (reply !== undefined && answer !== undefined) {
      const validate = compile(answer)
      if (!validate(reply)) faults.push(...(validate.errors ?? []).map(({ instancePath, message }) => `reply${instancePath} ${message ?? ''}`)) // prettier-ignore
      faults.push(...unknownNames(answer, reply, 'reply'))
    }
    return faults.map((fault) => `${method} ${requested}: ${fault}`)
  }
}

/** What a reference within the description leads to. */
function lookUp(reference: unknown, description: object): unknown {
  if (typeof reference !== 'string') return undefined
  let value: unknown = description
  for (const name of reference.replace('#/', '').split('/'))
    value = (value as Readonly<Record<string, unknown>> | undefined)?.[name]
  return value
}

/** Of JSON. */
function schemaOf(place: Content | undefined): Schema | undefined {
  return place?.schema ?? place?.content?.['application/json']?.schema
}

/** A field of a query, as what its schema says that it is. */
function valueOf(text: string, { type }: Schema): unknown {
  if ((type === 'integer' || type === 'number') && /^-?\d+$/.test(text)) return Number(text)
  if (type === 'boolean' && /^(true|false)$/.test(text)) return text === 'true'
  return type === 'array' ? text.split(',') : text
}

function flatten(schema: Schema, description: object): Schema[] {
  const target = lookUp(schema['$ref'], description) as Schema | undefined
  return [
    schema,
    ...(target === undefined ? [] : flatten(target, description)),
    ...((schema['allOf'] as Schema[] | undefined) ?? []).flatMap((each) => flatten(each, description)),
  ]
}
