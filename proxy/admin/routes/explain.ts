/** `/v1/explain`: what the gateway would decide, and which layer and entry decide. The same answer as `sallyport policy explain --json`, from the gateway as it is now. */
import { z } from 'zod'
import type { Parsed } from '../../../policies/index.ts'
import { parseFixedHosts } from '../../egress/fixed-hosts.ts'
import { explainDestination, explainedData, readAddresses, readDestination } from '../../policy/explain-destination.ts'
import { MAX_TOKEN_BYTES, readProxyAuthorization } from '../../tokens/credentials.ts'
import { operatorIdentity } from '../../tokens/operator-identity.ts'
import { AdminError } from '../admin-error.ts'
import type { Control } from '../control.ts'
import { type AdminRoute, defineRoute } from '../route.ts'
import { tenantName } from '../schemas.ts'

const body = z
  .strictObject({
    token: z.string().min(1).max(MAX_TOKEN_BYTES).optional().describe('A token of a sandbox, or a handle.'),
    tenant: tenantName.optional().describe('Without a token: the layers of operator and tenant alone.'),
    host: z.string().min(1).max(512),
    port: z.int().min(1).max(65_535).default(443),
    addresses: z.array(z.string().max(100)).min(1).max(64).optional().describe('Taken as what the name resolves to.'),
    resolve: z.boolean().default(false).describe('Resolves the name as the gateway would, where policy allows it.'),
    client: z
      .strictObject({ address: z.string().max(100).optional(), certificate: z.string().max(100).optional() })
      .default({})
      .describe('Where the client is taken to be, for tokens that are bound.'),
  })
  .refine(({ token, tenant }) => token === undefined || tenant === undefined, {
    path: ['tenant'],
    error: 'is for asking without a token; a token names its tenant itself',
  })

const verdict = z.object({ allows: z.boolean(), reason: z.string().optional(), rule: z.string().optional() })
const reply = z.object({
  host: z.string().optional(),
  port: z.int().optional(),
  token: z
    .object({
      tokenId: z.string(),
      issuer: z.string(),
      keyId: z.string().optional(),
      tenant: z.string().optional(),
      sandbox: z.string().optional(),
      expiresAt: z.string(),
    })
    .optional(),
  version: z.string().optional().describe('Of the policies, as in the audit log.'),
  layers: z
    .array(
      z.object({
        layer: z.enum(['ceiling', 'tenant', 'claim']),
        mode: z.enum(['enforce', 'report']),
        kind: z.string(),
        verdict,
      }),
    )
    .optional(),
  addresses: z
    .array(z.object({ address: z.string(), prohibited: z.boolean(), class: z.string() }))
    .optional()
    .describe('Every address that was judged.'),
  decision: z.object({
    effective: z.enum(['allow', 'deny']),
    decision: z.enum(['allow', 'deny']),
    reason: z.string().optional(),
    detail: z.string().optional(),
    layer: z.string().optional(),
    rule: z.string().optional(),
    report: z.record(z.string(), z.unknown()).optional(),
  }),
  note: z.string().optional(),
})

/** What the route answers. */
export type ExplanationShown = z.output<typeof reply>

/** The route. */
export function explainRoutes(control: Control): readonly AdminRoute[] {
  const { gate, config, clock } = control
  return [
    defineRoute({
      method: 'POST',
      path: '/v1/explain',
      id: 'explain',
      tag: 'policies',
      summary: 'Say what the gateway would decide, with the verdict of every layer',
      scopes: ['read'],
      errors: [],
      body,
      reply,
      handle: async ({ body: asked }) => {
        const destination = valueOf(readDestination(asked.host, asked.port), 'host')
        const addresses = asked.addresses && valueOf(readAddresses(asked.addresses), 'addresses')
        const who =
          asked.token === undefined
            ? { ok: true as const, identity: operatorIdentity({ tenant: asked.tenant, nowMs: clock.wallMs() }) }
            : await gate.identify(readProxyAuthorization(`Bearer ${asked.token}`), {
                address: asked.client.address ?? '127.0.0.1',
                port: 0,
                isAskedAbout: true,
                ...(asked.client.certificate !== undefined && { certificateThumbprint: asked.client.certificate }),
              })
        if (!who.ok) {
          const { reason, detail } = who
          return {
            decision: { effective: 'deny', decision: 'deny', reason, ...(detail !== undefined && { detail }) },
          } as const
        }
        const hosts = parseFixedHosts(config().network.hosts)
        const explained = await explainDestination(
          {
            layers: await gate.layersFor(who.identity),
            network: gate.network(),
            resolver: gate.resolver(),
            isFixed: (host) => hosts.ok && hosts.value.has(host),
          },
          destination,
          { addresses, resolve: asked.resolve },
        )
        const subject = asked.token === undefined ? undefined : who.identity
        // What is absent is left out, as in JSON.
        return JSON.parse(JSON.stringify(explainedData(destination, subject, explained))) as z.input<typeof reply>
      },
    }),
  ]
}

function valueOf<T>(read: Parsed<T>, field: string): T {
  if (read.ok) return read.value
  throw new AdminError('request_malformed', `\`${field}\`: ${read.fault.message}`, {
    faults: [{ path: field, message: read.fault.message }],
  })
}
