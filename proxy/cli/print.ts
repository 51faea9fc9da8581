/** How commands print data: aligned columns for people, JSON for programs. */
import { visibleLine } from '../visible-text.ts'

/** Rows in aligned columns, two spaces apart; the first row is the heading. What is in a cell makes no other row. */
export function table(texts: readonly (readonly string[])[]): string {
  const rows = texts.map((row) => row.map(visibleLine))
  const widths: number[] = []
  for (const row of rows)
    for (const [index, cell] of row.entries()) widths[index] = Math.max(widths[index] ?? 0, cell.length)
  return rows
    .map((row) =>
      row
        .map((cell, index) => cell.padEnd(widths[index] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}

/** An instant in UTC, such as `2026-01-31T12:00:00Z`; `never` for an endless one. */
export function instant(ms: number): string {
  return Number.isFinite(ms) ? new Date(ms).toISOString().replace(/\.\d{3}Z$/, 'Z') : 'never'
}

/** How long from now (or ago), in one unit: `in 12 min`, `3 h ago`. */
export function fromNow(ms: number, nowMs: number): string {
  const seconds = Math.round((ms - nowMs) / 1000)
  const size = Math.abs(seconds)
  const [amount, unit] =
    size < 120
      ? [size, 's']
      : size < 7200
        ? [Math.round(size / 60), 'min']
        : size < 172_800
          ? [Math.round(size / 3600), 'h']
          : [Math.round(size / 86_400), 'd']
  return seconds >= 0 ? `in ${amount} ${unit}` : `${amount} ${unit} ago`
}

/** Indented JSON. */
export function json(value: unknown): string {
  return JSON.stringify(value, null, 2)
}
