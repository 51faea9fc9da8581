/** The spans of one connection, made of what its audit lines say and of nothing else: whatever is kept out of the log is kept out of a trace. */
import { formatEntry } from '../audit/line.ts'
import { type OtlpAttribute, otlpAttributes, otlpTime } from '../audit/formats/otlp-attributes.ts'
import type { AuthEntry, CloseEntry, DecisionEntry } from '../audit/record.ts'

/** What happened from one moment to another. Times are milliseconds since the epoch. */
export interface Span {
  readonly traceId: string
  readonly spanId: string
  readonly parentId: string | undefined
  /** The parent is the client's. */
  readonly isRemoteParent: boolean
  readonly name: SpanName
  readonly startMs: number
  readonly endMs: number
  readonly attributes: readonly OtlpAttribute[]
  /** Why it failed, by fault of the gateway or of the far end; a refusal by policy is no failure. */
  readonly fault?: string | undefined
}

/** `connection` is the whole of it, the others are its parts. */
export type SpanName = 'connection' | 'identity' | 'policy' | 'dns' | 'connect' | 'relay'

/** Of OTLP: who begins, who serves, neither. */
const KINDS: Readonly<Record<SpanName, number>> = {
  connection: 2,
  identity: 1,
  policy: 1,
  dns: 3,
  connect: 3,
  relay: 1,
}
/** W3C's sampled flag, and that it is known whether the parent is remote. */
const SAMPLED = 0x101
const REMOTE_PARENT = 0x200
const STATUS_ERROR = 2

const DECIDED = [
  'request_id',
  'dialect',
  'tenant',
  'sandbox',
  'token_id',
  'issuer',
  'host',
  'port',
  'client',
  'decision',
  'effective',
  'reason',
  'layer',
  'rule',
  'policy_version',
] as const
const DIALLED = ['host', 'port', 'dialled'] as const
const RESOLVED = ['host', 'resolved'] as const
const CLOSED = ['close_reason', 'sni', 'bytes_in', 'bytes_out'] as const

/** Which fields of a line each span shows. */
export const SHOWN = { connection: DECIDED, dns: RESOLVED, connect: DIALLED, relay: CLOSED } as const

/** The attributes that a line has for a span: through the very text of the line, so redacted, escaped and cut as it is. */
export function attributesOf(
  entry: AuthEntry | DecisionEntry | CloseEntry,
): (names: readonly string[]) => readonly OtlpAttribute[] {
  const line = JSON.parse(`${formatEntry(entry, 0, 0, '""')}}`) as Readonly<Record<string, unknown>>
  return (names) => otlpAttributes(line, names)
}

/** As OTLP has it in JSON. @see https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding */
export function spanText(span: Span): string {
  return JSON.stringify({
    traceId: span.traceId,
    spanId: span.spanId,
    ...(span.parentId !== undefined && { parentSpanId: span.parentId }),
    flags: span.isRemoteParent ? SAMPLED | REMOTE_PARENT : SAMPLED,
    name: span.name,
    kind: KINDS[span.name],
    startTimeUnixNano: otlpTime(span.startMs),
    endTimeUnixNano: otlpTime(Math.max(span.startMs, span.endMs)),
    attributes: span.attributes,
    status: span.fault === undefined ? {} : { code: STATUS_ERROR, message: span.fault },
  })
}
