/** Turns an entry into the bytes of its line: fixed order of fields, ASCII, one line whatever the texts hold. Hand-made, since it runs for every tunnel. */
import { quoteField } from './escape.ts'
import type { AdminEntry, AuditEntry, CloseEntry, DecisionEntry } from './record.ts'

/** What the log itself adds to its own `admin` lines. */
export interface LogOwnEntry extends AdminEntry {
  /** Number of the file. */
  readonly segment?: number
  /** On the first line of a file: how the one before it ended. */
  readonly previous?: PreviousEnd
  /** On the first line of a file: bytes of an unfinished line at the end of the one before it. */
  readonly torn_bytes?: number
  /** Why a checkpoint was written. */
  readonly cause?: CheckpointCause
}

/** How the file before ended: `stop` and `segment` with a checkpoint of that cause, `unclean` without the `stop` of its run, `abandoned` by the run that goes on. */
export type PreviousEnd = 'none' | 'stop' | 'segment' | 'unclean' | 'abandoned' | 'missing'

/** `segment` and `stop` close a file. */
export type CheckpointCause = 'start' | 'lines' | 'interval' | 'segment' | 'stop'

/** Anything that becomes a line. */
export type LogEntry = AuditEntry | LogOwnEntry

/** The line but for its chain: an open JSON object. */
export function formatEntry(entry: LogEntry, seq: number, timeMs: number, quotedInstance: string): string {
  let line = `{"seq":${seq},"time":"${isoTime(timeMs)}","instance":${quotedInstance},"kind":"${entry.kind}"`
  if (entry.kind === 'admin') line += text('action', entry.action)
  line += text('request_id', entry.request_id)
  if (entry.kind === 'decision') line += formatDecision(entry)
  else if (entry.kind === 'auth')
    line += text('decision', entry.decision) + text('effective', entry.effective) + text('reason', entry.reason)
  else line += text('policy_version', entry.policy_version)
  line += formatCaller(entry)
  if (entry.kind === 'decision') line += formatOutcome(entry)
  else if (entry.kind === 'auth') line += text('client', entry.client)
  else if (entry.kind === 'close') line += formatClose(entry)
  else line += formatAdmin(entry)
  return line
}

function formatDecision(entry: DecisionEntry): string {
  return (
    text('decision', entry.decision) +
    text('effective', entry.effective) +
    text('reason', entry.reason) +
    text('layer', entry.layer) +
    text('rule', entry.rule) +
    text('policy_version', entry.policy_version)
  )
}

function formatCaller(entry: LogEntry): string {
  return (
    text('tenant', entry.tenant) +
    text('sandbox', entry.sandbox) +
    text('token_id', entry.token_id) +
    text('issuer', entry.issuer) +
    text('key_id', entry.key_id) +
    text('dialect', entry.dialect) +
    text('requested', entry.requested) +
    text('host', entry.host) +
    number('port', entry.port)
  )
}

function formatOutcome(entry: DecisionEntry): string {
  return (
    list('resolved', entry.resolved) +
    text('dialled', entry.dialled) +
    text('client', entry.client) +
    number('dns_ms', entry.dns_ms) +
    number('connect_ms', entry.connect_ms)
  )
}

function formatClose(entry: CloseEntry): string {
  return (
    text('client', entry.client) +
    text('sni', entry.sni) +
    `,"bytes_in":${safeNumber(entry.bytes_in)},"bytes_out":${safeNumber(entry.bytes_out)},"duration_ms":${safeNumber(entry.duration_ms)}` +
    text('close_reason', entry.close_reason)
  )
}

function formatAdmin(entry: AdminEntry | LogOwnEntry): string {
  const common =
    text('client', entry.client) +
    text('author', entry.author) +
    text('detail', entry.detail) +
    list('added', entry.added) +
    list('removed', entry.removed) +
    number('lost', entry.lost)
  if (!('segment' in entry)) return common
  return (
    common +
    number('segment', entry.segment) +
    text('previous', entry.previous) +
    number('torn_bytes', entry.torn_bytes) +
    text('cause', entry.cause)
  )
}

function text(name: string, value: string | undefined): string {
  return value === undefined ? '' : `,"${name}":${quoteField(value)}`
}

function number(name: string, value: number | undefined): string {
  return value === undefined ? '' : `,"${name}":${safeNumber(value)}`
}

/** Most addresses shown; a resolver gives fewer, but no entry may make a line of any length. */
const MAX_LISTED = 32

function list(name: string, values: readonly string[] | undefined): string {
  return values === undefined ? '' : `,"${name}":[${values.slice(0, MAX_LISTED).map(quoteField).join(',')}]`
}

/** JSON has no `NaN`; times keep three decimals. */
function safeNumber(value: number): number {
  if (Number.isSafeInteger(value) && value >= 0) return value
  return value > 0 && value < Number.MAX_SAFE_INTEGER ? Math.round(value * 1000) / 1000 : 0
}

let lastTimeMs = Number.NaN
let lastTime = ''

/** Many lines share a millisecond. */
function isoTime(timeMs: number): string {
  const whole = Math.floor(timeMs)
  if (whole !== lastTimeMs) {
    lastTime = new Date(whole).toISOString()
    lastTimeMs = whole
  }
  return lastTime
}
