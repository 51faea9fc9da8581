/** Audit lines for people. */
import type { AuditLine } from '../audit/schema.ts'
import { visibleLine } from '../visible-text.ts'

/** One line in short: when, what, whose, where to, why. */
export function describeLine(line: AuditLine): string {
  const who = [line.tenant, line.sandbox].filter((part) => part !== undefined).join('/')
  const where = line.host === undefined ? (line.requested ?? '') : `${line.host}:${line.port ?? ''}`
  const parts = [line.time, ...describeKind(line), where, who === '' ? '' : `for ${who}`]
  return visibleLine(parts.filter((part) => part !== '').join('  '))
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
