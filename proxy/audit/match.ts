/** Whether a line passes the filters, by its text: a text in a line can't hold an unescaped quote, so `"tenant":"acme"` is always that field. */
import { z } from 'zod'
import { quoteField } from './escape.ts'
import type { AuditLine } from './schema.ts'

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
 * The line as data, or undefined when it is none; only as far as readers rely on it, since the log may be older or newer than this code. Every version
 * writes printable ASCII: what holds more is not the log's, and may be meant for a terminal.
 */
export function parseLine(text: string): AuditLine | undefined {
  if (!/^\{[ -~]*\}\n?$/.test(text)) return undefined
  try {
    const value: unknown = JSON.parse(text)
    return lineShape.safeParse(value).success ? (value as AuditLine) : undefined
  } catch {
    return undefined
  }
}

const lineShape = z.object({
  seq: z.int(),
  time: z.string(),
  instance: z.string(),
  kind: z.enum(['auth', 'decision', 'close', 'admin']),
})

function isBetween(text: string, sinceMs: number, untilMs: number): boolean {
  const timeMs = Date.parse(timeOf(text))
  return timeMs >= sinceMs && timeMs < untilMs
}
