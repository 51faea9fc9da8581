/** Azure Resource Manager as far as sandboxes need it: container groups, the standby pool, and operations that take their time. */
import { z } from 'zod'
import { createPlatformClient, type PlatformClient, type PlatformReply } from '../platform/platform-client.ts'
import { PlatformError } from '../platform/platform-error.ts'
import { cleanText } from '../platform/clean-text.ts'
import { parseRetryAfter } from '../platform/retry-after.ts'
import type { ResolvedAciOptions } from './aci-options.ts'
import { createArmTokenSource } from './arm-token.ts'
import { explainArm } from './explain-arm.ts'

const stateSchema = z.object({ state: z.string().optional(), exitCode: z.number().optional(), detailStatus: z.string().optional() }) // prettier-ignore
const groupSchema = z.object({
  name: z.string(),
  tags: z.record(z.string(), z.string()).nullish(),
  properties: z.object({
    provisioningState: z.string().optional(),
    isCreatedFromStandbyPool: z.boolean().nullish(),
    restartPolicy: z.string().nullish(),
    ipAddress: z.object({ ip: z.string().optional(), type: z.string() }).nullish(),
    instanceView: z.object({ state: z.string().nullish() }).nullish(),
    containers: z.array(z.object({ name: z.string(), properties: z.object({ instanceView: z.object({ currentState: stateSchema.nullish() }).nullish() }) })).nullish(), // prettier-ignore
  }),
})
const listSchema = z.object({ value: z.array(groupSchema), nextLink: z.string().nullish() })
const poolSchema = z.object({
  location: z.string().optional(),
  properties: z.object({
    elasticityProfile: z.object({ maxReadyCapacity: z.number() }),
    containerGroupProperties: z.object({
      containerGroupProfile: z.object({ id: z.string(), revision: z.number().optional() }),
      subnetIds: z.array(z.object({ id: z.string() })).nullish(),
    }),
    provisioningState: z.string().optional(),
  }),
})
const viewSchema = z.object({
  properties: z.object({
    instanceCountSummary: z.array(z.object({ instanceCountsByState: z.array(z.object({ state: z.string(), count: z.number() })) })), // prettier-ignore
    status: z.object({ code: z.string(), message: z.string().optional() }).nullish(),
    provisioningState: z.string().optional(),
  }),
})
const errorSchema = z.object({ code: z.string().optional(), message: z.string().optional() })
const operationSchema = z.object({ status: z.string(), error: errorSchema.nullish() })

/** A container group, as far as it is looked at. */
export type Group = z.infer<typeof groupSchema>
/** A standby pool. */
export type Pool = z.infer<typeof poolSchema>
/** What is in a pool. */
export type PoolView = z.infer<typeof viewSchema>

/** What is under way. */
export interface Operation {
  /** Where it is asked about; undefined: at the resource itself. */
  readonly url: URL | undefined
  /** Milliseconds until that makes sense; undefined where Azure does not say. */
  readonly waitMs: number | undefined
}

/** Azure Resource Manager. Everything throws PlatformError, or the reason of the signal. */
export interface Arm {
  /** Asked once; after an unknown outcome look at {@link Arm.getGroup}. `secrets` are what the body holds in confidence. */
  readonly putGroup: (name: string, body: object, secrets: readonly string[]) => Promise<Operation & { readonly group: Group }> // prettier-ignore
  readonly getGroup: (
    name: string,
    signal?: AbortSignal,
  ) => Promise<(Operation & { readonly group: Group }) | undefined>
  readonly tagGroup: (name: string, tags: Readonly<Record<string, string>>, signal?: AbortSignal) => Promise<void>
  /** Undefined when there is nothing to wait for. */
  readonly deleteGroup: (name: string, deadlineMs: number) => Promise<Operation | undefined>
  readonly listGroups: () => Promise<readonly Group[]>
  /** `succeeded`, or when to ask again. @throws PlatformError for one that failed */
  readonly lookAt: (
    url: URL,
    action: string,
    signal?: AbortSignal,
  ) => Promise<'succeeded' | { readonly waitMs: number | undefined }>
  readonly getPool: () => Promise<Pool>
  readonly getPoolView: () => Promise<PoolView>
  readonly close: () => void
}

/** Pages of a list; each has a hundred groups or so. */
const MAX_PAGES = 200
const GROUPS = 'Microsoft.ContainerInstance/containerGroups'

/** Connects to nothing yet. */
export function createArm(options: ResolvedAciOptions): Arm {
  const { subscriptionId, resourceGroup, apiVersion, poolApiVersion, pool } = options
  const getToken = options.getArmToken ?? createArmTokenSource(options.credential, { scope: options.armScope })
  const client: PlatformClient = createPlatformClient({
    platform: 'Azure',
    baseUrl: options.armEndpoint,
    authorize: async () => ({ authorization: `Bearer ${await getToken()}` }),
    explain: explainArm,
  })
  const groups = `/subscriptions/${encodeURIComponent(subscriptionId)}/resourceGroups/${encodeURIComponent(resourceGroup)}/providers/${GROUPS}`
  const groupPath = (name: string): string => `${groups}/${encodeURIComponent(name)}`
  const query = { 'api-version': apiVersion }
  const poolPath = pool === undefined ? '' : poolIdOf(options)
  const poolQuery = { 'api-version': poolApiVersion }

  return {
    putGroup: async (name, body, secrets) => {
      const action = `create the container group \`${name}\``
      const reply = await client.request({ method: 'PUT', path: groupPath(name), query, body, secrets, expected: [200, 201], retry: 'never', action }) // prettier-ignore
      return { group: parse(groupSchema, reply, action), ...operationOf(reply) }
    },
    getGroup: async (name, signal) => {
      const action = `look at the container group \`${name}\``
      const reply = await client.request({ method: 'GET', path: groupPath(name), query, signal, expected: [200, 404], retry: 'safe', action }) // prettier-ignore
      if (reply.status === 404) return isAbsence(reply) ? undefined : refuseAbsence(reply, action)
      return { group: parse(groupSchema, reply, action), ...operationOf(reply) }
    },
    tagGroup: async (name, tags, signal) => {
      await client.request({ method: 'PATCH', path: groupPath(name), query, body: { tags }, signal, expected: [200], retry: 'safe', action: `write the tags of the container group \`${name}\`` }) // prettier-ignore
    },
    deleteGroup: async (name, deadlineMs) => {
      const action = `delete the container group \`${name}\``
      const reply = await client.request({ method: 'DELETE', path: groupPath(name), query, deadlineMs, expected: [200, 202, 204, 404], retry: 'safe', action }) // prettier-ignore
      if (reply.status === 404 && !isAbsence(reply)) refuseAbsence(reply, action)
      return reply.status === 204 || reply.status === 404 ? undefined : operationOf(reply)
    },
    listGroups: async () => {
      const action = `list the container groups of \`${resourceGroup}\``
      const found: Group[] = []
      let next: string | URL | undefined = groups
      for (let page = 0; next !== undefined; page++) {
        if (page === MAX_PAGES)
          throw new PlatformError('unreadable_reply', `can not ${action}: Azure's list does not end`)
        const reply: PlatformReply = await client.request({ method: 'GET', path: next, ...(page === 0 && { query }), expected: [200], retry: 'safe', action }) // prettier-ignore
        const { value, nextLink } = parse(listSchema, reply, action)
        found.push(...value)
        next = nextLink === null || nextLink === undefined || nextLink === '' ? undefined : urlOf(nextLink, action)
      }
      return found
    },
    lookAt: async (url, action, signal) => {
      const reply = await client.request({ method: 'GET', path: url, signal, expected: [200, 202, 204], retry: 'safe', action: `see how it goes on: ${action}` }) // prettier-ignore
      const { waitMs } = operationOf(reply)
      if (reply.status !== 200) return reply.status === 204 ? 'succeeded' : { waitMs }
      // A `Location` answers 200 with the resource itself.
      const read = operationSchema.safeParse(reply.body)
      const status = read.success ? read.data.status : 'Succeeded'
      if (status === 'Succeeded') return 'succeeded'
      if (status === 'Failed' || status === 'Canceled') throw failed(action, status, read.data?.error ?? undefined)
      return { waitMs }
    },
    getPool: async () => {
      const action = `find the standby pool \`${pool?.name ?? ''}\``
      const reply = await client.request({ method: 'GET', path: poolPath, query: poolQuery, expected: [200], retry: 'safe', action }) // prettier-ignore
      return parse(poolSchema, reply, action)
    },
    getPoolView: async () => {
      const action = `look into the standby pool \`${pool?.name ?? ''}\``
      const reply = await client.request({ method: 'GET', path: `${poolPath}/runtimeViews/latest`, query: poolQuery, expected: [200], retry: 'safe', action }) // prettier-ignore
      return parse(viewSchema, reply, action)
    },
    close: client.close,
  }
}

/** Resource id of the pool. */
export function poolIdOf({
  subscriptionId,
  resourceGroup,
  pool,
}: Pick<ResolvedAciOptions, 'subscriptionId' | 'resourceGroup' | 'pool'>): string {
  return idOf(pool?.name ?? '', 'Microsoft.StandbyPool/standbyContainerGroupPools', { subscriptionId, resourceGroup })
}

/** A resource id of a name, or the id that it is already. */
export function idOf(
  name: string,
  type: string,
  { subscriptionId, resourceGroup }: Pick<ResolvedAciOptions, 'subscriptionId' | 'resourceGroup'>,
): string {
  return name.startsWith('/')
    ? name
    : `/subscriptions/${subscriptionId}/resourceGroups/${resourceGroup}/providers/${type}/${name}`
}

/** A fault of an operation that came to a bad end. */
export function failed(action: string, status: string, error: z.infer<typeof errorSchema> | undefined): PlatformError {
  const { code = '', message = '' } = error ?? {}
  const meaning = explainArm({ code, message })
  const words = [cleanText(code), cleanText(message)].filter((each) => each !== '').join(': ')
  return new PlatformError(meaning?.fault ?? 'operation_failed', `can not ${action}: the operation ended as ${cleanText(status)}${words === '' ? '' : ` (${words.replace(/\.$/, '')})`}${meaning?.advice === undefined ? '' : `; ${meaning.advice}`}`, { platformCode: code === '' ? undefined : cleanText(code) }) // prettier-ignore
}

/** A 404 that says that this one is not there; another says that the resource group is not, or is not Azure's at all. */
function isAbsence({ body }: PlatformReply): boolean {
  const code = codeOf(body)
  return code === 'ResourceNotFound' || code === 'NotFound'
}

function refuseAbsence({ body, status }: PlatformReply, action: string): never {
  const code = codeOf(body) ?? ''
  const meaning = explainArm({ code, message: '' })
  throw new PlatformError(meaning?.fault ?? 'not_found', `can not ${action}: Azure refuses it (${status}, ${cleanText(code)}); ${meaning?.advice ?? 'check the names'}`, { status, platformCode: cleanText(code) }) // prettier-ignore
}

function codeOf(body: unknown): string | undefined {
  const read = z.object({ error: errorSchema }).safeParse(body)
  return read.success ? read.data.error.code : undefined
}

/** @see Azure Resource Manager RPC, asynchronous operations: `Azure-AsyncOperation` before `Location` */
function operationOf({ headers }: PlatformReply): Operation {
  const given = headers['azure-asyncoperation'] ?? headers['location']
  return { url: given === undefined ? undefined : urlOf(given, 'follow an operation'), waitMs: parseRetryAfter(headers['retry-after'], Date.now()) } // prettier-ignore
}

function urlOf(text: string, action: string): URL {
  if (URL.canParse(text)) return new URL(text)
  throw new PlatformError('unreadable_reply', `can not ${action}: Azure names an address that is none`)
}

function parse<T>(schema: z.ZodType<T>, { body, status }: PlatformReply, action: string): T {
  const read = schema.safeParse(body)
  if (read.success) return read.data
  const where = read.error.issues
    .map((issue) => issue.path.join('.'))
    .slice(0, 3)
    .join(', ')
  throw new PlatformError('unreadable_reply', `can not ${action}: Azure's reply has not the shape of its specification (\`${cleanText(where)}\`)`, { status, outcome: 'unknown' }) // prettier-ignore
}
