/** What the outcome of a connection looks like as an audit line. */
import { hostText } from '../../policies/index.ts'
import type { CloseReason } from '../reasons.ts'
import type { Authorized, ConnectionRequest, Progress, Refusal } from '../request.ts'
import { escapeRequested } from './escape.ts'
import type { AuthEntry, CloseEntry, DecisionEntry } from './record.ts'

/**
 * The line for a refusal, or for a connection that was let out to `dialled`. Refused credentials make an `auth` line, all else a `decision`.
 * Every field is named in one literal, here and below: objects that grow cost a tunnel more than their text.
 */
export function outcomeEntry(
  request: ConnectionRequest,
  outcome: Authorized | Refusal,
  dialled?: { readonly address: string; readonly connectMs?: number | undefined },
): AuthEntry | DecisionEntry {
  const { requestId, dialect, target, client } = request
  const { identity, destination, verdict } = outcome
  if (!outcome.ok && outcome.reason.startsWith('token_')) {
    return {
      kind: 'auth',
      request_id: requestId,
      tenant: identity?.tenant,
      sandbox: identity?.sandbox,
      token_id: identity?.tokenId,
      issuer: identity?.issuer,
      key_id: identity?.keyId,
      dialect,
      requested: escapeRequested(target),
      host: destination && hostText(destination),
      port: destination?.port,
      client: clientText(client),
      decision: 'deny',
      effective: 'deny',
      reason: outcome.reason,
    }
  }
  const refusedBy = verdict?.effective === 'allow' ? verdict.report : verdict
  const letOut = verdict?.effective === 'allow' && (outcome.ok || isFaultOfTheDestination(outcome))
  return {
    kind: 'decision',
    request_id: requestId,
    tenant: identity?.tenant,
    sandbox: identity?.sandbox,
    token_id: identity?.tokenId,
    issuer: identity?.issuer,
    key_id: identity?.keyId,
    dialect,
    requested: escapeRequested(target),
    host: destination && hostText(destination),
    port: destination?.port,
    client: clientText(client),
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
  request: Pick<ConnectionRequest, 'requestId' | 'dialect' | 'target' | 'client'>,
  { identity, destination, policyVersion }: Progress,
  end: {
    readonly closeReason: CloseReason
    readonly bytesIn: number
    readonly bytesOut: number
    readonly durationMs: number
    readonly sni?: string | undefined
  },
): CloseEntry {
  return {
    kind: 'close',
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
    client: clientText(request.client),
    close_reason: end.closeReason,
    policy_version: policyVersion,
    sni: end.sni,
    bytes_in: end.bytesIn,
    bytes_out: end.bytesOut,
    duration_ms: rounded(end.durationMs) ?? 0,
  }
}

function clientText({ address, port }: ConnectionRequest['client']): string {
  if (port === 0) return address
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`
}

/** Policy let it out and the far end failed: that is not a refusal of ours. */
function isFaultOfTheDestination({ reason }: Refusal): boolean {
  return reason.startsWith('connect_') || reason.startsWith('dns_')
}

function rounded(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : Math.round(ms * 1000) / 1000
}
