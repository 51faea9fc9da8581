/** `/v1/identities`: who is connected or has a bound listener, and how much of its limits is used. */
import { z } from 'zod'
import type { Identity } from '../../tokens/identity.ts'
import type { IdentityLimits, Usage } from '../../tunnels/limits.ts'
import type { Control } from '../control.ts'
import { type AdminRoute, defineRoute } from '../route.ts'
import { name, nextCursor, page, pageOf } from '../schemas.ts'

const usage = z.object({
  tunnels: z.int().nonnegative(),
  bytesToday: z.int().nonnegative().describe('Both directions, in the UTC day, since the gateway started.'),
  limits: z
    .object({
      tunnels: z.number().optional(),
      newPerSecond: z.number().optional(),
      bytesPerDay: z.number().optional(),
      bytesPerSecond: z.number().optional(),
    })
    .describe('Those that are set.'),
})

const identity = z.object({
  tenant: z.string().optional(),
  sandbox: z.string().optional(),
  issuer: z.string(),
  tokenIds: z.array(z.string()).describe('Tokens that tunnels are open under; 32 are shown.'),
  ofSandbox: usage,
  ofTenant: usage.optional(),
})

/** One of the list. */
export type IdentityShown = z.output<typeof identity>

const SHOWN_TOKENS = 32

/** The routes. */
export function identityRoutes(control: Control): readonly AdminRoute[] {
  return [
    defineRoute({
      method: 'GET',
      path: '/v1/identities',
      id: 'listIdentities',
      tag: 'tunnels',
      summary: 'List who has tunnels or a bound listener, and what they use of their limits',
      scopes: ['read'],
      errors: [],
      query: z.strictObject({ ...page, tenant: name.optional(), sandbox: name.optional() }),
      reply: z.object({ identities: z.array(identity), cursor: nextCursor }),
      handle: ({ query }) => {
        const all = [
          ...[...control.registry.list()].map((tunnel) => tunnel.identity),
          ...control.leases.identities(),
        ].filter(
          ({ tenant, sandbox }) =>
            (query.tenant === undefined || tenant === query.tenant) &&
            (query.sandbox === undefined || sandbox === query.sandbox),
        )
        const groups = [...Map.groupBy(all, keyOf)].sort(([one], [other]) => (one < other ? -1 : 1))
        const { items, next } = pageOf(groups, query, ([key]) => key)
        return {
          identities: items.flatMap(([, members]) => describe(control, members)),
          ...(next !== undefined && { cursor: next }),
        }
      },
    }),
  ]
}

/** What limits count by: a token without a sandbox is one for itself. */
function keyOf({ issuer, tenant, sandbox, tokenId }: Identity): string {
  return JSON.stringify([tenant ?? null, sandbox ?? null, issuer, sandbox === undefined ? tokenId : null])
}

function describe({ gate, config }: Control, members: readonly Identity[]): z.input<typeof identity>[] {
  const [first] = members
  if (first === undefined) return []
  const { tenant, sandbox, issuer } = first
  const { perSandbox, perTenant } = config().limits
  const tokenIds = [...new Set(members.map(({ tokenId }) => tokenId))]
  return [
    {
      ...(tenant !== undefined && { tenant }),
      ...(sandbox !== undefined && { sandbox }),
      issuer,
      tokenIds: tokenIds.slice(0, SHOWN_TOKENS),
      ofSandbox: usageText(gate.limits.usageOf(first), perSandbox),
      ...(tenant !== undefined && { ofTenant: usageText(gate.limits.usageOfTenant(first), perTenant) }),
    },
  ]
}

function usageText({ tunnels, bytesToday }: Usage, limits: IdentityLimits): z.input<typeof usage> {
  const set = Object.entries(limits).filter(([, limit]) => limit !== undefined)
  return { tunnels, bytesToday, limits: Object.fromEntries(set) }
}
