/** Puts the gateway together: opens what it needs, serves connections, reloads, drains and closes. Decides nothing itself. */
import { randomBytes } from 'node:crypto'
import os from 'node:os'
import { join } from 'node:path'
import { pino } from 'pino'
import { type EgressPolicy, SallyportError } from '../policies/index.ts'
import { createMetrics } from './admin/metrics.ts'
import { createAdminServer } from './admin/server.ts'
import { closeEntry, outcomeEntry } from './audit/entry.ts'
import { openAuditLog } from './audit/log.ts'
import type { AuditEntry, AuditLog } from './audit/record.ts'
import { type BoundIdentity, identityOf } from './bound-identity.ts'
import { type Clock, systemClock } from './clock.ts'
import type { Config } from './config/schema.ts'
import { authorize, type Gate } from './connection.ts'
import { Deadlines } from './deadlines.ts'
import { createForwarder } from './dialects/forward.ts'
import { createWayOut } from './egress/way-out.ts'
import { type ListeningAddress, openListener, ownListeners, watchCertificates } from './listeners.ts'
import { type MachineSets, readMachineSets } from './policy/machine-sets.ts'
import { createPolicySource } from './policy/policy-source.ts'
import type { Listener } from './relay/listen.ts'
import type { Side } from './relay/side.ts'
import type { ClientInfo } from './request.ts'
import { compileRuleset } from './ruleset.ts'
import { serveSide } from './sessions/serve.ts'
import type { SessionContext } from './sessions/session.ts'
import { openAuditKey } from './state/audit-key.ts'
import { openState } from './state/state.ts'
import { readProxyAuthorization } from './tokens/credentials.ts'
import { createIdentifier } from './tokens/identify.ts'
import { BOUND_ISSUER, type Identity } from './tokens/identity.ts'
import { openKeys } from './tokens/keys.ts'
import { LimitCounters } from './tunnels/limits.ts'
import { type LiveChecks, recheck, recheckAll } from './tunnels/live-checks.ts'
import { type Tunnel, TunnelRegistry } from './tunnels/registry.ts'
import { startTunnel } from './tunnels/start-tunnel.ts'

/** What a gateway is made of. */
export interface GatewayOptions {
  /** Checked configuration, as `parseConfig` or `loadConfig` give it. */
  readonly config: Config
  /** The gateway's own log; by default JSON lines on standard error at the configured level. */
  readonly logger?: GatewayLogger
  readonly clock?: Clock
  /** The hosts behind `@npm` and `@apt`; by default what this machine's npm and apt are configured for. */
  readonly machineSets?: MachineSets
  /** For `sallyport_build_info`. */
  readonly version?: string
}

/** What is logged with; a pino logger fits. */
export interface GatewayLogger {
  readonly info: (fields: object, message: string) => void
  readonly warn: (fields: object, message: string) => void
  readonly error: (fields: object, message: string) => void
}

/** Where a gateway can be reached. */
export interface Listening {
  readonly proxy: readonly ListeningAddress[]
  readonly admin: ListeningAddress | undefined
}

/** A unix socket, or a port on an address (127.0.0.1 by default; 0 picks a free port). */
export type BindAddress = { readonly path: string } | { readonly port: number; readonly host?: string }

/** A listener that stands for one sandbox. */
export interface BoundListener {
  readonly address: ListeningAddress
  /** Names this identity in the audit log and in revocations. */
  readonly tokenId: string
  /**
   * Another policy for this sandbox: the next connection obeys, and open ones that it no longer allows are cut.
   * @throws SallyportError `SALLYPORT_POLICY_INVALID` with every fault; then the old one stays
   */
  readonly setEgress: (policy: EgressPolicy) => void
  /** Stops listening and cuts what is open through it; idempotent. */
  readonly close: () => Promise<void>
}

/** A running gateway. */
export interface Gateway {
  /**
   * Starts to listen where the configuration says.
   * @throws SallyportError `SALLYPORT_LISTEN_FAILED`, `SALLYPORT_KEY_UNREADABLE`
   */
  readonly listen: () => Promise<Listening>
  /**
   * Opens a listener that carries the identity of one sandbox, so that nothing inside needs (or can steal) a token.
   * @throws SallyportError `SALLYPORT_LISTEN_FAILED`, `SALLYPORT_POLICY_INVALID`, `SALLYPORT_GATEWAY_CLOSED`
   */
  readonly bind: (options: BindAddress & { readonly identity: BoundIdentity }) => Promise<BoundListener>
  /**
   * Takes over another configuration: issuers, policy, network, limits and timeouts. Listeners, state and audit stay as they are.
   * Open tunnels that it no longer allows are cut. The audit log has a line for it, also for one that could not be read or used.
   * @throws what `load` throws, or SallyportError when it can't be used; then the old one stays in force
   */
  readonly reload: (load: () => Config | Promise<Config>) => Promise<void>
  /** Refuses what is new, waits for open tunnels up to `timeouts.drainSeconds`, then cuts them. */
  readonly drain: () => Promise<void>
  /** Cuts everything, writes the end of the audit log and closes. Idempotent. */
  readonly close: () => Promise<void>
}

/** For a refused client to take its answer. */
const LINGER_MS = 1000
const DRAIN_LOOK_MS = 100
const RECHECK_MS = 100

/**
 * Opens the state folder and the audit log and makes a gateway; it listens nowhere before {@link Gateway.listen}.
 * @throws SallyportError with one line that says what is wrong
 */
export async function createGateway(options: GatewayOptions): Promise<Gateway> {
  const { clock = systemClock, version = 'unknown' } = options
  const logger = options.logger ?? pino({ level: options.config.log.level }, pino.destination(2))
  const machineSets = options.machineSets ?? readMachineSets()
  for (const note of machineSets.notes) logger.warn({}, note)

  let rules = compileRuleset(options.config, machineSets.sets, [])
  const onUpstreamFailure = (failure: string) => logger.warn({ upstream: failure }, 'the upstream proxy did not let a connection through')
  let wayOut = createWayOut(options.config, clock, onUpstreamFailure)
  const settings = () => rules.config

  const state = await openState(settings().state, { clock, onFault: (message) => logger.error({}, message) })
  const ownKeys = await openKeys(settings().state)
  const policies = createPolicySource({ policy: settings().policy, machineSets: machineSets.sets, clock })
  const registry = new TunnelRegistry({ clock, idleTimeoutMs: settings().timeouts.idleSeconds * 1000 })
  const limits = new LimitCounters(settings().limits, clock)
  const metrics = createMetrics({ version, activeTunnels: () => registry.size })
  const identifier = createIdentifier({
    issuers: settings().issuers,
    revocations: state.revocations,
    handles: state.handles,
    stateKeys: ownKeys.document,
    sets: rules.sets,
    clock,
    onKeyEvent: (issuer, event) => {
      metrics.countKeyRefresh(event.result)
      if (event.result === 'failed') logger.warn({ issuer, detail: event.detail }, 'the keys of an issuer could not be read')
    },
  })
  const instance = settings().audit.instance ?? instanceName(os.hostname())
  const log = await openAuditLog({
    path: settings().audit.path,
    instance,
    headPath: join(settings().state, `audit-head-${instance}.jsonl`),
    onFailure: settings().audit.onFailure,
    maxFileBytes: settings().audit.maxFileBytes,
    signingKey: await openAuditKey(settings().state),
    start: { policy_version: policies.version },
    onLost: metrics.countAuditLost,
    clock,
    logger,
  })
  const audit = counted(log, (entry) => {
    metrics.countAuditLines(1)
    if (entry.kind === 'decision' || entry.kind === 'auth') metrics.countConnection(entry.dialect ?? 'http', entry.effective, entry.reason)
  })

  let draining = false
  const closedIdentities = new WeakSet<Identity>()
  const gate: Gate = {
    closedFor: () => {
      if (draining) return 'draining'
      return settings().audit.onFailure === 'deny' && !audit.isWritable() ? 'audit_unavailable' : undefined
    },
    letsOutUnrecorded: () => settings().audit.onFailure === 'allow',
    identify: identifier.identify,
    layersFor: (identity) => policies.layersFor(identity),
    network: () => rules.network,
    resolver: () => wayOut.resolver,
    limits,
    audit,
    onFault: ({ requestId }, error) => logger.error({ request_id: requestId, fault: faultText(error) }, 'a fault while deciding; refused'),
  }
  /** Its bound listener is closed, or its issuer is no longer configured. */
  const isUnknown = (identity: Identity) =>
    identity.issuer === BOUND_ISSUER ? closedIdentities.has(identity) : !settings().issuers.some(({ issuer }) => issuer === identity.issuer)
  const checks: LiveChecks = {
    isRevoked: (identity) => isUnknown(identity) || state.revocations.isRevoked(identity),
    layersFor: gate.layersFor,
    network: gate.network,
  }
  const recheckTunnels = () => recheckAll(registry, checks)
  /** Many policies may change at once: one look at the open tunnels answers all of them, still well within a second. */
  let lookAhead: NodeJS.Timeout | undefined
  const recheckSoon = () => {
    lookAhead ??= setTimeout(() => {
      lookAhead = undefined
      void recheckTunnels()
    }, RECHECK_MS).unref()
  }
  const stopRevocations = state.revocations.onChange(() => void recheckTunnels())
  const stopPolicies = policies.onChange(recheckSoon)

  const watch = (tunnel: Tunnel) => {
    registry.add(tunnel)
    void recheck(tunnel, checks)
  }
  const newRequestId = requestIds()
  const forwarder = createForwarder({
    clock,
    newRequestId,
    readCredentials: readProxyAuthorization,
    authorize: (request) => authorize(gate, request),
    dialPlain: (permit) => wayOut.dialPlain(permit),
    recordDecision: async (request, outcome, goingOut = {}) => {
      const { authorized, dialled, connectMs } = goingOut
      const whole = outcome.ok || !authorized ? outcome : { ...authorized, ...outcome }
      const written = await audit.write(outcomeEntry(request, whole, dialled === undefined ? undefined : { address: dialled, connectMs }))
      return written || gate.letsOutUnrecorded()
    },
    onExchange: (request, { identity, permit, expiresAtMs, place }, exchange) =>
      watch({ requestId: request.requestId, identity, permit, expiresAtMs, place, relay: exchange }),
    recordClose: (request, authorized, { startedMs, ...end }) => {
      registry.remove(request.requestId)
      const durationMs = clock.monotonicMs() - startedMs
      metrics.countTunnel({ ...end, durationMs })
      void audit.write(closeEntry(request, authorized, { ...end, durationMs }))
    },
    onFault: (error) => logger.error({ fault: faultText(error) }, 'a fault while forwarding; refused'),
    headTimeoutMs: settings().timeouts.headSeconds * 1000,
    idleTimeoutMs: settings().timeouts.idleSeconds * 1000,
  })

  const sides = new Set<Side>()
  const context: SessionContext = {
    gate,
    newRequestId,
    heads: new Deadlines(settings().timeouts.headSeconds * 1000, clock),
    lingers: new Deadlines(LINGER_MS, clock),
    dialTunnel: (permit) => wayOut.dialTunnel(permit),
    startTunnel: (tunnel) =>
      startTunnel({ watch, unwatch: (id) => registry.remove(id), audit, clock, expectsTls: rules.expectsTls, onClose: metrics.countTunnel }, tunnel),
    forward: (socket, client) => forwarder.serve(socket, client),
    onEmpty: metrics.countEmptyConnection,
  }
  const onSide = (side: Side, client: ClientInfo) => {
    sides.add(side)
    side.onClose(() => sides.delete(side))
    serveSide(context, side, client).catch((error: unknown) => {
      logger.error({ fault: faultText(error) }, 'a fault while serving a connection; closed')
      side.destroy()
    })
  }
  const onListenFault = (fault: { readonly kind: string; readonly code: string }) => logger.warn(fault, 'a connection could not be accepted')

  const listeners = new Map<Listener, ListeningAddress>()
  const admin = createAdminServer({
    metrics,
    notReady: () => [gate.closedFor(), identifier.isReady() ? undefined : 'keys_unavailable'].filter((reason) => reason !== undefined),
    publicKeys: ownKeys.publicJwks,
  })
  let adminAddress: ListeningAddress | undefined
  let stopWatchingCertificates = () => {}

  /** The rules know every listener of the gateway from the moment that it is open. */
  const applyRules = (config: Config) => {
    const own = [...listeners.values(), ...(adminAddress ? [adminAddress] : [])]
    rules = compileRuleset(config, machineSets.sets, ownListeners(own))
  }

  /** All of it or nothing: what can fail comes before what is put in force. */
  const takeOver = (config: Config) => {
    const next = compileRuleset(config, machineSets.sets, rules.network.own)
    const nextWayOut = createWayOut(config, clock, onUpstreamFailure)
    try {
      identifier.replace(config.issuers, next.sets)
      policies.replace(config.policy, machineSets.sets)
    } catch (error) {
      identifier.replace(settings().issuers, rules.sets)
      nextWayOut.close()
      throw error
    }
    // Names that are being resolved the old way may still be answered.
    setTimeout(wayOut.close, settings().timeouts.dnsSeconds * 1000).unref()
    wayOut = nextWayOut
    rules = next
    limits.replaceLimits(config.limits)
    registry.setIdleTimeout(config.timeouts.idleSeconds * 1000)
    context.heads.setAfter(config.timeouts.headSeconds * 1000)
  }

  const open = async (address: ListeningAddress, bound?: Identity) => {
    const tls = bound ? undefined : settings().listen.tls
    const opened = await openListener(address, { onSide, onFault: onListenFault, ...(bound && { bound }) }, tls)
    listeners.set(opened.listener, opened.address)
    applyRules(settings())
    return opened
  }

  const drain = async () => {
    draining = true
    forwarder.drain()
    void audit.write({ kind: 'admin', action: 'drain' })
    const deadlineMs = clock.monotonicMs() + settings().timeouts.drainSeconds * 1000
    while (registry.size > 0 && clock.monotonicMs() < deadlineMs) await new Promise((resolve) => setTimeout(resolve, DRAIN_LOOK_MS))
    registry.cutWhere(() => 'drain_deadline')
  }

  const close = async () => {
    draining = true
    stopWatchingCertificates()
    stopRevocations()
    stopPolicies()
    clearTimeout(lookAhead)
    await Promise.all([...listeners.keys()].map((listener) => listener.close()))
    await admin.close()
    registry.cutWhere(() => 'drain_deadline')
    for (const side of sides) side.destroy()
    forwarder.close()
    for (const part of [context.heads, context.lingers, registry, identifier, policies, wayOut, metrics, state]) part.close()
    await log.close()
  }
  let closing: Promise<void> | undefined

  return {
    listen: async () => {
      const { proxy, admin: adminListen, tls } = settings().listen
      if (adminListen) adminAddress = await admin.listen(adminListen)
      for (const address of proxy) await open(address)
      if (tls) {
        stopWatchingCertificates = watchCertificates(tls, [...listeners.keys()], (outcome) => {
          if (outcome.ok) logger.info({}, 'certificates reloaded')
          else logger.error({ fault: faultText(outcome.error) }, 'new certificates can not be used; the old ones stay')
        })
      }
      return { proxy: [...listeners.values()], admin: adminAddress }
    },

    bind: async ({ identity: bound, ...where }) => {
      if (closing) throw new SallyportError('SALLYPORT_GATEWAY_CLOSED', 'the gateway is closed')
      const identity = identityOf(bound, clock.wallMs())
      let forget = policies.define(identity.tokenId, bound.egress ?? { kind: 'deny-all' })
      const { listener, address } = await open(bindAddress(where), identity).catch((error: unknown) => {
        forget()
        throw error
      })
      return {
        address,
        tokenId: identity.tokenId,
        setEgress: (policy) => {
          forget = policies.define(identity.tokenId, policy)
        },
        close: async () => {
          closedIdentities.add(identity)
          listeners.delete(listener)
          await listener.close()
          await recheckTunnels()
          forget()
          applyRules(settings())
        },
      }
    },

    reload: async (load) => {
      try {
        await takeOver(await load())
      } catch (error) {
        await audit.write({ kind: 'admin', action: 'reload_failed', detail: faultText(error) })
        throw error
      }
      metrics.countPolicy()
      await audit.write({ kind: 'admin', action: 'reload', policy_version: policies.version })
      await recheckTunnels()
    },

    drain,
    close: () => (closing ??= close()),
  }
}

function bindAddress(where: BindAddress): ListeningAddress {
  if ('path' in where) return { kind: 'unix', path: where.path }
  return { kind: 'tcp', host: where.host ?? '127.0.0.1', port: where.port }
}

function counted(log: AuditLog, count: (entry: AuditEntry) => void): AuditLog {
  return {
    ...log,
    write: (entry) => {
      count(entry)
      return log.write(entry)
    },
  }
}

/** The host name as the audit log takes names. */
function instanceName(hostName: string): string {
  const name = hostName.replace(/[^A-Za-z0-9._-]/g, '-').replace(/^[^A-Za-z0-9]+/, '').slice(0, 63).replace(/[^A-Za-z0-9]+$/, '')
  return name === '' ? 'gateway' : name
}

/** Unique in this process and, by its random part, among processes. */
function requestIds(): () => string {
  const prefix = randomBytes(6).toString('base64url')
  let count = 0
  return () => `${prefix}-${(count++).toString(36)}`
}

/** The name and code of an error; its message may hold what must not be logged. */
function faultText(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown'
  return 'code' in error ? `${error.name} ${String(error.code)}` : error.name
}
