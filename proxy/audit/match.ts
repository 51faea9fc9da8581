/** Whether a line passes the filters, by its text: a text in a line can't hold an unescaped quote, so `"tenant":"acme"` is always that field. */
import { MAX_FIELD_CHARACTERS, quoteField } from './escape.ts'
import { type AuditLine, fieldTypes } from './schema.ts'

/** All given filters must hold; texts are compared whole. */
export interface AuditFilters {
  readonly instance?: string | undefined
  readonly kind?: string | undefined
  readonly tenant?: string | undefined
  readonly sandbox?: string | undefined
  readonly host?: string | undefined
  readonly reason?: string | undefined
  readonly decision?: string | undefined
  readonly effective?: string | undefined
  readonly request_id?: string | undefined
  readonly token_id?: string | undefined
  /** Inclusive, milliseconds since the epoch. */
  readonly sinceMs?: number | undefined
  /** Exclusive, milliseconds since the epoch. */
  readonly untilMs?: number | undefined
}

const TEXTS = [
  'instance',
  'kind',
  'tenant',
  'sandbox',
  'host',
  'reason',
  'decision',
  'effective',
  'request_id',
  'token_id',
] as const
const TIME = '"time":"'
const TIME_LENGTH = '2026-01-01T00:00:00.000Z'.length

/** A test for the text of a line. */
export function compileFilters(filters: AuditFilters): (text: string) => boolean {
  const needles = TEXTS.flatMap((name) => {
    const wanted = filters[name]
    return wanted === undefined ? [] : [`"${name}":${quoteField(wanted)}`]
  })
  const { sinceMs, untilMs } = filters
  if (sinceMs === undefined && untilMs === undefined) return (text) => needles.every((needle) => text.includes(needle))
  return (text) =>
    isBetween(text, sinceMs ?? -Infinity, untilMs ?? Infinity) && needles.every((needle) => text.includes(needle))
}

/** Whether an index helps: without a filter every line is read anyhow. */
export function isLookUp({ instance: _instance, ...filters }: AuditFilters): boolean {
  return Object.values(filters).some((value) => value !== undefined)
}

/** When the line says that it happened; empty when it doesn't. */
export function timeOf(text: string): string {
  const at = text.indexOf(TIME)
  return at === -1 ? '' : text.slice(at + TIME.length, at + TIME.length + TIME_LENGTH)
}

/**
 * The line as data, or undefined when it is none. The log may be older or newer than this code, so fields may be missing, and there may be others. But every version writes
 * printable ASCII, and of each field a text, a number or a list of texts, as the schema says of those that are known, and no longer than it says: readers rely on that.
 */
export function parseLine(text: string): AuditLine | undefined {
  if (!/^\{[ -~]*\}\n?$/.test(text)) return undefined
  try {
    const value: unknown = JSON.parse(text)
    return isLine(value) ? value : undefined
  } catch {
    return undefined
  }
}

const KINDS = new Set<unknown>(['auth', 'decision', 'close', 'admin'])
const MOMENT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/
/** Of addresses and entries 32 are shown. */
const MAX_LIST = 256
const TYPES = fieldTypes()

function isLine(value: unknown): value is AuditLine {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false
  for (const [name, field] of Object.entries(value)) {
    const type = typeOf(field)
    if (type === undefined || (TYPES.get(name) ?? type) !== type) return false
  }
  return (
    'seq' in value &&
    Number.isSafeInteger(value.seq) &&
    'time' in value &&
    MOMENT.test(String(value.time)) &&
    'instance' in value &&
    'kind' in value &&
    KINDS.has(value.kind)
  )
}

function typeOf(field: unknown): 'text' | 'number' | 'list' | 'other' | undefined {
  if (typeof field === 'string') return field.length <= MAX_FIELD_CHARACTERS ? 'text' : undefined
  if (typeof field === 'number') return Number.isFinite(field) ? 'number' : undefined
  if (typeof field === 'boolean' || field === null) return 'other'
  const isList = Array.isArray(field) && field.length <= MAX_LIST && field.every((one) => typeOf(one) === 'text')
  return isList ? 'list' : undefined
}

function isBetween(text: string, sinceMs: number, untilMs: number): boolean {
  const timeMs = Date.parse(timeOf(text))
  return timeMs >= sinceMs && timeMs < untilMs
}
