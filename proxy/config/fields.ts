/** The fields of the configuration, read off its schema: what the published JSON Schema, the documentation and the environment overrides share. */
import { z } from 'zod'
import { CONFIG_SCHEMA_ID, configSchema } from './schema.ts'

/** The part of JSON Schema that the configuration's own schema uses. */
export interface JsonSchema {
  readonly $id?: string
  readonly title?: string
  readonly description?: string
  readonly type?: string
  readonly default?: unknown
  readonly const?: unknown
  readonly enum?: readonly unknown[]
  readonly properties?: Readonly<Record<string, JsonSchema>>
  readonly required?: readonly string[]
  readonly additionalProperties?: boolean | JsonSchema
  readonly propertyNames?: JsonSchema
  readonly items?: JsonSchema
  readonly anyOf?: readonly JsonSchema[]
  readonly oneOf?: readonly JsonSchema[]
  readonly minimum?: number
  readonly maximum?: number
}

/** One field that a file may set; a section is not a field. */
export interface Field {
  /** Such as `['limits', 'perSandbox', 'tunnels']`. */
  readonly path: readonly string[]
  readonly schema: JsonSchema
}

/** The published JSON Schema of a configuration file (draft 2020-12). */
export function configJsonSchema(): JsonSchema {
  const schema = z.toJSONSchema(configSchema, { io: 'input' }) as JsonSchema & { readonly $schema: string }
  const { $schema, ...rest } = schema
  return { $schema, $id: CONFIG_SCHEMA_ID, title: 'sallyport.yaml', ...rest } as JsonSchema
}

/** Every field, in the order of the schema. Lists and records (`issuers`, `policy.tenants`) are one field each. */
export function configFields(schema: JsonSchema = configJsonSchema(), path: readonly string[] = []): readonly Field[] {
  return Object.entries(schema.properties ?? {}).flatMap(([name, property]) => {
    const here = [...path, name]
    return property.properties === undefined ? [{ path: here, schema: property }] : configFields(property, here)
  })
}

/** The schemas that may describe what stands at `path`; several where the schema offers alternatives. */
export function schemasAt(path: readonly PropertyKey[]): readonly JsonSchema[] {
  let schemas: readonly JsonSchema[] = [configJsonSchema()]
  for (const key of path) {
    schemas = schemas.flatMap(alternatives).flatMap((schema) => {
      if (typeof key === 'number') return schema.items === undefined ? [] : [schema.items]
      const property = schema.properties?.[String(key)]
      if (property !== undefined) return [property]
      return typeof schema.additionalProperties === 'object' ? [schema.additionalProperties] : []
    })
  }
  return schemas.flatMap(alternatives)
}

/** The environment variable that overrides a field: `limits.perSandbox.tunnels` → `SALLYPORT_LIMITS_PER_SANDBOX_TUNNELS`. */
export function variableName(path: readonly string[]): string {
  return ['SALLYPORT', ...path.map((name) => name.replace(/([a-z0-9])([A-Z])/g, '$1_$2').toUpperCase())].join('_')
}

function alternatives(schema: JsonSchema): readonly JsonSchema[] {
  const nested = [...(schema.anyOf ?? []), ...(schema.oneOf ?? [])]
  return nested.length === 0 ? [schema] : nested.flatMap(alternatives)
}
