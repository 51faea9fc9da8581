/**
 * Sends lines as syslog messages over TCP or TLS.
 * @see RFC 5424 (the message), RFC 6587 section 3.4.1 (octet counting), RFC 5425 (TLS)
 */
import { formatEvent, type EventFormat } from '../formats/format.ts'
import type { AuditLine } from '../schema.ts'
import type { AuditRecord } from './reader.ts'
import type { Sink } from './sink.ts'
import { type SyslogAddress, SyslogConnection } from './syslog-connection.ts'

/** Settings of {@link createSyslogSink}. */
export interface SyslogSettings extends SyslogAddress {
  readonly format: EventFormat
  readonly instance: string
  /** How long the connection must hold after a line before the line counts as taken. Default 5 s. */
  readonly settleMs?: number
}

/** "log audit". */
const FACILITY = 13
const SEVERITY = { error: 3, warning: 4, notice: 5, informational: 6 } as const
/** RFC 5424 section 7.3.1: it starts again after this. */
const MAX_SEQUENCE_ID = 2_147_483_647

/** Connects with the first lines. Syslog acknowledges nothing, so lines count as taken once the connection has held for a while after them. */
export function createSyslogSink({ format, instance, settleMs = 5000, ...address }: SyslogSettings): Sink {
  const connection = new SyslogConnection(address)
  return {
    send: (records, signal) =>
      connection.write(records.map((record) => framed(syslogMessage(record, format, instance))).join(''), signal),
    settling: { afterMs: settleMs, hasBroken: () => connection.hasBroken() },
    close: () => connection.close(),
  }
}

/** `<PRI>1 TIME HOST APP PROCID MSGID SD MSG`, in printable ASCII. */
function syslogMessage({ line, text }: AuditRecord, format: EventFormat, instance: string): string {
  const priority = FACILITY * 8 + severityOf(line)
  const sequenceId = ((line.seq - 1) % MAX_SEQUENCE_ID) + 1
  const header = `<${priority}>1 ${line.time} ${instance} sallyport - ${line.kind} [meta sequenceId="${sequenceId}"]`
  return `${header} ${formatEvent(format, line, text)}`
}

function framed(message: string): string {
  return `${message.length} ${message}`
}

function severityOf(line: AuditLine): number {
  if (line.kind === 'admin') return line.action === 'gap' ? SEVERITY.error : SEVERITY.notice
  return line.kind === 'auth' || (line.kind === 'decision' && line.effective === 'deny')
    ? SEVERITY.warning
    : SEVERITY.informational
}
