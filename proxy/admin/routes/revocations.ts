/** `/v1/revocations`: taking tokens back, and what was taken back. */
import { z } from 'zod'
import { lapsesAtMs, type Revocation, type RevocationRule } from '../../state/revocation-rules.ts'
import { type Control, recordAlso } from '../control.ts'
import { type AdminRoute, defineRoute } from '../route.ts'
import { endedWorkers, instant, instantOf, name, nextCursor, page, pageOf } from '../schemas.ts'

const issuedBefore = instant.describe(
  'Only tokens issued before. Absent: 30 seconds from now, since the clock of an issuer may be ahead by as much.',
)

const revokeBody = z.union([
  z.strictObject({ tokenId: name.describe('`jti` of one token, or the id of a bound listener.') }),
  z.strictObject({ sandbox: name, issuedBefore: issuedBefore.optional() }),
  z.strictObject({ tenant: name, issuedBefore: issuedBefore.optional() }),
  z.strictObject({ issuedBefore }).describe('Every token, of the control API too.'),
])

const revocation = z.object({
  kind: z.enum(['token', 'sandbox', 'tenant', 'everyone']),
  value: z.string().describe('The token id, sandbox or tenant; `*` for everyone.'),
  issuedBefore: instant.optional(),
  revokedAt: instant,
  expiresAt: instant.describe('When the last token that it can concern has expired; it is forgotten then.'),
})

/** The routes. */
export function revocationRoutes(control: Control): readonly AdminRoute[] {
  return [
    defineRoute({
      method: 'POST',
      path: '/v1/revocations',
      id: 'revoke',
      tag: 'tokens',
      summary:
        'Revoke a token, or all tokens of a sandbox, of a tenant, or issued before a moment; open tunnels are cut',
      scopes: ['token'],
      status: 201,
      errors: ['state_unusable'],
      body: revokeBody,
      reply: z.object({ cut: z.int().nonnegative().describe('Tunnels that were open under it.'), endedWorkers }),
      handle: async ({ body, caller }) => {
        const rule = ruleOf(body)
        const cut = await control.tunnels.countRevoked(rule)
        await control.state.revocations.revoke(rule)
        recordAlso(control, caller, {
          action: 'revoke',
          ...('tokenId' in rule && { token_id: rule.tokenId }),
          ...('sandbox' in rule && { sandbox: rule.sandbox }),
          ...('tenant' in rule && { tenant: rule.tenant }),
          ...('issuedBeforeMs' in rule && {
            detail: `issued before ${new Date(rule.issuedBeforeMs ?? 0).toISOString()}`,
          }),
        })
        const ended = await control.recheck()
        return { cut, ...(ended > 0 && { endedWorkers: ended }) }
      },
    }),
    defineRoute({
      method: 'GET',
      path: '/v1/revocations',
      id: 'listRevocations',
      tag: 'tokens',
      summary: 'List the revocations in force',
      scopes: ['read', 'token'],
      errors: [],
      query: z.strictObject({
        ...page,
        kind: z.enum(['token', 'sandbox', 'tenant', 'everyone']).optional(),
        value: name.optional(),
      }),
      reply: z.object({ revocations: z.array(revocation), cursor: nextCursor }),
      handle: ({ query }) => {
        const all = control.state.revocations
          .list()
          .filter(({ kind }) => query.kind === undefined || kind === query.kind)
          .filter(({ value }) => query.value === undefined || value === query.value)
          .map((rule) => [keyOf(rule), rule] as const)
          .sort(([one], [other]) => (one < other ? -1 : 1))
        const { items, next } = pageOf(all, query, ([key]) => key)
        return {
          revocations: items.map(([, rule]) => describe(rule)),
          ...(next !== undefined && { cursor: next }),
        }
      },
    }),
  ]
}

function keyOf({ kind, value }: Revocation): string {
  return `${kind} ${value}`
}

function ruleOf(body: z.output<typeof revokeBody>): RevocationRule {
  const when =
    'issuedBefore' in body && body.issuedBefore !== undefined ? { issuedBeforeMs: Date.parse(body.issuedBefore) } : {}
  if ('tokenId' in body) return { tokenId: body.tokenId }
  if ('sandbox' in body) return { sandbox: body.sandbox, ...when }
  return 'tenant' in body ? { tenant: body.tenant, ...when } : { everyone: true, ...when }
}

function describe(rule: Revocation): z.input<typeof revocation> {
  const { kind, value, issued_before: before, revoked_at: revokedAtMs } = rule
  return {
    kind,
    value,
    ...(before !== null && { issuedBefore: instantOf(before) }),
    revokedAt: new Date(revokedAtMs).toISOString(),
    expiresAt: new Date(lapsesAtMs(rule)).toISOString(),
  }
}
