/** Turns an entry into the bytes of its line: fixed order of fields, ASCII, one line whatever the texts hold. Hand-made, since it runs for every tunnel. */
import { quoteField } from './escape.ts'
import { Recent } from './recent.ts'
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
  const head = `{"seq":${seq},"time":"${isoTime(timeMs)}","instance":${quotedInstance},"kind":"${entry.kind}"`
  const asked = text('request_id', entry.request_id)
  const who = formatCaller(entry)
  const where = formatTarget(entry)
  switch (entry.kind) {
    case 'decision':
      return `${head}${asked}${formatDecision(entry)}${who}${where}${formatOutcome(entry)}`
    case 'close':
      return `${head}${asked}${text('policy_version', entry.policy_version)}${who}${where}${formatClose(entry)}`
    case 'auth': {
      const verdict =
        word('decision', entry.decision) + word('effective', entry.effective) + text('reason', entry.reason)
      return `${head}${asked}${verdict}${who}${where}${text('client', entry.client)}`
    }
    case 'admin': {
      const version = text('policy_version', entry.policy_version)
      return `${head}${word('action', entry.action)}${asked}${version}${who}${where}${formatAdmin(entry)}`
    }
  }
}

function formatDecision(entry: DecisionEntry): string {
  return (
    word('decision', entry.decision) +
    word('effective', entry.effective) +
    text('reason', entry.reason) +
    word('layer', entry.layer) +
    text('rule', entry.rule) +
    text('policy_version', entry.policy_version)
  )
}

/** The same few callers and targets come again and again: what was made of them is kept. */
const callers = new Recent<Pick<LogEntry, 'tenant' | 'sandbox' | 'token_id' | 'issuer' | 'key_id'>>()
const words = new Recent<string>()
const targets = new Recent<Pick<LogEntry, 'dialect' | 'requested' | 'host' | 'port'>>()

function formatCaller(entry: LogEntry): string {
  const { tenant, sandbox, token_id: tokenId, issuer, key_id: keyId } = entry
  const known = callers.get(tokenId)
  if (
    known !== undefined &&
    known.of.tenant === tenant &&
    known.of.sandbox === sandbox &&
    known.of.issuer === issuer &&
    known.of.key_id === keyId
  )
    return known.text
  const caller =
    text('tenant', tenant) +
    text('sandbox', sandbox) +
    text('token_id', tokenId) +
    text('issuer', issuer) +
    text('key_id', keyId)
  callers.set(tokenId, { tenant, sandbox, issuer, key_id: keyId }, caller)
  return caller
}

function formatTarget(entry: LogEntry): string {
  const { dialect, requested, host, port } = entry
  const known = targets.get(requested)
  if (known !== undefined && known.of.dialect === dialect && known.of.host === host && known.of.port === port)
    return known.text
  const target = word('dialect', dialect) + text('requested', requested) + text('host', host) + number('port', port)
  targets.set(requested, { dialect, host, port }, target)
  return target
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
    word('close_reason', entry.close_reason)
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

/** A word of a closed set, as good as any other text: what was made of it is kept. */
function word(name: string, value: string | undefined): string {
  if (value === undefined) return ''
  const known = words.get(name)
  if (known !== undefined && known.of === value) return known.text
  const field = text(name, value)
  words.set(name, value, field)
  return field
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
