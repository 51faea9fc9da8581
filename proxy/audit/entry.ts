/** What the outcome of a connection looks like as an audit line. */
import { hostText } from '../../policies/index.ts'
import type { CloseReason } from '../reasons.ts'
import type { Authorized, ConnectionRequest, Progress, Refusal } from '../request.ts'
import { escapeRequested } from './escape.ts'
import type { AuthEntry, CloseEntry, DecisionEntry } from './record.ts'

/** The line for a refusal, or for a connection that was let out to `dialled`. Refused credentials make an `auth` line, all else a `decision`. */
export function outcomeEntry(
  request: ConnectionRequest,
  outcome: Authorized | Refusal,
  dialled?: { readonly address: string; readonly connectMs?: number | undefined },
): AuthEntry | DecisionEntry {
  const common = commonFields(request, outcome)
  if (!outcome.ok && outcome.reason.startsWith('token_')) {
    return { ...common, kind: 'auth', decision: 'deny', effective: 'deny', reason: outcome.reason }
  }
  const { verdict } = outcome
  const refusedBy = verdict?.effective === 'allow' ? verdict.report : verdict
  const letOut = verdict?.effective === 'allow' && (outcome.ok || isFaultOfTheDestination(outcome))
  return {
    ...common,
    kind: 'decision',
    decision: letOut ? verdict.decision : 'deny',
    effective: letOut ? 'allow' : 'deny',
    reason: outcome.ok ? refusedBy?.reason : outcome.reason,
    layer: refusedBy?.layer,
    rule: refusedBy ? refusedBy.rule : verdict?.rule,
    policy_version: outcome.policyVersion,
    resolved: outcome.resolved,
    dialled: dialled?.address,
    dns_ms: rounded(outcome.dnsMs),
    connect_ms: rounded(dialled?.connectMs ?? outcome.connectMs),
  }
}

/** The line for the end of what was let out. */
export function closeEntry(
  request: ConnectionRequest,
  outcome: Progress,
  end: {
    readonly closeReason: CloseReason
    readonly bytesIn: number
    readonly bytesOut: number
    readonly durationMs: number
    readonly sni?: string | undefined
  },
): CloseEntry {
  return {
    ...commonFields(request, outcome),
    kind: 'close',
    close_reason: end.closeReason,
    policy_version: outcome.policyVersion,
    sni: end.sni,
    bytes_in: end.bytesIn,
    bytes_out: end.bytesOut,
    duration_ms: rounded(end.durationMs) ?? 0,
  }
}

function commonFields(request: ConnectionRequest, { identity, destination }: Progress) {
  const { client } = request
  return {
    request_id: request.requestId,
    tenant: identity?.tenant,
    sandbox: identity?.sandbox,
    token_id: identity?.tokenId,
    issuer: identity?.issuer,
    key_id: identity?.keyId,
    dialect: request.dialect,
    requested: escapeRequested(request.target),
    host: destination && hostText(destination),
    port: destination?.port,
    client: client.port === 0 ? client.address : hostPort(client.address, client.port),
  } as const
}

/** Policy let it out and the far end failed: that is not a refusal of ours. */
function isFaultOfTheDestination({ reason }: Refusal): boolean {
  return reason.startsWith('connect_') || reason.startsWith('dns_')
}

function hostPort(address: string, port: number): string {
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`
}

function rounded(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : Math.round(ms * 1000) / 1000
}
