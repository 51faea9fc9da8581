/** `/v1/caller`: who the gateway takes the caller for. Any credentials that are accepted may ask. */
import { z } from 'zod'
import { ADMIN_SCOPES } from '../../tokens/admin-token.ts'
import { type AdminRoute, defineRoute } from '../route.ts'
import { instant, instantOf } from '../schemas.ts'

const reply = z.object({
  author: z.string().describe('The name under which changes are written down.'),
  scopes: z.array(z.enum(ADMIN_SCOPES)),
  tokenId: z.string().optional().describe('Of an admin token.'),
  expiresAt: instant.optional().describe('Likewise.'),
})

/** What the route answers. */
export type CallerShown = z.output<typeof reply>

/** The route. */
export function callerRoutes(): readonly AdminRoute[] {
  return [
    defineRoute({
      method: 'GET',
      path: '/v1/caller',
      id: 'readCaller',
      tag: 'gateway',
      summary: 'Say who these credentials stand for, and what they may do',
      scopes: ['read', 'policy', 'token'],
      errors: [],
      reply,
      handle: ({ caller: { author, scopes, tokenId, expiresAtMs } }) => {
        const expiresAt = expiresAtMs === undefined ? undefined : instantOf(expiresAtMs)
        return {
          author,
          scopes: ADMIN_SCOPES.filter((scope) => scopes.has(scope)),
          ...(tokenId !== undefined && { tokenId }),
          ...(expiresAt !== undefined && { expiresAt }),
        }
      },
    }),
  ]
}
