/** Audit lines for people and for spreadsheets. */
import type { AuditLine } from '../audit/schema.ts'

/** Columns of the CSV export. */
const COLUMNS = [
  'seq',
  'time',
  'instance',
  'kind',
  'request_id',
  'decision',
  'effective',
  'reason',
  'layer',
  'rule',
  'policy_version',
  'tenant',
  'sandbox',
  'token_id',
  'issuer',
  'key_id',
  'dialect',
  'requested',
  'host',
  'port',
  'resolved',
  'dialled',
  'client',
  'sni',
  'bytes_in',
  'bytes_out',
  'duration_ms',
  'dns_ms',
  'connect_ms',
  'close_reason',
  'action',
  'detail',
] as const

/** One line in short: when, what, whose, where to, why. */
export function describeLine(line: AuditLine): string {
  const who = [line.tenant, line.sandbox].filter((part) => part !== undefined).join('/')
  const where = line.host === undefined ? (line.requested ?? '') : `${line.host}:${line.port ?? ''}`
  return [line.time, ...describeKind(line), where, who === '' ? '' : `for ${who}`]
    .filter((part) => part !== '')
    .join('  ')
}

/** A row, or with `undefined` the heading. A cell that a spreadsheet would take for a formula is quoted as text. */
export function csvLine(line: AuditLine | undefined): string {
  if (line === undefined) return COLUMNS.join(',')
  const values: Readonly<Record<string, unknown>> = line
  return COLUMNS.map((column) => csvCell(values[column])).join(',')
}

function describeKind(line: AuditLine): readonly string[] {
  switch (line.kind) {
    case 'auth':
      return ['REFUSED', line.reason]
    case 'decision': {
      const word = line.effective === 'deny' ? 'REFUSED' : line.decision === 'deny' ? 'REPORTED' : 'allowed'
      const { reason, layer, rule } = line
      // Without a layer, the entry is what allowed it; the reason is something else.
      if (reason !== undefined && layer === undefined && rule !== undefined)
        return [word, word === 'REFUSED' ? `${reason}, though allowed by ${rule}` : `by ${rule}, but ${reason}`]
      const why = [
        reason,
        layer === undefined ? undefined : `at ${layer}`,
        rule === undefined ? undefined : `by ${rule}`,
      ]
      return [word, why.filter((part) => part !== undefined).join(' ')]
    }
    case 'close':
      return ['closed', `${line.close_reason}, ${line.bytes_in} B in, ${line.bytes_out} B out, ${line.duration_ms} ms`]
    case 'admin':
      return [line.action, line.detail ?? '']
  }
}

function csvCell(value: unknown): string {
  if (value === undefined) return ''
  const text = Array.isArray(value) ? value.join(' ') : typeof value === 'string' ? value : JSON.stringify(value)
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe
}
