/**
 * Sends lines as OpenTelemetry logs, over HTTP in JSON.
 * @see https://opentelemetry.io/docs/specs/otlp/#otlphttp
 */
import { z } from 'zod'
import { formatEvent, type EventFormat } from '../formats/format.ts'
import { otlpAttributes, otlpTime } from '../formats/otlp-attributes.ts'
import type { AuditLine } from '../schema.ts'
import { post } from './post.ts'
import type { AuditRecord } from './reader.ts'
import { readSecret } from './secret-file.ts'
import { DeliveryFault, type Sink } from './sink.ts'

/** Settings of {@link createOtlpSink}. */
export interface OtlpSettings {
  /** The whole URL, with `/v1/logs`. */
  readonly url: string
  /** Of the body of each record. */
  readonly format: EventFormat
  /** File whose line is sent as the `authorization` header. */
  readonly authorizationFile?: string | undefined
  readonly timeoutMs: number
  readonly instance: string
  readonly version: string
}

const answerSchema = z.object({
  partialSuccess: z.object({ rejectedLogRecords: z.coerce.number().optional() }).optional(),
})

/** Fields that are attributes of a record. */
const ATTRIBUTES = [
  'seq',
  'host',
  'port',
  'request_id',
  'tenant',
  'sandbox',
  'token_id',
  'decision',
  'effective',
  'reason',
  'layer',
  'rule',
  'policy_version',
  'dialect',
  'client',
  'close_reason',
  'action',
] as const

/** Nothing is opened before the first lines are sent. */
export function createOtlpSink(settings: OtlpSettings): Sink {
  const { url, authorizationFile, timeoutMs } = settings
  return {
    send: async (records, signal) => {
      const headers = authorizationFile === undefined ? {} : { authorization: readSecret(authorizationFile) }
      const answer = await post({ url, headers, body: otlpBody(settings, records), timeoutMs, signal })
      const rejected = rejectedIn(answer)
      // The protocol forbids to send them all again; one by one it shows which they are.
      if (rejected > 0) throw new DeliveryFault(`the collector rejected ${rejected} records`, 'refused')
    },
    close: () => undefined,
  }
}

function otlpBody(
  { format, instance, version }: Pick<OtlpSettings, 'format' | 'instance' | 'version'>,
  records: readonly AuditRecord[],
): string {
  const logRecords = records.map(({ line, text }) => ({
    timeUnixNano: otlpTime(Date.parse(line.time)),
    observedTimeUnixNano: otlpTime(Date.now()),
    ...severityOf(line),
    eventName: `sallyport.${line.kind}`,
    body: { stringValue: formatEvent(format, line, text) },
    attributes: otlpAttributes(line, ATTRIBUTES),
  }))
  return JSON.stringify({
    resourceLogs: [
      {
        resource: {
          attributes: [
            { key: 'service.name', value: { stringValue: 'sallyport' } },
            { key: 'service.instance.id', value: { stringValue: instance } },
            { key: 'service.version', value: { stringValue: version } },
          ],
        },
        scopeLogs: [{ scope: { name: 'sallyport.audit' }, logRecords }],
      },
    ],
  })
}

function severityOf(line: AuditLine): { readonly severityNumber: number; readonly severityText: string } {
  const isRefusal = line.kind === 'auth' || (line.kind === 'decision' && line.effective === 'deny')
  const isGap = line.kind === 'admin' && line.action === 'gap'
  if (isGap) return { severityNumber: 17, severityText: 'ERROR' }
  return isRefusal ? { severityNumber: 13, severityText: 'WARN' } : { severityNumber: 9, severityText: 'INFO' }
}

/** A collector that answers with no JSON has taken everything, as its status says. */
function rejectedIn(answer: string): number {
  try {
    const parsed = answerSchema.safeParse(JSON.parse(answer))
    return parsed.success ? (parsed.data.partialSuccess?.rejectedLogRecords ?? 0) : 0
  } catch {
    return 0
  }
}
