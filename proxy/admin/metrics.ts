/**
 * What operators count: connections, tunnels, bytes, steps, caches, the audit log, keys, the process. Every label has a closed set of values;
 * none is made from a host, a token, a tenant or a path. Counting adds to plain numbers; all else happens when somebody scrapes.
 */
import type { SinkStatus } from '../audit/sinks/shipper.ts'
import type { CacheCounts } from '../cache-counts.ts'
import type { CloseReason, Reason } from '../reasons.ts'
import type { Dialect } from '../request.ts'
import { measureSinks } from './audit-metrics.ts'
import { Exposition, type MetricsRead } from './exposition.ts'
import type { WorkerCounts } from './workers-view.ts'
import { measureProcess } from './process-metrics.ts'

/** How a look at an issuer's keys ended. */
type KeyRefreshResult = 'loaded' | 'unchanged' | 'failed'

/** A part of what a connection waits for before its bytes may flow. */
const STEPS = ['identity', 'policy', 'dns', 'connect'] as const

/** How long the steps of one connection took, in milliseconds; absent for a step that it did not come to. */
export interface SetUpTimes {
  readonly identityMs?: number | undefined
  readonly policyMs?: number | undefined
  readonly dnsMs?: number | undefined
  readonly connectMs?: number | undefined
  /** From the whole request to its line in the audit log; only of what was let out. */
  readonly totalMs?: number | undefined
}

/** What happened, for the counters. Every call is synchronous and cheap. */
export interface Metrics {
  /** One request was answered; `reason` says why it was refused, or failed. */
  readonly countConnection: (dialect: Dialect, decision: 'allow' | 'deny', reason?: Reason) => void
  /** The same request, once more is known than its outcome. */
  readonly countSetUp: (times: SetUpTimes) => void
  /** A connection closed before it sent a byte: port scans and health checks. They leave no audit line. */
  readonly countEmptyConnection: () => void
  /** A connection of a client who is turned away was closed unread. */
  readonly countTurnedAway: () => void
  /** A tunnel ended. Bytes in are origin to client. */
  readonly countTunnel: (tunnel: TunnelEnd) => void
  readonly countAuditLines: (lines: number) => void
  /** The audit log was written to; the first of the lines had waited so long. */
  readonly countAuditWrite: (waitedMs: number) => void
  /** Lines that were lost for good. */
  readonly countAuditLost: (lines: number) => void
  readonly countKeyRefresh: (result: KeyRefreshResult) => void
  /** A configuration came into force. */
  readonly countPolicy: () => void
  /** In the Prometheus text format. */
  readonly render: () => Promise<string>
  /** The same as data, to be put together with that of other processes. */
  readonly read: () => Promise<MetricsRead>
  /** Of {@link render}. */
  readonly contentType: string
  /** Ends what it measures by itself; idempotent. */
  readonly close: () => void
}

/** What {@link Metrics.countTunnel} takes. */
interface TunnelEnd {
  readonly closeReason: CloseReason
  readonly durationMs: number
  readonly bytesIn: number
  readonly bytesOut: number
}

/** Bytes that open tunnels have carried so far. */
export interface OpenBytes {
  readonly bytesIn: number
  readonly bytesOut: number
}

/** Settings of {@link createMetrics}. All functions are asked at every scrape, and at no other time. */
export interface MetricsOptions {
  /** Version of the package, for `sallyport_build_info`. */
  readonly version: string
  readonly activeTunnels: () => number
  /** So that the bytes of a long tunnel are seen before its end. Absent: they count when it ends. */
  readonly openBytes?: () => OpenBytes
  /** `limits.tunnels`. */
  readonly tunnelLimit?: () => number
  /** Whether the gateway should get new connections. */
  readonly isReady?: () => boolean
  /** Version of the operator's policy, a short hash. */
  readonly policyVersion?: () => string
  /** By the name of the cache: a closed set. */
  readonly caches?: Readonly<Record<string, CacheCounts>>
  /** Seconds since the audit log could be written to for the last time; 0 while it can. */
  readonly auditUnwritableSeconds?: () => number
  /** Absent: policies of tenants are in no files. */
  readonly tenantFiles?: () => { readonly faults: readonly unknown[]; readonly isStale: boolean } | undefined
  /** Absent: no audit sinks. */
  readonly auditSinks?: () => Promise<readonly SinkStatus[]>
  /** Absent: the gateway is one process, or this is a worker. */
  readonly workers?: () => WorkerCounts
  /** What became of the spans of traces, by result: a closed set. Absent: no tracing. */
  readonly traceSpans?: () => Readonly<Record<string, number>>
}

const TUNNEL_SECONDS = [0.1, 0.5, 1, 5, 15, 60, 300, 1_800, 7_200, 43_200]
/** From a remembered verdict to the longest time-out. */
const STEP_SECONDS = [
  0.000_01, 0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
]
const AUDIT_SECONDS = [0.000_1, 0.000_5, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10]
const NO_BYTES: OpenBytes = { bytesIn: 0, bytesOut: 0 }

/** Creates the counters of one gateway, in a registry of their own. */
export function createMetrics(options: MetricsOptions): Metrics {
  const shown = new Exposition()
  const addConnection = shown.tally(
    'connections_total',
    'Requests to go out, by outcome; reason is none when one was let out.',
    ['dialect', 'decision', 'reason'],
  )
  const empty = shown.counter('empty_connections_total', 'Connections that closed before they sent a byte.')
  const turnedAway = shown.counter(
    'turned_away_connections_total',
    'Connections that were closed unread, since too much of their address came to nothing.',
  )
  const addClose = shown.tally('tunnel_closes_total', 'Tunnels that ended, by reason.', ['close_reason'])
  const addLines = shown.tally('audit_lines_total', 'Lines of callers that the audit log took.')
  const auditLost = shown.counter('audit_lost_total', 'Lines of the audit log that were lost for good.')
  const refreshes = shown.counter('jwks_refresh_total', "Looks at issuers' keys, by result.", ['result'])
  for (const result of ['loaded', 'unchanged', 'failed'] as const) refreshes.inc({ result }, 0)
  let generation = 0
  shown.gauge('policy_generation', 'Configurations that came into force since the start.', () => generation, 'max')

  const durations = shown.histogram('tunnel_duration_seconds', 'How long tunnels were open.', TUNNEL_SECONDS)
  const setUp = shown.histogram(
    'setup_seconds',
    'From a whole request to its line in the audit log, of what was let out.',
    STEP_SECONDS,
  )
  const { identity, policy, dns, connect } = shown.histograms(
    'setup_step_seconds',
    'Parts of the set-up, also of what was refused in or after them.',
    STEP_SECONDS,
    'step',
    STEPS,
  )
  const auditWrites = shown.histogram(
    'audit_write_seconds',
    'From a line to its place in the file, of the first line of each write.',
    AUDIT_SECONDS,
  )
  const ended = { bytesIn: 0, bytesOut: 0 }
  exposeRead(shown, options, ended)
  const closeProcess = measureProcess(shown.registry)

  return {
    countConnection: (dialect, decision, reason) => addConnection(1, dialect, decision, reason ?? 'none'),
    countSetUp: ({ identityMs, policyMs, dnsMs, connectMs, totalMs }) => {
      if (identityMs !== undefined) identity.observe(identityMs / 1000)
      if (policyMs !== undefined) policy.observe(policyMs / 1000)
      if (dnsMs !== undefined) dns.observe(dnsMs / 1000)
      if (connectMs !== undefined) connect.observe(connectMs / 1000)
      if (totalMs !== undefined) setUp.observe(totalMs / 1000)
    },
    countEmptyConnection: () => empty.inc(),
    countTurnedAway: () => turnedAway.inc(),
    countTunnel: ({ closeReason, durationMs, bytesIn, bytesOut }) => {
      addClose(1, closeReason)
      durations.observe(durationMs / 1000)
      ended.bytesIn += bytesIn
      ended.bytesOut += bytesOut
    },
    countAuditLines: (lines) => addLines(lines),
    countAuditWrite: (waitedMs) => auditWrites.observe(waitedMs / 1000),
    countAuditLost: (lines) => auditLost.inc(lines),
    countKeyRefresh: (result) => refreshes.inc({ result }),
    countPolicy: () => {
      generation += 1
    },
    render: () => shown.render(),
    read: () => shown.read(),
    contentType: shown.registry.contentType,
    close: closeProcess,
  }
}

/** What is not counted here, only read. */
function exposeRead(shown: Exposition, options: MetricsOptions, ended: OpenBytes): void {
  const { isReady, policyVersion, traceSpans, auditSinks, tenantFiles, openBytes = () => NO_BYTES } = options
  const bytes = shown.counter('bytes_total', 'Bytes relayed, those of open tunnels included; in is origin to client.', [
    'direction',
  ])
  shown.mirror(bytes, { direction: 'in' }, () => ended.bytesIn + openBytes().bytesIn)
  shown.mirror(bytes, { direction: 'out' }, () => ended.bytesOut + openBytes().bytesOut)

  const lookups = shown.counter('cache_lookups_total', 'What caches were asked for, by whether they had it.', [
    'cache',
    'result',
  ])
  for (const [cache, counts] of Object.entries(options.caches ?? {})) {
    shown.mirror(lookups, { cache, result: 'hit' }, () => counts.hits)
    shown.mirror(lookups, { cache, result: 'miss' }, () => counts.misses)
  }

  shown.gauge('active_tunnels', 'Tunnels that are open now.', options.activeTunnels)
  shown.gauge('tunnel_limit', 'Tunnels that may be open at a time.', options.tunnelLimit, 'first')
  shown.gauge('ready', '1 while the gateway should get new connections.', isReady && (() => (isReady() ? 1 : 0)), 'min')
  shown.gauge(
    'audit_unwritable_seconds',
    'Since when the audit log can not be written to; 0 while it can.',
    options.auditUnwritableSeconds,
    'max',
  )
  if (policyVersion !== undefined)
    shown.info(
      'policy_info',
      "Always 1; the label is the version of the operator's policy that is in force, a hash.",
      () => ({ version: policyVersion() }),
    )
  shown.gauge(
    'policy_file_faults',
    'Files of policies that can not be used now.',
    tenantFiles && (() => tenantFiles()?.faults.length ?? 0),
    'max',
  )
  shown.gauge(
    'policy_files_stale',
    '1 when the files of policies were out of reach for so long that nobody has one.',
    tenantFiles && (() => (tenantFiles()?.isStale === true ? 1 : 0)),
    'max',
  )
  const { workers } = options
  shown.gauge('workers', 'Worker processes that there are to be.', workers && (() => workers().configured))
  shown.gauge('workers_serving', 'Worker processes that serve now.', workers && (() => workers().serving))
  if (workers !== undefined) {
    const replaced = shown.counter('workers_replaced_total', 'Worker processes that took the place of one that ended.')
    shown.mirror(replaced, {}, () => workers().replaced)
  }
  if (traceSpans !== undefined) {
    const spans = shown.counter('trace_spans_total', 'Spans of traces, by what became of them.', ['result'])
    for (const result of Object.keys(traceSpans())) shown.mirror(spans, { result }, () => traceSpans()[result] ?? 0)
  }
  const build = { version: options.version, node: process.versions.node }
  shown.info('build_info', 'Always 1; the labels say what runs.', build)
  if (auditSinks !== undefined) measureSinks(shown.registry, auditSinks)
}
