/** The `policy` and `sni` sections. Here only their shape; what an entry means is the affair of `policies/`. */
import { z } from 'zod'
import { checkUrl, complain, seconds } from './values.ts'

const entries = z.array(z.string().max(512)).max(10_000)
const policyName = z.string().min(1).max(100)
const mode = z
  .enum(['enforce', 'report'])
  .default('enforce')
  .describe('`report` lets through what this layer would have refused, and records it.')

const allowedHosts = entries.describe(
  'What may be reached: `api.example.com`, `*.example.com`, `host:8443`, `host:*`, `198.51.100.0/24`, `@github`. An empty list denies all.',
)
const deniedHosts = entries.default([]).describe('What may not be reached, whatever else allows it.')

const layer = z
  .discriminatedUnion('kind', [
    z.strictObject({ kind: z.literal('deny-all'), mode }).describe('Refuses everything.'),
    z.strictObject({ kind: z.literal('allow-all'), mode }).describe('Lets out to every public address.'),
    z
      .strictObject({ kind: z.literal('static'), allowedHosts, deniedHosts, mode })
      .describe('Lets out to the entries listed.'),
    z
      .strictObject({ kind: z.literal('named'), name: policyName.describe('A key of `policy.named`.'), mode })
      .describe('Stands for one of `policy.named`.'),
  ])
  .describe('One layer.')

/** A policy that stands for itself. */
export const plainPolicy = z
  .discriminatedUnion('kind', [
    z.strictObject({ kind: z.literal('deny-all') }).describe('Refuses everything.'),
    z.strictObject({ kind: z.literal('allow-all') }).describe('Lets out to every public address.'),
    z
      .strictObject({ kind: z.literal('static'), allowedHosts, deniedHosts })
      .describe('Lets out to the entries listed.'),
  ])
  .describe('A policy that tokens and tenants refer to by name.')

/** What an issuer says for tokens that say nothing themselves. */
export const claimLayer = z.discriminatedUnion('kind', [
  ...plainPolicy.options,
  z
    .strictObject({ kind: z.literal('named'), name: policyName.describe('A key of `policy.named`.') })
    .describe('Stands for one of `policy.named`.'),
])

const tenantResolver = z
  .strictObject({
    url: z
      .string()
      .min(1)
      .describe(
        'Answers with the policy of a tenant as JSON; `{tenant}` stands for its name. `http:` only to this machine.',
      ),
    ttlSeconds: seconds(1, 86_400)
      .prefault(60)
      .describe('How long an answer is used before it is fetched again, in the background.'),
    staleSeconds: seconds(0, 86_400)
      .prefault(300)
      .describe('How long an old answer is kept when the URL fails. After that: `policy_unavailable`.'),
    timeoutSeconds: seconds(0.1, 60).prefault(5).describe('How long one answer may take.'),
    tokenFile: z
      .string()
      .min(1)
      .optional()
      .describe('File with a bearer token for the URL; read at every use, so that it may be renewed in place.'),
    mode,
    unsafePlainHttp: z
      .boolean()
      .default(false)
      .describe('Accepts an `http:` URL: whoever sits between can then write the policy.'),
  })
  .superRefine((resolver, context) => {
    const fault = checkUrl(resolver.url.replaceAll('{tenant}', 'tenant'), resolver.unsafePlainHttp)
    if (fault !== undefined) complain(context, fault.message, undefined, ['url'])
    if (resolver.tokenFile !== undefined && resolver.unsafePlainHttp)
      complain(context, 'a token is not sent where whoever sits between can read it', undefined, ['tokenFile'])
    if (!resolver.url.includes('{tenant}'))
      complain(context, 'the URL must hold `{tenant}`', `${resolver.url}/{tenant}`, ['url'])
  })
  .describe('Asks a service of yours for the policies of tenants that `tenants` does not list.')

const tenantFiles = z
  .strictObject({
    path: z
      .string()
      .min(1)
      .describe(
        'A folder with one file for each tenant (`acme.yaml`, `acme.json`), or one file with all of them by name. Watched; see docs/policies.md.',
      ),
    staleSeconds: seconds(0, 86_400)
      .prefault(300)
      .describe('How long the last policies are kept when it can not be read. After that: `policy_unavailable`.'),
  })
  .describe('Policies of tenants in files, for tenants that `tenants` does not list. Instead of `tenantResolver`.')

/** `policy` of the configuration file. */
export const policySection = z
  .strictObject({
    ceiling: layer
      .prefault({ kind: 'deny-all' })
      .describe('What anybody may reach at most. No tenant and no token goes beyond it.'),
    deniedHosts: deniedHosts.describe(
      'What nobody may reach. Wins over everything, and counts as part of the ceiling.',
    ),
    tenants: z
      .record(policyName, layer)
      .default({})
      .describe(
        'The policy of each tenant. A token of a tenant that is not here is refused, unless `tenantResolver` or `tenantFiles` knows it.',
      ),
    tenantResolver: tenantResolver.optional(),
    tenantFiles: tenantFiles.optional(),
    named: z
      .record(policyName, plainPolicy)
      .default({})
      .describe('Policies by name, for `{ kind: named }`, also in tokens.'),
    sets: z
      .record(z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/), entries)
      .default({})
      .describe('Sets of entries of your own: `corp: [...]` is used as `@corp`.'),
  })
  .superRefine(({ tenantResolver: resolver, tenantFiles: files }, context) => {
    if (resolver !== undefined && files !== undefined)
      complain(context, 'policies of tenants have one source: `tenantResolver` or `tenantFiles`', undefined, [
        'tenantFiles',
      ])
  })
  .prefault({})
  .describe('What may be reached. A connection needs the consent of every layer: ceiling, tenant and token.')

/** `sni` of the configuration file. */
export const sniSection = z
  .strictObject({
    ports: z
      .array(z.int().min(1).max(65_535))
      .default([443])
      .describe('Ports on which TLS is expected: the server name of its first message must equal the CONNECT host.'),
    off: entries
      .default([])
      .describe('Entries (like those of `allowedHosts`) for which it is not compared: protocols that are not TLS.'),
  })
  .prefault({})
  .describe('Comparing the TLS server name with the host that was allowed.')
