/**
 * Everything of a gateway but its listeners: opens state, audit log, policies and keys, and makes the functions that serve a connection.
 * What a reload replaces is replaced here. Decides nothing itself.
 */
import os from 'node:os'
import { join } from 'node:path'
import type { EntrySets, OwnListener } from '../policies/index.ts'
import type { Metrics } from './admin/metrics.ts'
import { NO_METRICS } from './admin/no-metrics.ts'
import type { WorkerCounts } from './admin/workers-view.ts'
import { closeEntry } from './audit/entry.ts'
import { instanceName, instancesOf, workerInstance } from './audit/instance-name.ts'
import { openAuditLog } from './audit/log.ts'
import { closeLostTunnels, earlierFiles } from './audit/close-lost-tunnels.ts'
import type { AuditLog } from './audit/record.ts'
import { type AuditService, openAuditService } from './audit/service.ts'
import { type Clock, systemClock } from './clock.ts'
import type { Config } from './config/schema.ts'
import { configWarnings, lacksOwnKey, NO_OWN_KEY, TWO_SOURCES } from './config/warnings.ts'
import { authorize, dialFor, type Gate, recordOutcome } from './connection.ts'
import { Deadlines } from './deadlines.ts'
import { createForwarder } from './dialects/forward.ts'
import { Door } from './door.ts'
import { createWayOut } from './egress/way-out.ts'
import { faultForLog } from './fault-for-log.ts'
import { createGate } from './gate.ts'
import { type MachineSets, readMachineSets } from './policy/machine-sets.ts'
import { writeInOrder } from './policy/file-change-lines.ts'
import { createPolicySource, type PolicySource } from './policy/policy-source.ts'
import type { FileChange } from './policy/tenant-files/file-layers.ts'
import type { Side } from './relay/side.ts'
import { Roster } from './roster.ts'
import { requestIds } from './request-ids.ts'
import type { ClientInfo } from './request.ts'
import { compileRuleset } from './ruleset.ts'
import { serveSide } from './sessions/serve.ts'
import type { SessionContext } from './sessions/session.ts'
import { openAuditKey } from './state/audit-key.ts'
import { openState, type State } from './state/state.ts'
import { readProxyAuthorization } from './tokens/credentials.ts'
import { createIdentifier } from './tokens/identify.ts'
import type { Identity } from './tokens/identity.ts'
import { jose } from './tokens/jose.ts'
import { openKeys, type OwnKeys } from './tokens/keys.ts'
import { openTracer } from './tracing/open-tracer.ts'
import { LimitCounters } from './tunnels/limits.ts'
import type { UntoldUsage } from './tunnels/usage.ts'
import { lostPermission, type Permission, recheck, recheckAll, type Rechecked } from './tunnels/live-checks.ts'
import { type Tunnel, TunnelRegistry } from './tunnels/registry.ts'
import { startTunnel, type TunnelContext } from './tunnels/start-tunnel.ts'

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
  /**
   * Does what `POST /v1/reload` asks for, such as {@link Gateway.reload} with the file read again. Absent: not served.
   * @throws what is wrong with the configuration
   */
  readonly reload?: () => Promise<void>
}

/** What is logged with; a pino logger fits. */
export interface GatewayLogger {
  readonly info: (fields: object, message: string) => void
  readonly warn: (fields: object, message: string) => void
  readonly error: (fields: object, message: string) => void
}

/** A core's place among several processes of one gateway. */
export interface CorePlace {
  /** Of a worker, from 1; absent: the process that supervises them. */
  readonly worker?: number
  /** How many workers there are. */
  readonly workers: number
  /** Keeps what is counted against limits, for the other processes. */
  readonly untold: UntoldUsage
  /** For metrics of the supervising process. */
  readonly counts?: () => WorkerCounts
  /** Nobody tells this process any more what the others do: then it lets out nothing new. */
  readonly isCutOff?: () => boolean
}

/** The inside of a gateway. */
export interface Core {
  readonly config: () => Config
  readonly logger: GatewayLogger
  readonly clock: Clock
  readonly audit: AuditLog
  /** What reads the log beside it. */
  readonly auditService: Pick<AuditService, 'sinks' | 'integrity'>
  readonly metrics: Metrics
  readonly policies: PolicySource
  readonly ownKeys: OwnKeys
  readonly state: State
  readonly registry: TunnelRegistry
  /** Who is let in at all. */
  readonly door: Door
  readonly limits: LimitCounters
  /** Of its audit log. */
  readonly instance: string
  /** What a connection asks, for whoever asks the same. */
  readonly gate: Gate
  /** The named sets that an entry of a token may mean. */
  readonly sets: () => EntrySets
  /** Looks at every open tunnel again; resolves when nothing passes any more on what is lost for sure. */
  readonly recheck: () => Promise<Rechecked>
  /** Serves an accepted connection to its end. */
  readonly serve: (side: Side, client: ClientInfo) => void
  /** Why the gateway should get no new connections at the moment; empty when it should. */
  readonly notReady: () => readonly string[]
  /** The listeners that must not be reachable through the gateway; what is open to one of them is cut. */
  readonly setOwnListeners: (own: readonly OwnListener[]) => void
  /** Kills a bound identity: nothing is let out for it any more, and what is open is cut. */
  readonly revokeBound: (identity: Identity) => Promise<void>
  /**
   * Puts another configuration in force, all of it or nothing.
   * @throws SallyportError when it can't be used; then the old one stays
   */
  readonly takeOver: (config: Config) => Promise<void>
  /** Refuses what is new from now on. */
  readonly refuseNew: () => void
  /** How many tunnels and exchanges are open. */
  readonly open: () => number
  /** Ends everything that is open with `drain_deadline`; resolves when it has ended. */
  readonly cutAll: () => Promise<void>
  /** Ends everything, writes the last audit lines and closes; idempotent. */
  readonly close: () => Promise<void>
}

/** For a refused client to take its answer. */
const LINGER_MS = 1000
/** Many policies may change at once: one look at the open tunnels answers all of them, still well within a second. */
const RECHECK_MS = 100
/** For tunnels that were cut to be gone and written down, before the audit log is closed. */
const LAST_LINES_MS = 2000

/** Where several processes share quotas, bytes are counted this often, so that all know of them within a tenth of a second. */
const SHARED_SWEEP_MS = 50

/**
 * `place`: absent, the process is the whole gateway.
 * @throws SallyportError with one line that says what is wrong; then nothing is left open
 */
export async function openCore(options: GatewayOptions, place?: CorePlace): Promise<Core> {
  const closers: (() => unknown)[] = []
  try {
    return await assemble(options, place, closers)
  } catch (error) {
    for (const close of closers.toReversed()) await close()
    throw error
  }
}

async function assemble(
  options: GatewayOptions,
  place: CorePlace | undefined,
  closers: (() => unknown)[],
): Promise<Core> {
  /** What is opened later is closed earlier. */
  const keep = <T extends { readonly close: () => unknown }>(opened: T): T => {
    closers.push(() => opened.close())
    return opened
  }
  const { clock = systemClock, version = 'unknown' } = options
  const logger = options.logger ?? (await openLogger(options.config.log.level))
  const machineSets = options.machineSets ?? readMachineSets()
  const isUsed = (set: string) =>
    JSON.stringify([options.config.policy, options.config.listen.bound]).includes(`@${set}`)
  for (const { set, text } of machineSets.notes) if (isUsed(set)) logger.warn({}, text)
  /** All processes of a gateway have one configuration, and one of them says what is odd about it. */
  const warn = (fields: object, warning: string) => {
    if (place?.worker === undefined) logger.warn(fields, warning)
  }
  for (const warning of configWarnings(options.config)) warn({}, warning)

  let rules = compileRuleset(options.config, machineSets.sets, [])
  const onUpstreamFailure = (failure: string) =>
    logger.warn({ upstream: failure }, 'the upstream proxy did not let a connection through')
  const caches = {
    token: { hits: 0, misses: 0 },
    policy: { hits: 0, misses: 0 },
    dns: { hits: 0, misses: 0 },
  }
  let wayOut = createWayOut(options.config, clock, onUpstreamFailure, caches.dns)
  closers.push(() => wayOut.close())
  const settings = () => rules.config

  const state = keep(await openState(settings().state, { clock, onFault: (message) => logger.error({}, message) }))
  const ownKeys = await openKeys(settings().state)
  // Before the first token comes, which should not wait for it.
  if (settings().issuers.length + ownKeys.list().length > 0) await jose()
  const warnOfNoKey = (config: Config) => {
    if (lacksOwnKey(config, ownKeys.list().length)) warn({}, `${NO_OWN_KEY}: \`sallyport keys generate\``)
  }
  warnOfNoKey(settings())
  let recordFileChange: (change: FileChange) => void = () => undefined
  const policies = keep(
    createPolicySource({
      policy: settings().policy,
      machineSets: machineSets.sets,
      clock,
      onFileChange: (change) => recordFileChange(change),
      cacheCounts: caches.policy,
      onFault: (policy, error) => logger.error({ policy, fault: faultForLog(error) }, 'a policy can not be had'),
    }),
  )
  for (const { tenant, policy } of state.tenantPolicies.list()) policies.keepTenant(tenant, policy)
  const warnOfTwoSources = () => {
    const kept = state.tenantPolicies.list().length
    if (kept > 0 && policies.tenantFiles()) warn({ tenants: kept }, TWO_SOURCES)
  }
  warnOfTwoSources()
  const idleTimeoutMs = settings().timeouts.idleSeconds * 1000
  const registry = keep(
    new TunnelRegistry({
      clock,
      idleTimeoutMs,
      ...(place && { sweepMs: SHARED_SWEEP_MS }),
      onFault: (error) => logger.error({ fault: faultForLog(error) }, 'a fault while ending a tunnel'),
    }),
  )
  const limits = new LimitCounters(settings().limits, clock)
  if (place) limits.share(place.untold)
  const gatewayName = settings().audit.instance ?? instanceName(os.hostname(), place ? 60 : undefined)
  const instance = place?.worker === undefined ? gatewayName : workerInstance(gatewayName, place.worker)
  // Opened before the log, so closed after it: the last lines are sent too.
  const auditService = keep(
    await openAuditService({
      settings: settings().audit,
      state: settings().state,
      instance,
      version,
      logger,
      ...(place && { alertInstances: place.worker === undefined ? instancesOf(gatewayName, place.workers) : [] }),
    }),
  )
  const tracer = await openTracer(settings().tracing, { clock, instance, version, logger })
  if (tracer) keep(tracer)
  let unwritableSinceMs: number | undefined
  // Where nobody can read them, nothing is counted.
  const isRead = place !== undefined || settings().listen.admin !== undefined
  const metrics = keep(
    !isRead
      ? NO_METRICS
      : (await import('./admin/metrics.ts')).createMetrics({
          version,
          activeTunnels: () => registry.size,
          openBytes: () => registry.openBytes,
          tunnelLimit: () => settings().limits.tunnels,
          isReady: () => notReady().length === 0,
          policyVersion: () => policies.version,
          caches,
          auditUnwritableSeconds: () =>
            unwritableSinceMs === undefined ? 0 : (clock.monotonicMs() - unwritableSinceMs) / 1000,
          auditSinks: () => auditService.sinks(),
          ...(tracer && { traceSpans: tracer.counts }),
          ...(place?.counts && { workers: place.counts }),
          ...(settings().policy.tenantFiles && { tenantFiles: () => policies.tenantFiles() }),
        }),
  )
  /** Set once there are tunnels to look at. */
  let keysChanged: () => void = () => undefined
  const identifier = keep(
    createIdentifier({
      issuers: settings().issuers,
      revocations: state.revocations,
      handles: state.handles,
      stateKeys: ownKeys.document,
      sets: rules.sets,
      clock,
      cacheCounts: caches.token,
      onKeyEvent: (issuer, event) => {
        metrics.countKeyRefresh(event.result)
        if (event.result === 'loaded') keysChanged()
        if (event.result === 'failed')
          logger.warn({ issuer, detail: event.detail }, 'the keys of an issuer could not be read')
      },
    }),
  )
  const filesBefore = earlierFiles(settings().audit.path, instance)
  const audit = keep(
    await openAuditLog({
      path: settings().audit.path,
      instance,
      headPath: join(settings().state, `audit-head-${instance}.jsonl`),
      onFailure: settings().audit.onFailure,
      sync: settings().audit.sync,
      maxFileBytes: settings().audit.maxFileBytes,
      signingKey: await openAuditKey(settings().state),
      start: { policy_version: policies.version },
      onLost: metrics.countAuditLost,
      onWrite: metrics.countAuditWrite,
      onWritable: (writable) => (unwritableSinceMs = writable ? undefined : clock.monotonicMs()),
      onEntry: (entry) => {
        metrics.countAuditLines(1)
        if (entry.kind === 'decision' || entry.kind === 'auth')
          metrics.countConnection(entry.dialect ?? 'http', entry.effective, entry.reason)
        else if (entry.kind === 'close') tracer?.end(entry)
      },
      onCheckpoint: auditService.onCheckpoint,
      clock,
      logger,
    }),
  )
  auditService.start(audit)
  const door = keep(
    new Door({
      clock,
      isUsed: () => settings().limits.turnAway,
      onTurnAway: metrics.countTurnedAway,
      onSay: (turnedAway) => {
        for (const { who, connections } of turnedAway) {
          const detail = `${connections} connections of ${who ?? 'others'} were closed unread: too much of theirs came to nothing`
          logger.warn({ detail }, 'connections were turned away')
          void audit.write({ kind: 'admin', action: 'turned_away', detail })
        }
      },
    }),
  )
  const ending = new AbortController()
  closers.push(() => ending.abort())
  void closeLostTunnels({
    files: filesBefore,
    audit,
    clock,
    signal: ending.signal,
    onClose: metrics.countTunnel,
  }).catch((error: unknown) => {
    if (!ending.signal.aborted)
      logger.error({ fault: faultForLog(error) }, 'tunnels that a killed process left open could not be looked for')
  })
  // All processes of a gateway follow the files, and one of them writes down what changed.
  if (place?.worker === undefined)
    recordFileChange = writeInOrder((line) => void audit.write({ kind: 'admin', ...line }))

  let draining = false
  /** Connections that are served and decisions that are being written. */
  let underway = 0
  const whileUnderway = async <T>(work: Promise<T>): Promise<T> => {
    underway++
    try {
      return await work
    } finally {
      underway--
    }
  }
  const { gate, closeIdentity, endWaiting } = createGate({
    settings,
    clock,
    logger,
    identifier,
    revocations: state.revocations,
    policies,
    limits,
    audit,
    network: () => rules.network,
    resolver: () => wayOut.resolver,
    isDraining: () => draining,
    isCutOff: place?.isCutOff ?? (() => false),
    isClosing: () => closing !== undefined,
    onSetUp: metrics.countSetUp,
    tracer,
    door,
  })
  const recheckTunnels = async (): Promise<Rechecked> => {
    const holds = (permission: Permission) => {
      const lost = lostPermission(permission, gate)
      return lost instanceof Promise ? lost.then((found) => found === undefined) : lost === undefined
    }
    const [tunnels, idle] = await Promise.all([recheckAll(registry, gate), forwarder.recheckIdle(holds)])
    return { over: Promise.all([tunnels.over, idle.over]).then(() => undefined) }
  }
  /** Many policies may change at once: one look at the open tunnels answers all of them, still well within a second. */
  let lookAhead: NodeJS.Timeout | undefined
  const recheckSoon = () => {
    lookAhead ??= setTimeout(() => {
      lookAhead = undefined
      void recheckTunnels()
    }, RECHECK_MS).unref()
  }
  keysChanged = recheckSoon
  closers.push(
    state.revocations.onChange(() => void recheckTunnels()),
    policies.onChange(recheckSoon),
    state.tenantPolicies.onChange((tenants) => {
      for (const tenant of tenants) policies.keepTenant(tenant, state.tenantPolicies.get(tenant)?.policy)
    }),
    () => clearTimeout(lookAhead),
  )

  const watch = (tunnel: Tunnel) => {
    const watched = registry.add(tunnel)
    void recheck(registry, watched, gate)
    return watched
  }
  const newRequestId = requestIds()
  const forwarder = keep(
    createForwarder({
      clock,
      newRequestId,
      readCredentials: readProxyAuthorization,
      authorize: (request) => whileUnderway(authorize(gate, request)),
      dialPlain: (request, authorized) =>
        dialFor(
          gate,
          request,
          authorized,
          (permit) => wayOut.dialPlain(permit),
          ({ socket }) => socket.destroy(),
        ),
      recordDecision: async (request, outcome, goingOut = {}) => {
        const { authorized, dialled, connectMs } = goingOut
        const whole = outcome.ok || !authorized ? outcome : { ...authorized, ...outcome }
        const went = dialled === undefined ? undefined : { address: dialled, connectMs }
        return whileUnderway(recordOutcome(gate, request, whole, went))
      },
      onExchange: ({ requestId }, { identity, permit, decidedBy, expiresAtMs, place }, exchange) => {
        const watched = watch({ requestId, identity, permit, decidedBy, expiresAtMs, place, relay: exchange })
        return () => registry.remove(watched)
      },
      recordClose: (request, authorized, { startedMs, ...end }) => {
        const durationMs = clock.monotonicMs() - startedMs
        metrics.countTunnel({ ...end, durationMs })
        void audit.write(closeEntry(request, authorized, { ...end, durationMs }))
      },
      onFault: (error) => logger.error({ fault: faultForLog(error) }, 'a fault while forwarding; refused'),
      ...forwarderTimes(settings()),
    }),
  )

  const tunnels: TunnelContext = {
    watch,
    unwatch: (watched) => registry.remove(watched),
    audit,
    clock,
    expectsTls: (destination) => rules.expectsTls(destination),
    onClose: metrics.countTunnel,
  }
  const sides = new Roster<Side>()
  const context: SessionContext = {
    gate,
    newRequestId,
    heads: keep(new Deadlines(settings().timeouts.headSeconds * 1000, clock)),
    lingers: keep(new Deadlines(LINGER_MS, clock)),
    dialTunnel: (permit) => wayOut.dialTunnel(permit),
    startTunnel: (tunnel) => startTunnel(tunnels, tunnel),
    forward: (socket, client) => forwarder.serve(socket, client),
    onEmpty: metrics.countEmptyConnection,
    door,
  }
  const serve = (side: Side, client: ClientInfo) => {
    sides.add(side)
    side.onClose(() => sides.remove(side))
    whileUnderway(serveSide(context, side, client)).catch((error: unknown) => {
      logger.error({ fault: faultForLog(error) }, 'a fault while serving a connection; closed')
      side.destroy()
    })
  }
  /** All of it or nothing: what can fail comes before what is put in force. */
  const takeOver = async (config: Config) => {
    const next = compileRuleset(config, machineSets.sets, rules.network.own)
    const nextWayOut = createWayOut(config, clock, onUpstreamFailure, caches.dns)
    try {
      identifier.replace(config.issuers, next.sets)
      policies.replace(config.policy, machineSets.sets)
    } catch (error) {
      identifier.replace(settings().issuers, rules.sets)
      nextWayOut.close()
      throw error
    }
    // What is being resolved or dialled the old way may still come about.
    const { dnsSeconds, connectSeconds } = settings().timeouts
    setTimeout(wayOut.close, Math.max(dnsSeconds, connectSeconds) * 1000).unref()
    wayOut = nextWayOut
    rules = next
    limits.replaceLimits(config.limits)
    registry.setIdleTimeout(config.timeouts.idleSeconds * 1000)
    context.heads.setAfter(config.timeouts.headSeconds * 1000)
    forwarder.setTimeouts(forwarderTimes(config))
    metrics.countPolicy()
    warnOfNoKey(config)
    warnOfTwoSources()
    for (const warning of configWarnings(config)) warn({}, warning)
    await audit.write({ kind: 'admin', action: 'reload', policy_version: policies.version })
    await (
      await recheckTunnels()
    ).over
  }

  const notReady = () =>
    [gate.closedFor(), identifier.isReady() ? undefined : 'keys_unavailable'].filter((reason) => reason !== undefined)
  const cutAll = async () => {
    registry.cutAll('drain_deadline')
    await registry.cutsDone()
  }
  const close = async () => {
    draining = true
    endWaiting()
    registry.cutAll('drain_deadline')
    registry.endCut()
    sides.forEach((side) => side.destroy())
    forwarder.close()
    wayOut.close()
    const deadlineMs = performance.now() + LAST_LINES_MS
    const isBusy = () => registry.size + limits.tunnels + underway + forwarder.open() > 0
    while (isBusy() && performance.now() < deadlineMs) await new Promise((resolve) => setTimeout(resolve, 10))
    for (const closePart of closers.toReversed()) await closePart()
  }
  let closing: Promise<void> | undefined

  return {
    config: settings,
    logger,
    clock,
    audit,
    auditService,
    metrics,
    policies,
    ownKeys,
    state,
    registry,
    door,
    limits,
    instance,
    gate,
    sets: () => rules.sets,
    recheck: recheckTunnels,
    serve,
    notReady,
    setOwnListeners: (own) => {
      rules = compileRuleset(settings(), machineSets.sets, own)
      recheckSoon()
    },
    revokeBound: async (identity) => {
      closeIdentity(identity)
      await (
        await recheckTunnels()
      ).over
    },
    takeOver,
    refuseNew: () => {
      draining = true
      forwarder.drain()
    },
    open: () => registry.size,
    cutAll,
    close: () => (closing ??= close()),
  }
}

/** JSON lines on standard error. */
async function openLogger(level: Config['log']['level']): Promise<GatewayLogger> {
  const { pino } = await import('pino')
  const logger: GatewayLogger = pino({ level }, pino.destination(2))
  return logger
}

function forwarderTimes({ timeouts: { headSeconds, idleSeconds } }: Config) {
  return { headTimeoutMs: headSeconds * 1000, idleTimeoutMs: idleSeconds * 1000 }
}
