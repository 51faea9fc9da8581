/** The `issuers` section: whose tokens are accepted, and what they look like. */
import { z } from 'zod'
import { claimLayer } from './policy.ts'
import { checkUrl, complain } from './values.ts'

/** The signature algorithms that an issuer may use. */
const ALGORITHMS = ['EdDSA', 'ES256', 'RS256', 'PS256', 'HS256'] as const

const claimMember = z.string().min(1).max(128)
const claimName = z.union([claimMember, z.array(claimMember).min(1).max(8)])

const claims = z
  .strictObject({
    tenant: claimName.default('tenant').describe('Claim that holds the tenant.'),
    sandbox: claimName.default('sub').describe('Claim that holds the sandbox id.'),
    allowedHosts: claimName
      .optional()
      .describe('Claim that holds the allowed entries, as an array or comma-separated. With it, `egress` is not read.'),
  })
  .prefault({})
  .describe(
    'Names of claims, for issuers with a shape of their own. A claim inside others is a list of names, such as `[kubernetes.io, pod, uid]`.',
  )

const issuer = z
  .strictObject({
    issuer: z.string().min(1).max(512).describe('The `iss` of its tokens, compared exactly.'),
    audience: z
      .union([z.string().min(1), z.array(z.string().min(1)).min(1)])
      .prefault('sallyport')
      .transform((value) => (Array.isArray(value) ? value : [value]))
      .describe('What `aud` must hold: one of these.'),
    algorithms: z
      .array(z.enum(ALGORITHMS))
      .min(1)
      .describe('Algorithms that its signatures may use. `HS256` stands alone: no asymmetric one beside it.'),
    jwks: z
      .string()
      .min(1)
      .optional()
      .describe(
        'Its public keys: the `https:` URL of a JWK set (`http:` only to this machine), or a file. An unknown `kid` fetches again at most once in 30 seconds.',
      ),
    jwksTokenFile: z
      .string()
      .min(1)
      .optional()
      .describe('File with a bearer token that is sent to the URL in `jwks`; read again for every fetch.'),
    secretFile: z
      .string()
      .min(1)
      .optional()
      .describe('For `HS256`: a file with a secret of 32 bytes or more; one trailing newline is cut.'),
    stateKeys: z
      .literal(true)
      .optional()
      .describe(
        "The gateway's own keys in the state folder, made by `sallyport keys generate`. For tokens from `sallyport token mint`.",
      ),
    unsafePlainHttp: z
      .boolean()
      .default(false)
      .describe('Accepts an `http:` URL in `jwks`: whoever sits between can then sign tokens.'),
    typ: z
      .array(z.enum(['egress+jwt', 'JWT', 'none']))
      .min(1)
      .default(['egress+jwt'])
      .describe('Accepted `typ` headers; `none` is a token without one.'),
    claims,
    egress: claimLayer
      .optional()
      .describe(
        'The claim layer of its tokens that bring none: for issuers that can not put one in. Absent: `deny-all`.',
      ),
    optional: z
      .array(z.enum(['jti']))
      .default([])
      .describe("Claims that may be missing. Without `jti` the token's hash is its id."),
    unsafeNoAudience: z
      .boolean()
      .default(false)
      .describe('Accepts tokens without `aud`, which may be meant for somebody else.'),
  })
  .superRefine((entry, context) => {
    const sources = [entry.jwks, entry.secretFile, entry.stateKeys].filter((source) => source !== undefined)
    if (sources.length !== 1) {
      complain(
        context,
        `exactly one of \`jwks\`, \`secretFile\` and \`stateKeys\` says where the keys are; found ${sources.length}`,
      )
    }
    const secret = entry.algorithms.includes('HS256')
    if (secret && entry.algorithms.length > 1) {
      complain(context, '`HS256` must not stand beside an asymmetric algorithm', undefined, ['algorithms'])
    }
    if (sources.length === 1 && secret !== (entry.secretFile !== undefined)) {
      complain(context, '`HS256` and `secretFile` belong together', undefined, [secret ? 'algorithms' : 'secretFile'])
    }
    if (entry.jwks !== undefined && /^[a-z][a-z0-9+.-]+:\/\//i.test(entry.jwks)) {
      const fault = checkUrl(entry.jwks, entry.unsafePlainHttp)
      if (fault !== undefined) complain(context, fault.message, fault.hint, ['jwks'])
      if (entry.jwksTokenFile !== undefined && entry.unsafePlainHttp)
        complain(context, 'a token is not sent where whoever sits between can read it', undefined, ['jwksTokenFile'])
    } else if (entry.jwksTokenFile !== undefined) {
      complain(context, '`jwksTokenFile` belongs to a URL in `jwks`', undefined, ['jwksTokenFile'])
    }
  })
  .describe('One issuer of tokens.')

/** `issuers` of the configuration file. */
export const issuersSection = z
  .array(issuer)
  .default([])
  .superRefine((issuers, context) => {
    const seen = new Set<string>()
    for (const [index, entry] of issuers.entries()) {
      if (seen.has(entry.issuer))
        complain(context, `\`${entry.issuer}\` is configured twice`, undefined, [index, 'issuer'])
      seen.add(entry.issuer)
    }
  })
  .describe('Whose tokens are accepted. Without one, only bound listeners let anything out.')
