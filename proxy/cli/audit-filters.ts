/** The filters of the audit commands, as options. */
import type { Option } from 'commander'
import type { AuditFilters } from '../audit/query.ts'
import { parseSeconds } from '../config/values.ts'
import { ALL_REASONS } from '../reasons.ts'
import { option } from './command.ts'
import { UsageError } from './terminal.ts'

/** What {@link filterOptions} reads. */
export interface FilterOptions {
  readonly kind?: string
  readonly decision?: string
  readonly effective?: string
  readonly reason?: string
  readonly host?: string
  readonly tenant?: string
  readonly sandbox?: string
  readonly requestId?: string
  readonly tokenId?: string
  readonly instance?: string
  readonly since?: string
  readonly until?: string
}

/** One option for each filter. */
export function filterOptions(): readonly Option[] {
  return [
    option('--kind <kind>', 'only this kind').choices(['auth', 'decision', 'close', 'admin']),
    option('--decision <decision>', 'what policy said').choices(['allow', 'deny']),
    option('--effective <decision>', 'what happened').choices(['allow', 'deny']),
    option('--reason <reason>', 'only this reason, such as `host_not_allowed`'),
    option('--host <host>', 'only this host, in canonical form'),
    option('--tenant <name>', 'only this tenant'),
    option('--sandbox <id>', 'only this sandbox'),
    option('--token-id <jti>', 'only this token'),
    option('--request-id <id>', 'only this request'),
    option('--instance <name>', 'only this gateway'),
    option('--since <time>', 'not before: an instant in UTC, or a time ago such as `10m`'),
    option('--until <time>', 'before: likewise'),
  ]
}

/** The filters that the options ask for. */
export function auditFilters(options: FilterOptions): AuditFilters {
  const { kind, decision, effective, reason, host, tenant, sandbox, instance, requestId, tokenId, since, until } =
    options
  if (reason !== undefined && !ALL_REASONS.some((known) => known === reason))
    throw new UsageError(
      `\`${reason.slice(0, 80)}\` is no reason; docs/errors.md lists them, such as \`host_not_allowed\``,
    )
  const filters = {
    kind,
    decision,
    effective,
    reason,
    host,
    tenant,
    sandbox,
    instance,
    request_id: requestId,
    token_id: tokenId,
    sinceMs: since === undefined ? undefined : readInstant(since),
    untilMs: until === undefined ? undefined : readInstant(until),
  }
  return Object.fromEntries(Object.entries(filters).filter(([, value]) => value !== undefined))
}

/** `10m` ago, or an instant such as `2026-01-31T12:00:00Z` or `2026-01-31`, in milliseconds since the epoch. */
export function readInstant(text: string): number {
  const seconds = parseSeconds(text)
  if (seconds !== undefined) return Date.now() - seconds * 1000
  const ms = /^\d{4}-\d{2}-\d{2}/.test(text) ? Date.parse(text) : Number.NaN
  if (!Number.isNaN(ms)) return ms
  throw new UsageError(`\`${text}\` is neither a time such as \`10m\` nor an instant such as \`2026-01-31T12:00:00Z\``)
}
