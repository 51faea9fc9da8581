/** The engine's own description of its API, used where it lies; it is not part of this repository. */
import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { Ajv, type ValidateFunction } from 'ajv'
import { parse } from 'yaml'
import type { RecordedRequest } from './record-requests.ts'

const FILE = path.join(import.meta.dirname, '../../../../shared/contracts/docker/engine-v1.43.swagger.yaml')

/** Printed where the description is missing. */
export const MISSING = existsSync(FILE) ? undefined : `the description of the engine's API is not at ${FILE}`

type Schema = Readonly<Record<string, unknown>>

interface Parameter {
  readonly name: string
  readonly in: 'query' | 'path' | 'body' | 'header'
  readonly required?: boolean
  readonly schema?: Schema
}

interface Operation {
  readonly parameters?: readonly Parameter[]
  readonly responses: Readonly<Record<string, unknown>>
}

interface Description {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly definitions: Readonly<Record<string, Schema>>
}

/** Reads it once. */
export function readContract(): (request: RecordedRequest) => readonly string[] {
  const { paths, definitions } = parse(readFileSync(FILE, 'utf8')) as Description
  const ajv = new Ajv({ strict: false, allErrors: true, validateFormats: false })
  const compiled = new Map<Schema, ValidateFunction>()
  const compile = (schema: Schema): ValidateFunction => {
    const validate = compiled.get(schema) ?? ajv.compile({ ...schema, definitions })
    compiled.set(schema, validate)
    return validate
  }
  const routes = Object.entries(paths).map(([template, operations]) => ({
    pattern: new RegExp(
      `^(?:/v[\\d.]+)?${template.replaceAll('.', '\\.').replaceAll(/\{[^}]+\}/g, template.startsWith('/images/') ? '.+' : '[^/]+')}$`,
    ),
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

  return ({ method, path: requested, query, body, status }) => {
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
    if (expected !== undefined && body !== undefined) {
      const validate = compile(expected)
      if (!validate(body))
        faults.push(
          ...(validate.errors ?? []).map(({ instancePath, message }) => `body${instancePath} ${message ?? ''}`),
        )
      faults.push(...unknownNames(expected, body, 'body'))
    } else if (Object.keys((body as object | undefined) ?? {}).some((name) => !query.has(name)))
      faults.push('a body that the operation does not take')
    if (!(String(status) in operation.responses)) faults.push(`status ${status} is not in the description`)
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
