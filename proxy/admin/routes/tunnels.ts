/** `/v1/tunnels`: what is open, and cutting it. */
import { z } from 'zod'
import { hostText } from '../../../policies/index.ts'
import type { Tunnel } from '../../tunnels/registry.ts'
import { AdminError } from '../admin-error.ts'
import { type Control, recordAlso } from '../control.ts'
import { type AdminRoute, defineRoute } from '../route.ts'
import { instant, instantOf, name, nextCursor, page, pageOf } from '../schemas.ts'

const tunnel = z.object({
  requestId: z.string().describe('As in the audit log.'),
  tenant: z.string().optional(),
  sandbox: z.string().optional(),
  tokenId: z.string(),
  issuer: z.string(),
  host: z.string(),
  port: z.int(),
  addresses: z.array(z.string()).describe('What was judged; one of them is connected.'),
  expiresAt: instant.optional().describe('Absent: with its bound listener.'),
  bytesIn: z.int().nonnegative().describe('Origin to client.'),
  bytesOut: z.int().nonnegative(),
  idleSeconds: z.number().nonnegative(),
})

/** One of the list. */
export type TunnelShown = z.output<typeof tunnel>

const filters = {
  tenant: name.optional(),
  sandbox: name.optional(),
  tokenId: name.optional(),
  host: name.optional().describe('In canonical form.'),
}

/** The routes. */
export function tunnelRoutes(control: Control): readonly AdminRoute[] {
  const cut = (chosen: readonly Tunnel[]): number => {
    for (const { relay } of chosen) relay.cut('operator')
    return chosen.length
  }
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
        tunnels: z.array(tunnel),
        cursor: nextCursor,
      }),
      handle: ({ query }) => {
        const found = select(control, query).sort((one, other) => (one.requestId < other.requestId ? -1 : 1))
        const { items, next } = pageOf(found, query, ({ requestId }) => requestId)
        return {
          open: control.registry.size,
          tunnels: items.map((each) => describe(each, control.clock.monotonicMs())),
          ...(next !== undefined && { cursor: next }),
        }
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
      handle: ({ params: { requestId }, caller }) => {
        const found = [...control.registry.list()].filter((each) => each.requestId === requestId)
        const [one] = found
        if (one === undefined) throw new AdminError('not_found', 'no tunnel of this id is open')
        cut(found)
        const { tenant, sandbox } = one.identity
        recordAlso(control, caller, { action: 'cut', request_id: requestId, tenant, sandbox })
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
      handle: ({ body, caller }) => {
        const count = cut(select(control, body))
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

interface Selection {
  readonly tenant?: string | undefined
  readonly sandbox?: string | undefined
  readonly tokenId?: string | undefined
  readonly host?: string | undefined
}

function select({ registry }: Control, { tenant, sandbox, tokenId, host }: Selection): Tunnel[] {
  return [...registry.list()].filter(
    ({ identity, permit }) =>
      (tenant === undefined || identity.tenant === tenant) &&
      (sandbox === undefined || identity.sandbox === sandbox) &&
      (tokenId === undefined || identity.tokenId === tokenId) &&
      (host === undefined || hostText(permit.destination) === host),
  )
}

function describe({ requestId, identity, permit, expiresAtMs, relay }: Tunnel, nowMs: number): z.input<typeof tunnel> {
  const { tenant, sandbox, tokenId, issuer } = identity
  const expiresAt = instantOf(expiresAtMs)
  return {
    requestId,
    ...(tenant !== undefined && { tenant }),
    ...(sandbox !== undefined && { sandbox }),
    tokenId,
    issuer,
    host: hostText(permit.destination),
    port: permit.destination.port,
    addresses: permit.addresses.map(({ text }) => text),
    ...(expiresAt !== undefined && { expiresAt }),
    bytesIn: relay.bytesIn,
    bytesOut: relay.bytesOut,
    idleSeconds: Math.max(0, Math.round(nowMs - relay.lastActivityMs) / 1000),
  }
}
