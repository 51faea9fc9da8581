/** `/v1/identities`: who is connected or has a bound listener, and how much of its limits is used. */
import { z } from 'zod'
import type { IdentityLimits, Usage } from '../../tunnels/limits.ts'
import type { Control } from '../control.ts'
import type { Holder } from '../open-tunnels.ts'
import { type AdminRoute, defineRoute } from '../route.ts'
import { name, nextCursor, page, pageOf, pieceFor } from '../schemas.ts'

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
      handle: async ({ query }) => {
        const { tenant, sandbox } = query
        const found = await control.tunnels.holders({ tenant, sandbox }, pieceFor(query), SHOWN_TOKENS)
        const { items, next } = pageOf(found, query, ({ key }) => key)
        return {
          identities: items.map((one) => describe(control, one)),
          ...(next !== undefined && { cursor: next }),
        }
      },
    }),
  ]
}

function describe({ gate, config }: Control, { key: _key, tokenIds, ...who }: Holder): z.input<typeof identity> {
  const { tenant, sandbox, issuer } = who
  const { perSandbox, perTenant } = config().limits
  const counted = { tenant, sandbox, issuer, tokenId: tokenIds[0] ?? '' }
  return {
    ...who,
    tokenIds,
    ofSandbox: usageText(gate.limits.usageOf(counted), perSandbox),
    ...(tenant !== undefined && { ofTenant: usageText(gate.limits.usageOfTenant(counted), perTenant) }),
  }
}

function usageText({ tunnels, bytesToday }: Usage, limits: IdentityLimits): z.input<typeof usage> {
  const set = Object.entries(limits).filter(([, limit]) => limit !== undefined)
  return { tunnels, bytesToday, limits: Object.fromEntries(set) }
}
