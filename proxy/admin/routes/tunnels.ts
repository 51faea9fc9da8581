/** `/v1/tunnels`: what is open, and cutting it. */
import { z } from 'zod'
import { AdminError } from '../admin-error.ts'
import { type Control, recordAlso } from '../control.ts'
import { type AdminRoute, defineRoute } from '../route.ts'
import { tunnelShown } from '../open-tunnels.ts'
import { name, nextCursor, page, pageOf, pieceFor } from '../schemas.ts'

/** One of the list. */
export type { TunnelShown } from '../open-tunnels.ts'

const filters = {
  tenant: name.optional(),
  sandbox: name.optional(),
  tokenId: name.optional(),
  host: name.optional().describe('In canonical form.'),
}

/** The routes. */
export function tunnelRoutes(control: Control): readonly AdminRoute[] {
  const { tunnels } = control
  return [
    defineRoute({
      method: 'GET',
      path: '/v1/tunnels',
      id: 'listTunnels',
      tag: 'tunnels',
      summary: 'List open tunnels',
      scopes: ['read', 'token'],
      errors: [],
      query: z.strictObject({ ...page, ...filters }),
      reply: z.object({
        open: z.int().nonnegative().describe('In the whole gateway.'),
        tunnels: z.array(tunnelShown),
        cursor: nextCursor,
      }),
      handle: async ({ query }) => {
        const { limit: _limit, cursor: _cursor, ...selection } = query
        const found = await tunnels.list(selection, pieceFor(query))
        const { items, next } = pageOf(found, query, ({ requestId }) => requestId)
        return { open: tunnels.count(), tunnels: [...items], ...(next !== undefined && { cursor: next }) }
      },
    }),
    defineRoute({
      method: 'DELETE',
      path: '/v1/tunnels/{requestId}',
      id: 'cutTunnel',
      tag: 'tunnels',
      summary: 'Cut one tunnel; its token stays good',
      scopes: ['token'],
      status: 204,
      errors: ['not_found'],
      params: z.strictObject({ requestId: name }),
      reply: z.undefined(),
      handle: async ({ params: { requestId }, caller }) => {
        const { count, first } = await tunnels.cut({ requestId })
        if (count === 0) throw new AdminError('not_found', 'no tunnel of this id is open')
        recordAlso(control, caller, { action: 'cut', request_id: requestId, ...first })
        return undefined
      },
    }),
    defineRoute({
      method: 'POST',
      path: '/v1/tunnels:cut',
      id: 'cutTunnels',
      tag: 'tunnels',
      summary: 'Cut all tunnels of a sandbox or tenant; their tokens stay good, so revoke to keep them out',
      scopes: ['token'],
      errors: [],
      body: z.union([
        z.strictObject({ sandbox: name, tenant: name.optional() }),
        z.strictObject({ tenant: name }),
        z.strictObject({ tokenId: name }),
      ]),
      reply: z.object({ cut: z.int().nonnegative() }),
      handle: async ({ body, caller }) => {
        const { count } = await tunnels.cut(body)
        recordAlso(control, caller, {
          action: 'cut',
          ...('sandbox' in body && { sandbox: body.sandbox }),
          ...('tenant' in body && { tenant: body.tenant }),
          ...('tokenId' in body && { token_id: body.tokenId }),
          detail: `${count} tunnels`,
        })
        return { cut: count }
      },
    }),
  ]
}
