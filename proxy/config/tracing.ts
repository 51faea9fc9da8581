/** The `tracing` section: where a trace of each connection is sent, and of how many. */
import { z } from 'zod'
import { checkUrl, complain, seconds } from './values.ts'

/** `tracing` of the configuration file. */
export const tracingSection = z
  .strictObject({
    otlp: z
      .strictObject({
        url: z.string().min(1).describe('The whole URL, such as `https://collector.example/v1/traces`.'),
        authorizationFile: z.string().min(1).optional().describe('File with the value of the `authorization` header.'),
        timeoutSeconds: seconds(0.1, 300).prefault(10).describe('For one exchange to end.'),
        unsafePlainHttp: z
          .boolean()
          .default(false)
          .describe('Accepts an `http:` URL: whoever sits between reads whom tenants talk to.'),
      })
      .superRefine(({ url, unsafePlainHttp }, context) => {
        const fault = checkUrl(url, unsafePlainHttp)
        if (fault !== undefined) complain(context, fault.message, fault.hint, ['url'])
      })
      .optional()
      .describe('Spans go here, over HTTP in JSON. Absent: nothing is traced.'),
    ratio: z
      .number()
      .min(0)
      .max(1)
      .default(1)
      .describe('Share of connections that are traced, by their trace identifiers.'),
    maxPerSecond: z
      .int()
      .min(1)
      .max(100_000)
      .default(100)
      .describe('Traces begun in a second at most, since clients can choose identifiers.'),
  })
  .prefault({})
  .describe('OpenTelemetry traces; see [tracing](tracing.md). Read at the start, not at a reload.')
