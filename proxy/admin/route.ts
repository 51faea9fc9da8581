/**
 * A route of the control API as data: what it takes, what it answers, who may call it. The server mounts it and the OpenAPI document describes it, from
 * the same schemas.
 */
import { z } from 'zod'
import type { AdminScope } from '../tokens/admin-token.ts'
import { visibleLine } from '../visible-text.ts'
import { AdminError, type AdminErrorCode, type AdminFault } from './admin-error.ts'
import type { Caller } from './access.ts'

/** A request that was let in and read. */
export interface AdminRequest<Params, Query, Body> {
  readonly params: Params
  readonly query: Query
  readonly body: Body
  readonly caller: Caller
  /** Aborts when the caller is gone. */
  readonly signal: AbortSignal
}

/** What is said of a route. */
export interface RouteDescription {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** As OpenAPI writes it, such as `/v1/policies/{tenant}`. An action stands at the end, after a colon. */
  readonly path: string
  /** Name of the operation, for generated clients. */
  readonly id: string
  readonly tag: string
  readonly summary: string
  /** One of these; `admin` always suffices. */
  readonly scopes: readonly AdminScope[]
  /** Of the body, in bytes; 64 KiB by default. */
  readonly bodyLimit?: number
  /** Of the answer; 200 by default. */
  readonly status?: number
  /** Beside those that every route may give. */
  readonly errors: readonly AdminErrorCode[]
}

/** A route whose types were checked where it was defined. */
export interface AdminRoute extends RouteDescription {
  readonly params: z.ZodType | undefined
  readonly query: z.ZodType | undefined
  readonly body: z.ZodType | undefined
  /** `undefined` for a stream of events. */
  readonly reply: z.ZodType | undefined
  /** @throws AdminError */
  readonly run: (request: AdminRequest<unknown, unknown, unknown>) => Promise<unknown>
}

/** For bodies, where the route says nothing. */
export const DEFAULT_BODY_LIMIT = 64 * 1024

/** What a route answers that is no JSON: it goes out as it comes, as `text/event-stream`. */
export type EventStream = AsyncIterable<string>

type ParsedBy<T extends z.ZodType | undefined> = T extends z.ZodType ? z.output<T> : undefined

/** Ties the schemas of a route to its handler. */
export function defineRoute<
  Params extends z.ZodType | undefined = undefined,
  Query extends z.ZodType | undefined = undefined,
  Body extends z.ZodType | undefined = undefined,
  Reply extends z.ZodType | undefined = undefined,
>(
  route: RouteDescription & {
    readonly params?: Params
    readonly query?: Query
    readonly body?: Body
    readonly reply?: Reply
    readonly handle: (
      request: AdminRequest<ParsedBy<Params>, ParsedBy<Query>, ParsedBy<Body>>,
    ) =>
      | Promise<Reply extends z.ZodType ? z.input<Reply> : EventStream>
      | (Reply extends z.ZodType ? z.input<Reply> : EventStream)
  },
): AdminRoute {
  const { params, query, body, reply, handle, ...description } = route
  return {
    ...description,
    params,
    query,
    body,
    reply,
    run: async ({ params: rawParams, query: rawQuery, body: rawBody, ...rest }) =>
      handle({
        ...rest,
        params: read(params, rawParams, 'path') as ParsedBy<Params>,
        query: read(query ?? NOTHING, rawQuery, 'query') as ParsedBy<Query>,
        body: readBody(body, rawBody) as ParsedBy<Body>,
      }),
  }
}

const NOTHING = z.strictObject({})

function readBody(schema: z.ZodType | undefined, value: unknown): unknown {
  if (schema !== undefined) return read(schema, value, '')
  if (value !== undefined && value !== null) throw malformed([{ path: '', message: 'this route takes no body' }])
  return undefined
}

function read(schema: z.ZodType | undefined, value: unknown, where: string): unknown {
  if (schema === undefined) return undefined
  const result = schema.safeParse(value)
  if (result.success) return result.data
  throw malformed(result.error.issues.map((issue) => faultOf(issue, where)))
}

function malformed(faults: readonly AdminFault[]): AdminError {
  const [first] = faults
  const place = first === undefined || first.path === '' ? 'the request' : `\`${first.path}\``
  return new AdminError('request_malformed', `${place}: ${first?.message ?? 'can not be read'}`, {
    faults: faults.slice(0, MAX_FAULTS),
  })
}

const MAX_FAULTS = 100

/** Where it is and what is wrong; never the value, which may be a token. */
function faultOf(issue: z.core.$ZodIssue, where: string): AdminFault {
  const path = [where, ...issue.path.map(String)].filter((part) => part !== '').join('.')
  return { path: visibleLine(path.slice(0, 200)), message: messageOf(issue) }
}

function messageOf(issue: z.core.$ZodIssue): string {
  if (issue.code === 'unrecognized_keys')
    return `unknown: ${issue.keys
      .map((key) => `\`${visibleLine(key.slice(0, 40))}\``)
      .slice(0, 5)
      .join(', ')}`
  return `${issue.message.charAt(0).toLowerCase()}${issue.message.slice(1)}`
}
