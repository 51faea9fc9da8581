/** `audit.sinks`: where the lines of the audit log are sent. */
import { z } from 'zod'
import { checkUrl, complain, seconds } from './values.ts'

const shared = {
  name: z
    .string()
    .regex(/^[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?$/, {
      error: 'expected 32 lower-case letters, digits and hyphens at most, with a letter or digit at both ends',
    })
    .optional()
    .describe('Names it in metrics and logs, and the file that keeps its position. Absent: its kind.'),
  format: z
    .enum(['native', 'ocsf', 'ecs'])
    .default('native')
    .describe('Shape of each event: the line as it is, OCSF 1.8, or the Elastic Common Schema.'),
}

const timeoutSeconds = seconds(0.1, 300)
  .prefault(10)
  .describe('For one exchange to end, or for the receiver to take what was written.')
const unsafePlainHttp = z
  .boolean()
  .default(false)
  .describe('Accepts an `http:` URL: whoever sits between reads the log, and can take it away unseen.')

const otlp = z
  .strictObject({
    kind: z.literal('otlp'),
    ...shared,
    url: z.string().min(1).describe('The whole URL, such as `https://collector.example/v1/logs`.'),
    authorizationFile: z.string().min(1).optional().describe('File with the value of the `authorization` header.'),
    timeoutSeconds,
    unsafePlainHttp,
  })
  .describe('OpenTelemetry logs over HTTP, in JSON.')

const webhook = z
  .strictObject({
    kind: z.literal('webhook'),
    ...shared,
    url: z.string().min(1).describe('Where events are posted.'),
    secretFile: z
      .string()
      .min(1)
      .describe('File with the secret that signs: `whsec_` and base64, or any 32 characters.'),
    timeoutSeconds,
    unsafePlainHttp,
  })
  .describe('Signed posts, by HMAC-SHA256.')

const syslog = z
  .strictObject({
    kind: z.literal('syslog'),
    ...shared,
    address: z.string().min(1).max(300).describe('`host:port` of the receiver, such as `siem.example:6514`.'),
    tls: z.boolean().default(true).describe('TLS, with the name of the host checked.'),
    caFile: z.string().min(1).optional().describe("Certificate authorities in PEM, instead of the system's."),
    timeoutSeconds,
  })
  .describe('RFC 5424 over TCP, with octet counting.')

const stdout = z
  .strictObject({ kind: z.literal('stdout'), ...shared })
  .describe('One JSON object a line on standard output.')

/** `host:port` or `[v6]:port`; undefined for anything else. */
export function parseHostPort(text: string): { readonly host: string; readonly port: number } | undefined {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._-]+)):(\d{1,5})$/.exec(text)
  const host = match?.[1] ?? match?.[2]
  const port = Number(match?.[3])
  return host === undefined || port < 1 || port > 65_535 ? undefined : { host, port }
}

const sink = z
  .discriminatedUnion('kind', [otlp, syslog, webhook, stdout])
  .superRefine((entry, context) => {
    if (entry.kind === 'syslog') {
      if (parseHostPort(entry.address) === undefined)
        complain(context, 'expected `host:port`, with an IPv6 address in brackets', undefined, ['address'])
      if (entry.caFile !== undefined && !entry.tls)
        complain(context, '`caFile` is of no use without `tls`', undefined, ['caFile'])
    } else if (entry.kind !== 'stdout') {
      const fault = checkUrl(entry.url, entry.unsafePlainHttp)
      if (fault !== undefined) complain(context, fault.message, fault.hint, ['url'])
    }
  })
  .transform((entry) => ({ ...entry, name: entry.name ?? entry.kind }))

/** `audit.sinks` of the configuration file. */
export const auditSinks = z
  .array(sink)
  .max(16)
  .default([])
  .superRefine((sinks, context) => {
    // The name under which alerts keep their place.
    const seen = new Set(['alerts'])
    for (const [index, { name, kind }] of sinks.entries()) {
      if (seen.has(name)) complain(context, `two sinks are called \`${name}\``, undefined, [index, 'name'])
      seen.add(name)
      if (kind === 'stdout' && sinks.findIndex((other) => other.kind === 'stdout') !== index)
        complain(context, 'there is one standard output, so one sink writes to it', undefined, [index, 'kind'])
    }
  })
  .describe('Where lines are sent, each at its own pace: one that is slow or down catches up from the files.')
