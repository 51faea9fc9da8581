/** Audit lines for spreadsheets. */
import { visibleLine } from '../../visible-text.ts'
import type { AuditLine } from '../schema.ts'

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

/** A row, or with `undefined` the heading. A cell that a spreadsheet would take for a formula is quoted as text. */
export function csvLine(line: AuditLine | undefined): string {
  if (line === undefined) return COLUMNS.join(',')
  const values: Readonly<Record<string, unknown>> = line
  return COLUMNS.map((column) => csvCell(values[column])).join(',')
}

/**
 * What a spreadsheet may take for the beginning of a formula, also in full width: at the start of a cell, and behind what some of them end a cell at, whatever the comma and the quotes say.
 * @see OWASP, "CSV Injection"
 */
const FORMULA = /(^|[,;|"])(\s*)(?=[=+\-@\uff1d\uff0b\uff0d\uff20])/g

function csvCell(value: unknown): string {
  if (value === undefined) return ''
  if (typeof value === 'number') return String(value)
  const text = Array.isArray(value) ? value.join(' ') : typeof value === 'string' ? value : JSON.stringify(value)
  const safe = visibleLine(text).replace(FORMULA, "$1$2'")
  return /[",;|]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe
}
