/** The `network` section: how the gateway itself gets out. */
import { z } from 'zod'
import { complain } from './values.ts'

const hostName = z.string().min(1).max(253)

const upstreamObject = z
  .strictObject({
    url: z.string().min(1).describe('`http://host:port` or `https://host:port`.'),
    credentialsFile: z
      .string()
      .min(1)
      .optional()
      .describe('File with `user:password` for the upstream proxy, on one line.'),
    tokenFile: z
      .string()
      .min(1)
      .optional()
      .describe('File with a bearer token for the upstream proxy, such as another gateway; read again for every use.'),
    resolve: z
      .enum(['here', 'upstream'])
      .default('here')
      .describe(
        'Who resolves names. `upstream` gives up the check of addresses: a name that policy allows may then lead into a private network.',
      ),
  })
  .superRefine((upstream, context) => {
    const url = URL.parse(upstream.url)
    if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:') || url.hostname === '') {
      complain(context, `must be \`http://host:port\` or \`https://host:port\``, undefined, ['url'])
    } else if (url.username !== '' || url.password !== '') {
      complain(context, 'credentials do not belong into the URL; put them into `credentialsFile`', undefined, ['url'])
    } else if (url.pathname !== '/' || url.search !== '' || url.hash !== '') {
      complain(context, 'the URL of a proxy has no path', `${url.protocol}//${url.host}`, ['url'])
    }
    if (upstream.credentialsFile !== undefined && upstream.tokenFile !== undefined)
      complain(context, '`credentialsFile` and `tokenFile` exclude each other', undefined, ['tokenFile'])
  })

/** `network` of the configuration file. */
export const networkSection = z
  .strictObject({
    allowPrivate: z
      .array(z.string().min(1))
      .default([])
      .describe(
        'Private and other special-purpose ranges that may be reached all the same, such as `10.20.0.0/16`. Tokens and tenants can not lift that.',
      ),
    nat64Prefixes: z
      .array(z.string().min(1))
      .default([])
      .describe('NAT64 prefixes of your network beside the well-known ones; the IPv4 address inside is judged.'),
    resolvers: z
      .array(z.string().min(1))
      .optional()
      .describe("DNS servers, `10.0.0.2` or `10.0.0.3:5353`. Absent: the system's."),
    hosts: z
      .record(
        hostName,
        z.union([
          z
            .string()
            .min(1)
            .transform((one) => [one]),
          z.array(z.string().min(1)).min(1).max(32),
        ]),
      )
      .prefault({})
      .describe(
        'Fixed answers, asked before DNS: a name and its address or addresses. They are judged like any other.',
      ),
    upstream: z
      .union([
        z
          .string()
          .min(1)
          .transform((url) => ({ url }))
          .pipe(upstreamObject),
        upstreamObject,
      ])
      .optional()
      .describe('Chains through another proxy: its URL, or a section with its credentials.'),
  })
  .prefault({})
  .describe('How the gateway gets out.')
