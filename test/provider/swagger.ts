/** A description of an API (Swagger 2.0), used where it lies, and whether requests and replies hold to it. Descriptions are not part of this repository. */
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

interface Operation {
  readonly parameters?: readonly Parameter[]
  readonly responses: Readonly<Record<string, { readonly schema?: Schema }>>
}

interface Description {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly definitions: Readonly<Record<string, Schema>>
}

/** Reads it once. `pathOf` makes a regular expression of a path's template; by default a parameter is one segment. */
export function readSwagger(
  file: string,
  pathOf: (template: string) => string = (template) =>
    template.replaceAll('.', '\\.').replaceAll(/\{[^}]+\}/g, '[^/]+'),
): (exchange: Exchange) => readonly string[] {
  const { paths, definitions } = parse(readFileSync(file, 'utf8')) as Description
  const ajv = new Ajv({ strict: false, allErrors: true, validateFormats: false })
  const compiled = new Map<Schema, ValidateFunction>()
  const compile = (schema: Schema): ValidateFunction => {
    const validate = compiled.get(schema) ?? ajv.compile({ ...schema, definitions })
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
    const parts = flatten(schema, definitions)
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
    const operation = route?.operations[method.toLowerCase()]
    if (operation === undefined) return [`${method} ${requested} is not in the description`]
    const faults: string[] = []
    const parameters = operation.parameters ?? []
    for (const name of query.keys())
      if (!parameters.some((each) => each.in === 'query' && each.name === name))
        faults.push(`unknown query \`${name}\``)
    const expected = parameters.find((each) => each.in === 'body')?.schema
    if (parameters.some((each) => each.in === 'body' && each.required === true) && body === undefined)
      faults.push('the body is missing')
    if (expected !== undefined && body !== undefined) {
      const validate = compile(expected)
      if (!validate(body))
        faults.push(
          ...(validate.errors ?? []).map(({ instancePath, message }) => `body${instancePath} ${message ?? ''}`),
        )
      faults.push(...unknownNames(expected, body, 'body'))
    } else if (Object.keys((body as object | undefined) ?? {}).some((name) => !query.has(name)))
      faults.push('a body that the operation does not take')
    const answer = operation.responses[String(status)] ?? operation.responses['default']
    if (answer === undefined) faults.push(`status ${status} is not in the description`)
    if (reply !== undefined && answer?.schema !== undefined) {
      const validate = compile(answer.schema)
      if (!validate(reply)) faults.push(...(validate.errors ?? []).map(({ instancePath, message }) => `reply${instancePath} ${message ?? ''}`)) // prettier-ignore
      faults.push(...unknownNames(answer.schema, reply, 'reply'))
    }
    return faults.map((fault) => `${method} ${requested}: ${fault}`)
  }
}

function flatten(schema: Schema, definitions: Description['definitions']): Schema[] {
  const { $ref: reference, allOf } = schema
  const target = typeof reference === 'string' ? definitions[reference.replace('#/definitions/', '')] : undefined
  return [
    schema,
    ...(target === undefined ? [] : flatten(target, definitions)),
    ...((allOf as Schema[] | undefined) ?? []).flatMap((each) => flatten(each, definitions)),
  ]
}
