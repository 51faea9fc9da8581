/** Audit lines of every kind, with every field that each can hold, as the log itself writes them. */
import { ALL_REASONS, CLOSE_REASONS } from '../../../../proxy/reasons.ts'
import { parseLine } from '../../../../proxy/audit/match.ts'
import { formatEntry, type LogEntry } from '../../../../proxy/audit/line.ts'
import type { AuditLine } from '../../../../proxy/audit/schema.ts'
import { decision } from '../support.ts'

/** What an attacker may have put into a text. */
export const HOSTILE = 'a"b\\c\n\u2028<script>é\u0000\x1b[31m'

const common = {
  request_id: 'r1',
  tenant: 'acme',
  sandbox: 'sbx_1',
  token_id: 't1',
  issuer: 'https://host.example',
  key_id: 'k1',
  requested: HOSTILE,
  host: 'api.example.com',
  port: 443,
  client: '[2001:db8::1]:50000',
} as const

const entries: readonly LogEntry[] = [
  ...(['connect', 'http', 'socks5'] as const).flatMap((dialect): LogEntry[] => [
    decision({ dialect }),
    decision({ dialect, host: '203.0.113.9', requested: HOSTILE }),
    decision({ dialect, host: '[2001:db8::9]', client: 'unix', resolved: undefined, dialled: undefined }),
    decision({
      dialect,
      decision: 'deny',
      effective: 'allow',
      reason: 'host_not_allowed',
      layer: 'tenant',
      rule: HOSTILE,
    }),
    ...ALL_REASONS.map((reason) =>
      decision({ dialect, decision: 'deny', effective: 'deny', reason, dialled: undefined }),
    ),
    decision({ dialect, reason: 'connect_refused', dialled: undefined }),
    decision({ dialect, reason: 'dns_failed', resolved: [], dialled: undefined, host: undefined, port: undefined }),
    ...CLOSE_REASONS.map((close_reason): LogEntry => ({
      kind: 'close',
      close_reason,
      ...common,
      dialect,
      sni: 'api.example.com',
      bytes_in: 10,
      bytes_out: 20,
      duration_ms: 1.5,
    })),
  ]),
  ...ALL_REASONS.filter((reason) => reason.startsWith('token_')).map((reason): LogEntry => ({
    kind: 'auth',
    decision: 'deny',
    effective: 'deny',
    reason,
    dialect: 'connect',
    client: '127.0.0.1:5',
  })),
  { kind: 'auth', decision: 'deny', effective: 'deny', reason: 'token_expired', ...common },
  { kind: 'admin', action: 'reload', policy_version: 'v2' },
  { kind: 'admin', action: 'gap', lost: 7, detail: HOSTILE },
  { kind: 'admin', action: 'start', segment: 1, previous: 'unclean', torn_bytes: 3, detail: 'x' },
]

/** Each with its text. */
export const LINES: readonly { readonly line: AuditLine; readonly text: string }[] = entries.map((entry, index) => {
  const text = `${formatEntry(entry, index + 1, 1_767_225_600_123 + index, '"gw"')},"prev":"${'0'.repeat(64)}"}`
  const line = parseLine(text)
  if (line === undefined) throw new Error(`no line: ${text}`)
  return { line, text }
})
