/** `/v1/tokens`: minting tokens of sandboxes with the gateway's own keys, and looking at one. */
import { z } from 'zod'
import { egressPolicySchema, SallyportError } from '../../../policies/index.ts'
import { isHandle } from '../../state/handles.ts'
import { parseCompact } from '../../tokens/compact.ts'
import { MAX_TOKEN_BYTES, readProxyAuthorization } from '../../tokens/credentials.ts'
import { mintToken } from '../../tokens/mint.ts'
import { AdminError } from '../admin-error.ts'
import { type Control, recordFirst } from '../control.ts'
import { type AdminRoute, defineRoute } from '../route.ts'
import { instant, name } from '../schemas.ts'

const mintBody = z.strictObject({
  sandbox: name.optional(),
  tenant: name.optional(),
  egress: egressPolicySchema.optional().describe('What it may reach. Absent: nothing.'),
  ttlSeconds: z.number().positive().max(86_400).default(3_600).describe('How long it lives.'),
  binding: z
    .strictObject({
      address: z.string().max(100).optional().describe('The only address that may use it.'),
      certificate: z
        .string()
        .max(100)
        .optional()
        .describe('SHA-256 thumbprint (base64url) of the only client certificate that may use it.'),
    })
    .optional(),
  issuer: name.optional().describe('Which issuer of the configuration with `stateKeys`. Absent: the only one.'),
  handle: z.boolean().default(false).describe('Also makes a handle of 36 characters.'),
})

const minted = z.object({
  token: z.string(),
  tokenId: z.string(),
  issuer: z.string(),
  expiresAt: instant,
  handle: z.string().optional(),
})

const inspectBody = z.strictObject({
  token: z.string().min(1).max(MAX_TOKEN_BYTES).describe('A token of a sandbox, or a handle.'),
  client: z
    .strictObject({ address: z.string().max(100).optional(), certificate: z.string().max(100).optional() })
    .default({})
    .describe('Where the client is taken to be, for tokens that are bound.'),
})

const inspected = z.object({
  accepted: z.boolean().describe('Whether the gateway would accept it now.'),
  reason: z.string().optional().describe('Why not.'),
  detail: z.string().optional(),
  header: z.record(z.string(), z.unknown()).optional().describe('As it is written; not proven unless `accepted`.'),
  claims: z.record(z.string(), z.unknown()).optional(),
})

/** The routes. */
export function tokenRoutes(control: Control): readonly AdminRoute[] {
  return [
    defineRoute({
      method: 'POST',
      path: '/v1/tokens',
      id: 'mintToken',
      tag: 'tokens',
      summary: 'Mint a token of a sandbox',
      scopes: ['token'],
      status: 201,
      errors: ['policy_invalid', 'conflict', 'audit_unavailable', 'state_unusable'],
      body: mintBody,
      reply: minted,
      handle: async ({ body, caller }) => {
        const { sandbox, tenant, egress, ttlSeconds: lifeSeconds, binding } = body
        const issuer = chooseIssuer(control, body.issuer)
        const key = await control.ownKeys.signingKey()
        if (key === undefined) throw new AdminError('conflict', 'there is no key; `sallyport keys generate` makes one')
        const made = await mintChecked({
          key,
          issuer: issuer.issuer,
          audience: issuer.audience[0],
          sandbox,
          tenant,
          egress,
          lifeSeconds,
          sets: control.sets(),
          nowMs: control.clock.wallMs(),
          ...(binding && { binding: withoutUndefined(binding) }),
        })
        await recordFirst(control, caller, {
          action: 'token_minted',
          sandbox,
          tenant,
          issuer: issuer.issuer,
          token_id: made.tokenId,
          detail: `${egress?.kind ?? 'deny-all'}, until ${new Date(made.expiresAtMs).toISOString()}`,
        })
        const handle = body.handle ? await control.state.handles.mint(made.token, made.expiresAtMs) : undefined
        return {
          token: made.token,
          tokenId: made.tokenId,
          issuer: issuer.issuer,
          expiresAt: new Date(made.expiresAtMs).toISOString(),
          ...(handle !== undefined && { handle }),
        }
      },
    }),
    defineRoute({
      method: 'POST',
      path: '/v1/tokens:inspect',
      id: 'inspectToken',
      tag: 'tokens',
      summary: 'Say what a token says, and whether the gateway accepts it now',
      scopes: ['read', 'token'],
      errors: [],
      body: inspectBody,
      reply: inspected,
      handle: async ({ body: { token, client } }) => {
        const credentials = readProxyAuthorization(`Bearer ${token}`)
        const verdict = await control.gate.identify(credentials, {
          address: client.address ?? '127.0.0.1',
          port: 0,
          isAskedAbout: true,
          ...(client.certificate !== undefined && { certificateThumbprint: client.certificate }),
        })
        const opened = isHandle(token) ? await control.state.handles.open(token) : token
        const parts = opened === undefined ? undefined : parseCompact(opened)
        return {
          accepted: verdict.ok,
          ...(!verdict.ok && {
            reason: verdict.reason,
            ...(verdict.detail !== undefined && { detail: verdict.detail }),
          }),
          ...(parts?.ok === true && {
            header: Object.fromEntries(Object.entries(parts.value.header).filter(([, value]) => value !== undefined)),
            claims: parts.value.claims,
          }),
        }
      },
    }),
  ]
}

function chooseIssuer(control: Control, asked: string | undefined) {
  const own = control.config().issuers.filter(({ stateKeys }) => stateKeys === true)
  const found = asked === undefined ? own : own.filter(({ issuer }) => issuer === asked)
  const [issuer, ...others] = found
  if (issuer !== undefined && others.length === 0) return issuer
  const message =
    issuer !== undefined
      ? 'several issuers have `stateKeys`; name one by `issuer`'
      : 'no issuer of the configuration with `stateKeys: true` fits, so the gateway can sign nothing for it'
  throw new AdminError('conflict', message)
}

async function mintChecked(options: Parameters<typeof mintToken>[0]): ReturnType<typeof mintToken> {
  try {
    return await mintToken(options)
  } catch (error) {
    if (error instanceof TypeError) throw new AdminError('request_malformed', error.message)
    if (error instanceof SallyportError && error.code === 'SALLYPORT_TOKEN_INVALID')
      throw new AdminError('request_malformed', error.message)
    throw error
  }
}

function withoutUndefined(binding: { address?: string | undefined; certificate?: string | undefined }) {
  const { address, certificate } = binding
  return { ...(address !== undefined && { address }), ...(certificate !== undefined && { certificate }) }
}
