/** What an audit line says, in few words. */
import type { AuditLine } from '../audit/schema.ts'
import { bytesText, spanText } from './format.ts'
import type { Outcome } from './parts/verdict.tsx'

/** A line about a request to go out that was refused. */
export type Refusal = Extract<AuditLine, { readonly kind: 'decision' }>

/** What became of it. `reported`: let out by a layer that only reports. */
export function outcomeOf(line: AuditLine): Outcome {
  switch (line.kind) {
    case 'auth':
      return 'credentials'
    case 'close':
      return 'closed'
    case 'admin':
      return 'operator'
    case 'decision':
      if (line.effective === 'deny') return 'refused'
      return line.decision === 'deny' ? 'reported' : 'let out'
  }
}

/** Where to; what was sent, where that could not be read as a destination. */
export function targetOf(line: AuditLine): string | undefined {
  if (line.host === undefined) return line.requested
  const host = line.host.includes(':') && !line.host.startsWith('[') ? `[${line.host}]` : line.host
  return line.port === undefined ? host : `${host}:${line.port}`
}

/** Why, or what else is to be told. */
export function detailOf(line: AuditLine): string {
  switch (line.kind) {
    case 'auth':
      return line.reason
    case 'close':
      return `${line.close_reason}, ${spanText(line.duration_ms)}, ${bytesText(line.bytes_in)} in, ${bytesText(line.bytes_out)} out`
    case 'admin':
      return [line.action, line.author && `by ${line.author}`, line.detail].filter(Boolean).join(', ')
    case 'decision': {
      const why = [line.reason, line.layer && `by the ${line.layer}`, line.rule && `rule ${line.rule}`]
      const whole = why.filter(Boolean).join(', ')
      return whole === '' ? (line.dialled ?? '') : whole
    }
  }
}

/** Everything in which somebody may look for a text, in small letters. */
export function searchTextOf(line: AuditLine): string {
  return `${targetOf(line) ?? ''} ${line.requested ?? ''} ${line.tenant ?? ''} ${line.sandbox ?? ''} ${detailOf(line)} ${line.client ?? ''} ${line.request_id ?? ''}`.toLowerCase()
}

/** Whether it is a refusal that the policy of its tenant could lift. */
export function isLiftable(line: AuditLine): line is Refusal & { readonly tenant: string; readonly host: string } {
  return line.kind === 'decision' && line.decision === 'deny' && line.tenant !== undefined && line.host !== undefined
}
