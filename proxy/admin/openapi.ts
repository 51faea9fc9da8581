/** The OpenAPI document of the control API, made of the very schemas that the routes read and answer by. */
import { z } from 'zod'
import { ADMIN_ERRORS, adviceOf, type AdminErrorCode, statusOf } from './admin-error.ts'
import { type AdminRoute, DEFAULT_BODY_LIMIT } from './route.ts'

/** What any route may answer. */
const COMMON_ERRORS: readonly AdminErrorCode[] = [
  'request_malformed',
  'credentials_missing',
  'credentials_invalid',
  'scope_missing',
  'rate_limited',
  'internal',
  'busy',
]
/** And one that takes a body. */
const BODY_ERRORS: readonly AdminErrorCode[] = ['body_too_large', 'media_type_not_supported']

const errorSchema = {
  type: 'object',
  required: ['error', 'message', 'advice'],
  additionalProperties: false,
  properties: {
    error: { type: 'string', enum: ADMIN_ERRORS },
    message: { type: 'string', description: 'What is wrong with this request.' },
    advice: { type: 'string', description: 'What to do about an error of this kind.' },
    faults: {
      type: 'array',
      items: {
        type: 'object',
        required: ['path', 'message'],
        additionalProperties: false,
        properties: { path: { type: 'string' }, message: { type: 'string' }, hint: { type: 'string' } },
      },
    },
  },
}

/** The document; OpenAPI 3.1, whose schemas are JSON Schema of draft 2020-12. */
export function openApiDocument(routes: readonly AdminRoute[], version: string): object {
  const paths: Record<string, Record<string, object>> = {}
  for (const route of routes) (paths[route.path] ??= {})[route.method.toLowerCase()] = operation(route)
  return {
    openapi: '3.1.0',
    info: {
      title: 'Sallyport control API',
      version,
      description:
        'Tokens, policies, tunnels, bound listeners and the audit log of a running gateway. See docs/control-api.md.',
    },
    security: [{ adminToken: [] }, { clientCertificate: [] }],
    paths,
    components: {
      securitySchemes: {
        adminToken: {
          type: 'http',
          scheme: 'bearer',
          bearerFormat: 'JWT',
          description: 'From `sallyport token mint --admin`.',
        },
        clientCertificate: { type: 'mutualTLS', description: 'One of `admin.clients`.' },
      },
      schemas: { Error: errorSchema },
    },
  }
}

function operation(route: AdminRoute): object {
  const { id, tag, summary, scopes, params, query, body, bodyLimit = DEFAULT_BODY_LIMIT } = route
  const needed = [...new Set([...scopes, 'admin'])].map((scope) => `\`${scope}\``).join(' or ')
  const limit = body === undefined ? '' : ` The body has at most ${bodyLimit / 1024} KiB.`
  return {
    operationId: id,
    tags: [tag],
    summary,
    description: `Needs the scope ${needed}.${limit}`,
    parameters: [...parameters('path', params), ...parameters('query', query)],
    ...(body !== undefined && {
      requestBody: { required: true, content: { 'application/json': { schema: schemaOf(body, 'input') } } },
    }),
    responses: { [String(route.status ?? 200)]: answer(route), ...errors(route) },
  }
}

function answer({ reply, status }: AdminRoute): object {
  if (status === 204) return { description: 'Done.' }
  if (reply === undefined)
    return {
      description: 'Events, until the caller ends it.',
      content: { 'text/event-stream': { schema: { type: 'string' } } },
    }
  return { description: 'The answer.', content: { 'application/json': { schema: schemaOf(reply, 'output') } } }
}

function errors(route: AdminRoute): object {
  const codes = [...new Set([...COMMON_ERRORS, ...(route.body === undefined ? [] : BODY_ERRORS), ...route.errors])]
  const byStatus = Map.groupBy(codes, statusOf)
  return Object.fromEntries(
    [...byStatus].map(([status, all]) => [
      String(status),
      {
        description: all.map((code) => `\`${code}\`: ${adviceOf(code)}`).join(' '),
        content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
      },
    ]),
  )
}

interface ObjectSchema {
  readonly properties?: Readonly<Record<string, { readonly description?: string }>>
  readonly required?: readonly string[]
}

function parameters(where: 'path' | 'query', schema: z.ZodType | undefined): object[] {
  if (schema === undefined) return []
  const { properties = {}, required = [] } = schemaOf(schema, 'input') as ObjectSchema
  return Object.entries(properties).map(([name, { description, ...rest }]) => ({
    name,
    in: where,
    required: where === 'path' || required.includes(name),
    ...(description !== undefined && { description }),
    schema: rest,
  }))
}

function schemaOf(schema: z.ZodType, io: 'input' | 'output'): object {
  const { $schema: _dialect, ...rest } = z.toJSONSchema(schema, { io, target: 'draft-2020-12' })
  return rest
}
