/** A gateway with a control API, and a client that holds every answer against the document that the gateway itself serves. */
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import { expect } from 'vitest'
import type { ConfigInput } from '../../../proxy/config/schema.ts'
import type { GatewayOptions } from '../../../proxy/gateway.ts'
import { type AdminScope, mintAdminToken } from '../../../proxy/tokens/admin-token.ts'
import { openKeys } from '../../../proxy/tokens/keys.ts'
import { startTestGateway, type TestGateway } from '../../integration/test-gateway.ts'

/** The issuer whose tokens the API mints. */
export const OWN_ISSUER = 'urn:own'

export interface Answer {
  readonly status: number
  readonly body: Record<string, unknown>
  readonly headers: Headers
}

export interface ControlClient {
  readonly gateway: TestGateway
  readonly document: OpenApi
  /** Calls as a holder of the scope `admin`, unless told otherwise. The answer fits the document, or this throws. */
  readonly call: (method: string, route: string, body?: unknown, more?: { readonly token?: string }) => Promise<Answer>
  readonly adminToken: (
    scopes: readonly AdminScope[],
    more?: { name?: string; lifeSeconds?: number },
  ) => Promise<string>
  readonly url: (route: string) => string
}

interface OpenApi {
  readonly openapi: string
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
}

export interface Operation {
  readonly operationId: string
  readonly parameters: readonly { readonly name: string; readonly in: string; readonly required: boolean }[]
  readonly requestBody?: { readonly content: { readonly 'application/json': { readonly schema: object } } }
  readonly responses: Readonly<
    Record<string, { readonly content?: Readonly<Record<string, { readonly schema: object }>> }>
  >
}

export async function startControl(
  document: ConfigInput = {},
  options: Omit<GatewayOptions, 'config'> = {},
): Promise<ControlClient> {
  const gateway = await startTestGateway(
    {
      ...document,
      issuers: [{ issuer: OWN_ISSUER, algorithms: ['ES256'], stateKeys: true }, ...(document.issuers ?? [])],
    },
    options,
  )
  const keys = await openKeys(gateway.config({}).state)
  if (keys.list().length === 0) await keys.rotate()
  const adminToken: ControlClient['adminToken'] = async (scopes, { name, lifeSeconds = 600 } = {}) => {
    const key = await keys.signingKey()
    if (key === undefined) throw new Error('no key')
    return (await mintAdminToken({ key, scopes, name, lifeSeconds })).token
  }
  const url = (route: string): string => `http://127.0.0.1:${gateway.adminPort}${route}`
  const own = await adminToken(['admin'], { name: 'alice' })
  const served = (await (await fetch(url('/openapi.json'), { headers: bearer(own) })).json()) as OpenApi
  const check = responseChecker(served)
  return {
    gateway,
    document: served,
    adminToken,
    url,
    call: async (method, route, body, { token = own } = {}) => {
      const response = await fetch(url(route), {
        method,
        headers: { ...bearer(token), ...(body !== undefined && { 'content-type': 'application/json' }) },
        ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      })
      const text = await response.text()
      const json = (text === '' ? {} : JSON.parse(text)) as Record<string, unknown>
      check(method, route, response.status, text === '' ? undefined : json)
      return { status: response.status, body: json, headers: response.headers }
    },
  }
}

/** The header. */
export function bearer(token: string): { readonly authorization: string } {
  return { authorization: `Bearer ${token}` }
}

/** The operation of the document that a request is for. */
export function operationFor(document: OpenApi, method: string, route: string): Operation | undefined {
  const { pathname } = new URL(route, 'http://x')
  const found = Object.entries(document.paths)
    .filter(
      ([template, operations]) => operations[method.toLowerCase()] !== undefined && patternOf(template).test(pathname),
    )
    .sort(([one], [other]) => one.split('{').length - other.split('{').length || other.length - one.length)
  return found[0]?.[1][method.toLowerCase()]
}

function patternOf(template: string): RegExp {
  return new RegExp(`^${template.replace(/[.:]/g, '\\$&').replace(/\{[a-zA-Z]+\}/g, '[^/]+')}$`)
}

function responseChecker(document: OpenApi) {
  const ajv = new Ajv2020({ strict: false, validateFormats: false, allErrors: true })
  ajv.addSchema(document, 'openapi')
  const compiled = new Map<string, ValidateFunction>()
  return (method: string, route: string, status: number, body: unknown): void => {
    const operation = operationFor(document, method, route)
    if (operation === undefined) {
      expect([method, route, status]).toEqual([method, route, 404])
      return
    }
    const answer = operation.responses[String(status)]
    expect(
      answer,
      `${operation.operationId} answered ${status}, which the document does not know: ${JSON.stringify(body)}`,
    ).toBeDefined()
    const schema = answer?.content?.['application/json']?.schema
    expect(
      body === undefined,
      `${operation.operationId} ${status}: a body where none is described, or none where one is`,
    ).toBe(schema === undefined)
    if (schema === undefined) return
    const key = `${operation.operationId} ${status}`
    const validate = compiled.get(key) ?? ajv.compile(rooted(schema))
    compiled.set(key, validate)
    expect(validate(body), `${key}: ${ajv.errorsText(validate.errors)}\n${JSON.stringify(body)}`).toBe(true)
  }
}

/** References of the document start at its root. */
function rooted(schema: object): object {
  return JSON.parse(JSON.stringify(schema).replaceAll('"#/components', '"openapi#/components')) as object
}
