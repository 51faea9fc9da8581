/** `/v1/listeners`: listeners that stand for one sandbox each, made and renewed by whoever runs the sandbox. Whoever reaches one is that sandbox. */
import { z } from 'zod'
import { egressPolicySchema, SallyportError } from '../../../policies/index.ts'
import { AdminError } from '../admin-error.ts'
import { bindPlace } from '../bind-place.ts'
import { type Control, recordAlso, recordFirst } from '../control.ts'
import type { Lease } from '../leases.ts'
import { type AdminRoute, defineRoute } from '../route.ts'
import { instant, name, nextCursor, page, pageOf, tenantName } from '../schemas.ts'

/** A policy may be long. */
const POLICY_BODY = 1024 * 1024

const ttlSeconds = z
  .number()
  .min(1)
  .max(86_400)
  .describe('The lease: the listener is removed then, unless it is renewed.')
const address = z.union([z.object({ path: z.string() }), z.object({ host: z.string(), port: z.int() })])
const listener = z.object({
  id: z.string(),
  address,
  tokenId: z.string().describe('Names it in the audit log and in revocations.'),
  sandbox: z.string(),
  tenant: z.string().optional(),
  author: z.string(),
  expiresAt: instant.describe('End of the lease.'),
})
const params = z.strictObject({ id: name })

/** The routes. */
export function listenerRoutes(control: Control): readonly AdminRoute[] {
  const { leases, clock } = control
  const describe = (lease: Lease): z.input<typeof listener> => {
    const { id, bound, sandbox, tenant, author, lapsesAtMs } = lease
    const expiresAtMs = clock.wallMs() + Math.max(0, lapsesAtMs - clock.monotonicMs())
    const { address: at } = bound
    return {
      id,
      address: at.kind === 'unix' ? { path: at.path } : { host: at.host, port: at.port },
      tokenId: bound.tokenId,
      sandbox,
      ...(tenant !== undefined && { tenant }),
      author,
      expiresAt: new Date(expiresAtMs).toISOString(),
    }
  }
  const lifeMs = (asked: number): number => {
    const { longestLeaseSeconds } = control.config().admin.bind
    if (asked <= longestLeaseSeconds) return asked * 1000
    throw new AdminError('not_allowed', `a lease is at most ${longestLeaseSeconds} seconds long here`)
  }
  const absent = (): AdminError =>
    new AdminError('not_found', 'there is no listener of this id; its lease may have lapsed')

  return [
    defineRoute({
      method: 'POST',
      path: '/v1/listeners',
      id: 'bindListener',
      tag: 'listeners',
      summary: 'Bind a listener to a sandbox',
      scopes: ['token'],
      status: 201,
      bodyLimit: POLICY_BODY,
      errors: ['not_allowed', 'conflict', 'policy_invalid', 'audit_unavailable'],
      body: z.strictObject({
        sandbox: name,
        tenant: tenantName.optional(),
        egress: egressPolicySchema.default({ kind: 'deny-all' }).describe('What the sandbox may reach.'),
        address: z
          .union([
            z.strictObject({
              path: z.string().min(1).max(103).describe('Of a unix socket, below one of `admin.bind.folders`.'),
            }),
            z.strictObject({
              host: z.string().max(100).describe('One of `admin.bind.addresses`.'),
              port: z.int().min(0).max(65_535).describe('0 picks a free one.'),
            }),
          ])
          .describe('Where it is to listen.'),
        ttlSeconds: ttlSeconds.default(60),
      }),
      reply: listener,
      handle: async ({ body, caller }) => {
        const { sandbox, tenant, egress } = body
        const { bind } = control.config().admin
        const ttlMs = lifeMs(body.ttlSeconds)
        const where = await bindPlace(body.address, bind)
        if (leases.count() >= bind.listeners)
          throw new AdminError('conflict', `there are ${bind.listeners} bound listeners already`)
        await recordFirst(control, caller, {
          action: 'listener_bound',
          sandbox,
          tenant,
          detail: `${egress.kind} at ${'path' in where ? where.path : `${where.host ?? ''} port ${where.port}`}`,
        })
        return describe(await opened(leases.add({ where, sandbox, tenant, egress, ttlMs, author: caller.author })))
      },
    }),
    defineRoute({
      method: 'GET',
      path: '/v1/listeners',
      id: 'listListeners',
      tag: 'listeners',
      summary: 'List the listeners that were bound through this API',
      scopes: ['read', 'token'],
      errors: [],
      query: z.strictObject({ ...page, sandbox: name.optional(), tenant: tenantName.optional() }),
      reply: z.object({ listeners: z.array(listener), cursor: nextCursor }),
      handle: ({ query }) => {
        const found = leases
          .list()
          .filter(
            ({ sandbox, tenant }) =>
              (query.sandbox === undefined || sandbox === query.sandbox) &&
              (query.tenant === undefined || tenant === query.tenant),
          )
          .toSorted((one, other) => (one.id < other.id ? -1 : 1))
        const { items, next } = pageOf(found, query, ({ id }) => id)
        return { listeners: items.map(describe), ...(next !== undefined && { cursor: next }) }
      },
    }),
    defineRoute({
      method: 'PATCH',
      path: '/v1/listeners/{id}',
      id: 'renewListener',
      tag: 'listeners',
      summary: 'Renew the lease of a listener, or give its sandbox another policy, or both',
      scopes: ['token'],
      bodyLimit: POLICY_BODY,
      errors: ['not_found', 'not_allowed', 'policy_invalid', 'audit_unavailable'],
      params,
      body: z.strictObject({ ttlSeconds: ttlSeconds.optional(), egress: egressPolicySchema.optional() }),
      reply: listener,
      handle: async ({ params: { id }, body, caller }) => {
        const known = leases.get(id)
        if (known === undefined) throw absent()
        const ttlMs = body.ttlSeconds === undefined ? undefined : lifeMs(body.ttlSeconds)
        if (body.egress !== undefined) {
          const { sandbox, tenant, bound } = known
          const detail = body.egress.kind
          await recordFirst(control, caller, {
            action: 'listener_policy',
            sandbox,
            tenant,
            token_id: bound.tokenId,
            detail,
          })
          if (leases.get(id) === undefined) throw absent()
          bound.setEgress(body.egress)
          await control.recheck()
        }
        const lease = ttlMs === undefined ? leases.get(id) : leases.renew(id, ttlMs)
        if (lease === undefined) throw absent()
        return describe(lease)
      },
    }),
    defineRoute({
      method: 'DELETE',
      path: '/v1/listeners/{id}',
      id: 'removeListener',
      tag: 'listeners',
      summary: 'Remove a listener, cut what is open through it, and revoke its identity for good',
      scopes: ['token'],
      status: 204,
      errors: ['not_found'],
      params,
      reply: z.undefined(),
      handle: async ({ params: { id }, caller }) => {
        const lease = await leases.remove(id)
        if (lease === undefined) throw absent()
        const { sandbox, tenant, bound } = lease
        recordAlso(control, caller, { action: 'listener_removed', sandbox, tenant, token_id: bound.tokenId })
        return undefined
      },
    }),
  ]
}

async function opened(opening: Promise<Lease>): Promise<Lease> {
  try {
    return await opening
  } catch (error) {
    if (error instanceof SallyportError && error.code === 'SALLYPORT_LISTEN_FAILED')
      throw new AdminError('conflict', error.message)
    throw error
  }
}
