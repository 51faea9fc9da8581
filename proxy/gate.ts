/** The gate of a gateway: what a connection asks for on its way, answered by the gateway's parts. Decides nothing itself. */
import type { NetworkRules } from '../policies/index.ts'
import type { Metrics } from './admin/metrics.ts'
import type { AuditLog } from './audit/record.ts'
import type { Clock } from './clock.ts'
import type { Config } from './config/schema.ts'
import type { Gate } from './connection.ts'
import type { GatewayLogger } from './core.ts'
import type { Door } from './door.ts'
import type { Resolver } from './egress/resolver.ts'
import { faultForLog } from './fault-for-log.ts'
import { KnownDestinations } from './known-destinations.ts'
import { Patience } from './patience.ts'
import type { PolicySource } from './policy/policy-source.ts'
import type { Revocations } from './state/revocations.ts'
import type { Identified, Identifier } from './tokens/identify.ts'
import { BOUND_ISSUER, type Identity } from './tokens/identity.ts'
import type { Tracer } from './tracing/tracer.ts'
import type { LimitCounters } from './tunnels/limits.ts'

/** The parts, as they are now: functions for what a reload replaces. */
export interface GateParts {
  readonly settings: () => Config
  readonly clock: Clock
  readonly logger: GatewayLogger
  readonly identifier: Identifier
  readonly revocations: Pick<Revocations, 'isRevoked'>
  readonly policies: PolicySource
  readonly limits: LimitCounters
  readonly audit: AuditLog
  readonly network: () => NetworkRules
  readonly resolver: () => Resolver | undefined
  /** Nothing new is let out. */
  readonly isDraining: () => boolean
  /** Nobody tells this process any more what the others of its gateway do. */
  readonly isCutOff: () => boolean
  /** What can't be written down is not let out any more, whatever the configuration says. */
  readonly isClosing: () => boolean
  readonly onSetUp: Metrics['countSetUp']
  readonly tracer: Tracer | undefined
  /** Told of what is refused, and of what goes out. */
  readonly door: Pick<Door, 'cameToNothing' | 'wentOut'>
}

/** What a decision ends with that a closing gateway does not wait for. */
const OUT_OF_PATIENCE = new Error('the gateway is closing')
const GIVE_UP = (): never => {
  throw OUT_OF_PATIENCE
}
const NO_WAIT = { dns_ms: undefined, connect_ms: undefined }

/** A gate, and what closes parts of it. */
export function createGate(parts: GateParts): {
  readonly gate: Gate
  /** Kills a bound identity. */
  readonly closeIdentity: (identity: Identity) => void
  /** What others have yet to say is waited for no longer, for good. */
  readonly endWaiting: () => void
} {
  const { settings, clock, logger, identifier, revocations, policies, limits, audit, tracer } = parts
  /** For what others have yet to say while a request is decided; a gateway that closes does not wait for it. */
  const patience = new Patience()
  const closedIdentities = new WeakSet<Identity>()
  /** Its bound listener is closed, or its issuer is no longer configured, or the key that signed its token was taken out. */
  const isUnknown = (identity: Identity) =>
    identity.issuer === BOUND_ISSUER
      ? closedIdentities.has(identity)
      : !settings().issuers.some(({ issuer }) => issuer === identity.issuer) || identifier.isKeyGone(identity)
  /** Never rejects: not every dialect could write that down. */
  const identify: Gate['identify'] = (credentials, client) => {
    const who = identifier.identify(credentials, client)
    if (!(who instanceof Promise)) return who
    const watched = who.catch((error: unknown): Identified => {
      logger.error({ fault: faultForLog(error) }, 'a fault while identifying; refused')
      return { ok: false, reason: 'policy_unavailable' }
    })
    return patience.of(watched, () => ({ ok: false, reason: 'draining' }))
  }
  const gate: Gate = {
    destinations: new KnownDestinations(),
    closedFor: () => {
      if (parts.isDraining()) return 'draining'
      if (parts.isCutOff()) return 'gateway_busy'
      return settings().audit.onFailure === 'deny' && !audit.isWritable() ? 'audit_unavailable' : undefined
    },
    letsOutUnrecorded: () => settings().audit.onFailure === 'allow' && !parts.isClosing(),
    identify: (credentials, client) =>
      client.bound && closedIdentities.has(client.bound)
        ? { ok: false, reason: 'token_revoked', identity: client.bound }
        : identify(credentials, client),
    isRevoked: (identity) => isUnknown(identity) || revocations.isRevoked(identity),
    clock,
    layersFor: (identity) => patience.of(policies.layersFor(identity), GIVE_UP),
    layersKnownFor: (identity) => policies.layersKnownFor(identity),
    network: parts.network,
    resolver: parts.resolver,
    limits,
    audit,
    onOutcome: ({ traceparent, client }, { times }, entry, isOut) => {
      if (entry.effective === 'deny') parts.door.cameToNothing(client)
      else if (isOut) parts.door.wentOut(client)
      if (times === undefined) return
      tracer?.begin(traceparent, times, entry, isOut)
      const { dns_ms: dnsMs, connect_ms: connectMs } = entry.kind === 'decision' ? entry : NO_WAIT
      const totalMs = isOut ? clock.monotonicMs() - times.startedMs : undefined
      parts.onSetUp({ identityMs: times.identityMs, policyMs: times.policyMs, dnsMs, connectMs, totalMs })
    },
    onFault: ({ requestId }, error) => {
      if (error === OUT_OF_PATIENCE) return
      logger.error({ request_id: requestId, fault: faultForLog(error) }, 'a fault while deciding; refused')
    },
  }
  return {
    gate,
    closeIdentity: (identity) => void closedIdentities.add(identity),
    endWaiting: () => patience.end(),
  }
}
