/** `/v1/policies`: the policies of tenants. A change names the version that it replaces, is written down with its author, and reaches open tunnels before the answer. */
import { z } from 'zod'
import { layerPolicySchema } from '../../../policies/index.ts'
import type { CheckedTenantLayer, TenantInForce } from '../../policy/kept-tenants.ts'
import { differenceForAudit, policyDifferenceSteps } from '../../policy/policy-difference.ts'
import type { TenantPolicy } from '../../state/tenant-policies.ts'
import type { Caller } from '../access.ts'
import { AdminError } from '../admin-error.ts'
import { type Control, recordAlso, recordFirst } from '../control.ts'
import { inSlices } from '../../in-slices.ts'
import { tunnelLost } from '../open-tunnels.ts'
import { type AdminRoute, defineRoute } from '../route.ts'
import { endedWorkers, nextCursor, page, pageOf, tenantName } from '../schemas.ts'

/** A list has at most 100,000 entries, of 40 bytes or so. */
const POLICY_BODY = 4 * 1024 * 1024
/** Tunnels that a dry run names. */
const SHOWN_TUNNELS = 100

const version = z.string().max(64)
const source = z
  .enum(['api', 'configuration', 'file', 'resolver'])
  .describe('Where it comes from: this API, the configuration, `tenantFiles`, or `tenantResolver`.')
const params = z.strictObject({ tenant: tenantName })
const inForce = z.object({ tenant: z.string(), source, version: z.string(), policy: layerPolicySchema })
const replaces = version
  .nullable()
  .describe(
    'The version that it takes the place of, as read before; `null` where there is none. Another one in force: 409.',
  )

/** The policy of a tenant. */
export type PolicyShown = z.output<typeof inForce>

const entryDifference = z.object({ appear: z.array(z.string()), vanish: z.array(z.string()) })
const step = z.object({ from: z.string().nullable(), to: z.string().nullable() })
const difference = z.object({ kind: step, mode: step, allowedHosts: entryDifference, deniedHosts: entryDifference })

const changed = z.object({
  tenant: z.string(),
  version: z.string().nullable().describe('In force now.'),
  difference,
  cut: z.int().nonnegative().describe('Tunnels that were cut.'),
  endedWorkers,
})

const dryRun = z.object({
  tenant: z.string(),
  replaces: z.string().nullable().describe('The version in force; send it with the change.'),
  version: z.string().describe('What would be in force.'),
  difference,
  cut: z.object({
    count: z.int().nonnegative(),
    tunnels: z.array(tunnelLost).describe(`Open tunnels that would be cut; ${SHOWN_TUNNELS} at most.`),
  }),
})

/** What a dry run answers. */
export type DryRunShown = z.output<typeof dryRun>

/** What a change answers. */
export type ChangeShown = z.output<typeof changed>

/** The routes. */
export function policyRoutes(control: Control): readonly AdminRoute[] {
  const { policies, state } = control
  /** One change at a time, so that what a version is compared with stays. */
  let last: Promise<unknown> = Promise.resolve()
  const inTurn = <T>(work: () => Promise<T>): Promise<T> => {
    const result = last.then(work)
    last = result.catch(() => undefined)
    return result
  }

  /** Writes down, keeps, puts in force, and waits for open tunnels to feel it. */
  async function change(
    tenant: string,
    expected: string | null,
    next: CheckedTenantLayer | undefined,
    caller: Caller,
  ): Promise<z.input<typeof changed>> {
    const files = policies.tenantFiles()
    if (next !== undefined && files !== undefined)
      throw new AdminError(
        'conflict',
        `policies of tenants come from \`policy.tenantFiles\` (\`${files.path}\`), so that one place says what is in force: change the file there`,
      )
    const before = await policies.tenantInForce(tenant)
    if ((before?.version ?? null) !== expected) throw stale(tenant, before)
    if (next === undefined && state.tenantPolicies.get(tenant) === undefined)
      throw new AdminError(
        'not_found',
        'this API keeps no policy of the tenant; one of the configuration is changed there',
      )
    const described = await inSlices(policyDifferenceSteps(before?.layer, next?.layer))
    const action = next === undefined ? 'policy_deleted' : 'policy_put'
    await recordFirst(control, caller, {
      action,
      tenant,
      policy_version: next?.version,
      ...differenceForAudit(described),
    })
    const lost = await control.tunnels.lostUnder(tenant, next?.layer, 0)
    try {
      if (next === undefined) await state.tenantPolicies.remove(tenant)
      else
        await state.tenantPolicies.put({
          tenant,
          policy: next.layer as TenantPolicy['policy'],
          changed_at: new Date(control.clock.wallMs()).toISOString(),
          author: caller.author,
        })
    } catch (error) {
      recordAlso(control, caller, { action: `${action}_failed`, tenant })
      throw error
    }
    const ended = await control.recheck()
    const after = await policies.tenantInForce(tenant)
    return {
      tenant,
      version: after?.version ?? null,
      difference: (await inSlices(policyDifferenceSteps(before?.layer, after?.layer))) as Mutable,
      cut: lost.count,
      ...(ended > 0 && { endedWorkers: ended }),
    }
  }

  return [
    defineRoute({
      method: 'GET',
      path: '/v1/policies',
      id: 'listPolicies',
      tag: 'policies',
      summary: 'List the tenants that have a policy',
      scopes: ['read', 'policy'],
      errors: [],
      query: z.strictObject(page),
      reply: z.object({
        policies: z.array(
          z.object({
            tenant: z.string(),
            source,
            version: z.string(),
            kind: z.string(),
            mode: z.enum(['enforce', 'report']),
            entries: z.int().nonnegative(),
          }),
        ),
        cursor: nextCursor,
      }),
      handle: async ({ query }) => {
        const { items, next } = pageOf([...policies.tenants()].sort(), query, (tenant) => tenant)
        const found = await Promise.all(
          items.map(async (tenant) => summary(tenant, await policies.tenantInForce(tenant))),
        )
        return { policies: found.flat(), ...(next !== undefined && { cursor: next }) }
      },
    }),
    defineRoute({
      method: 'GET',
      path: '/v1/policies/{tenant}',
      id: 'readPolicy',
      tag: 'policies',
      summary: 'Read the policy of a tenant',
      scopes: ['read', 'policy'],
      errors: ['not_found'],
      params,
      reply: inForce,
      handle: async ({ params: { tenant } }) => {
        const found = await policies.tenantInForce(tenant)
        if (found === undefined)
          throw new AdminError('not_found', 'nobody gave this tenant a policy, so it is refused everything')
        return { tenant, source: found.source, version: found.version, policy: found.layer as TenantPolicy['policy'] }
      },
    }),
    defineRoute({
      method: 'PUT',
      path: '/v1/policies/{tenant}',
      id: 'putPolicy',
      tag: 'policies',
      summary:
        'Put a policy in the place of what a tenant has; it survives restarts and wins over the configuration; refused where policies come from `tenantFiles`',
      scopes: ['policy'],
      bodyLimit: POLICY_BODY,
      errors: ['version_stale', 'conflict', 'policy_invalid', 'audit_unavailable', 'state_unusable'],
      params,
      body: z.strictObject({ policy: layerPolicySchema, replaces }),
      reply: changed,
      handle: ({ params: { tenant }, body, caller }) =>
        inTurn(async () => change(tenant, body.replaces, await checked(control, body.policy), caller)),
    }),
    defineRoute({
      method: 'POST',
      path: '/v1/policies/{tenant}:check',
      id: 'checkPolicy',
      tag: 'policies',
      summary: 'Say what a policy would change, and which tunnels it would cut, without putting it in force',
      scopes: ['read', 'policy'],
      bodyLimit: POLICY_BODY,
      errors: ['policy_invalid'],
      params,
      body: z.strictObject({ policy: layerPolicySchema }),
      reply: dryRun,
      handle: async ({ params: { tenant }, body }) => {
        const next = await checked(control, body.policy)
        const before = await policies.tenantInForce(tenant)
        const lost = await control.tunnels.lostUnder(tenant, next.layer, SHOWN_TUNNELS)
        return {
          tenant,
          replaces: before?.version ?? null,
          version: next.version,
          difference: (await inSlices(policyDifferenceSteps(before?.layer, next.layer))) as Mutable,
          cut: { count: lost.count, tunnels: [...lost.tunnels] },
        }
      },
    }),
    defineRoute({
      method: 'DELETE',
      path: '/v1/policies/{tenant}',
      id: 'deletePolicy',
      tag: 'policies',
      summary: 'Forget the policy that this API keeps; what the configuration says of the tenant holds again',
      scopes: ['policy'],
      errors: ['not_found', 'version_stale', 'audit_unavailable', 'state_unusable'],
      params,
      query: z.strictObject({ replaces: version.describe('The version in force, as read before.') }),
      reply: changed,
      handle: ({ params: { tenant }, query, caller }) =>
        inTurn(() => change(tenant, query.replaces, undefined, caller)),
    }),
  ]
}

type Mutable = z.input<typeof difference>

function summary(tenant: string, found: TenantInForce | undefined) {
  if (found === undefined) return []
  const { source: from, version: current, layer } = found
  const entries = layer.kind === 'static' ? layer.allowedHosts.length + (layer.deniedHosts?.length ?? 0) : 0
  return [{ tenant, source: from, version: current, kind: layer.kind, mode: layer.mode ?? 'enforce', entries } as const]
}

async function checked({ policies }: Control, policy: unknown): Promise<CheckedTenantLayer> {
  const result = await policies.checkTenant(policy)
  if (result.ok) return result.value
  const faults = result.faults.slice(0, 100).map(({ path, message, hint }) => ({
    path: path === '' ? 'policy' : `policy.${path}`,
    message,
    ...(hint !== undefined && { hint }),
  }))
  throw new AdminError('policy_invalid', faults[0]?.message ?? 'the policy has faults', { faults })
}

function stale(tenant: string, before: TenantInForce | undefined): AdminError {
  const now = before === undefined ? 'has none (send `replaces: null`)' : `has version \`${before.version}\``
  return new AdminError(
    'version_stale',
    `the policy of \`${tenant}\` is another one than the one that was read: it ${now}`,
  )
}
