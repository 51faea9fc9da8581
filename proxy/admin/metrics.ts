/**
 * What operators count: connections, tunnels, bytes, the audit log, keys, the process. Every label has a closed set of values;
 * none is made from a host, a token, a tenant or a path.
 */
import { readdirSync } from 'node:fs'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { Counter, Gauge, Histogram, Registry } from 'prom-client'
import type { SinkStatus } from '../audit/sinks/shipper.ts'
import type { CloseReason, Reason } from '../reasons.ts'
import type { Dialect } from '../request.ts'
import { measureSinks } from './audit-metrics.ts'

/** How a look at an issuer's keys ended. */
type KeyRefreshResult = 'loaded' | 'unchanged' | 'failed'

/** What happened, for the counters. Every call is synchronous and cheap. */
export interface Metrics {
  /** One request was answered; `reason` says why it was refused, or failed. */
  readonly countConnection: (dialect: Dialect, decision: 'allow' | 'deny', reason?: Reason) => void
  /** A connection closed before it sent a byte: port scans and health checks. They leave no audit line. */
  readonly countEmptyConnection: () => void
  /** A tunnel ended. Bytes in are origin to client. */
  readonly countTunnel: (tunnel: TunnelEnd) => void
  readonly countAuditLines: (lines: number) => void
  /** Lines that were lost for good. */
  readonly countAuditLost: (lines: number) => void
  readonly countKeyRefresh: (result: KeyRefreshResult) => void
  /** A configuration came into force. */
  readonly countPolicy: () => void
  /** In the Prometheus text format. */
  readonly render: () => Promise<string>
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

/** Settings of {@link createMetrics}. */
export interface MetricsOptions {
  /** Version of the package, for `sallyport_build_info`. */
  readonly version: string
  /** Asked at every scrape. */
  readonly activeTunnels: () => number
  /** Likewise; absent: no audit sinks. */
  readonly auditSinks?: () => Promise<readonly SinkStatus[]>
}

const TUNNEL_SECONDS = [0.1, 0.5, 1, 5, 15, 60, 300, 1_800, 7_200, 43_200]

/** Creates the counters of one gateway, in a registry of their own. */
export function createMetrics(options: MetricsOptions): Metrics {
  const registry = new Registry()
  const registers = [registry]
  const counter = <Label extends string>(
    name: string,
    help: string,
    labelNames: readonly Label[] = [],
  ): Counter<Label> => new Counter({ name: `sallyport_${name}`, help, labelNames, registers })

  /** Adds up, and hands it on at the next scrape: what prom-client does for each call costs more than a decision. */
  const handOn: (() => void)[] = []
  const tally = <Label extends string>(
    to: Counter<Label>,
    labelsOf: (...values: readonly string[]) => Readonly<Partial<Record<Label, string>>>,
  ): ((by: number, ...values: readonly string[]) => void) => {
    const counts = new Map<string, number>()
    handOn.push(() => {
      for (const [key, count] of counts) to.inc(labelsOf(...key.split(' ')), count)
      counts.clear()
    })
    return (by, ...values) => {
      const key = values.length === 1 ? (values[0] ?? '') : values.join(' ')
      counts.set(key, (counts.get(key) ?? 0) + by)
    }
  }

  const connections = counter(
    'connections_total',
    'Requests to go out, by outcome; reason is none when one was let out.',
    ['dialect', 'decision', 'reason'],
  )
  const empty = counter('empty_connections_total', 'Connections that closed before they sent a byte.')
  const bytes = counter('bytes_total', 'Bytes relayed; in is origin to client.', ['direction'])
  const closes = counter('tunnel_closes_total', 'Tunnels that ended, by reason.', ['close_reason'])
  const auditLines = counter('audit_lines_total', 'Lines written to the audit log.')
  const auditLost = counter('audit_lost_total', 'Lines of the audit log that were lost for good.')
  const refreshes = counter('jwks_refresh_total', "Looks at issuers' keys, by result.", ['result'])
  const duration = new Histogram({
    name: 'sallyport_tunnel_duration_seconds',
    help: 'How long tunnels were open.',
    buckets: TUNNEL_SECONDS,
    registers,
  })
  const generation = new Gauge({
    name: 'sallyport_policy_generation',
    help: 'Configurations that came into force since the start.',
    registers,
  })
  new Gauge({
    name: 'sallyport_active_tunnels',
    help: 'Tunnels that are open now.',
    registers,
    collect() {
      this.set(options.activeTunnels())
    },
  })
  new Gauge({
    name: 'sallyport_build_info',
    help: 'Always 1; the labels say what runs.',
    labelNames: ['version', 'node'],
    registers,
  }).set({ version: options.version, node: process.versions.node }, 1)
  for (const direction of ['in', 'out']) bytes.inc({ direction }, 0)
  if (options.auditSinks !== undefined) measureSinks(registry, options.auditSinks)
  const closeProcess = measureProcess(registry)

  const addConnection = tally(connections, (dialect = '', decision = '', reason = '') => ({
    dialect,
    decision,
    reason,
  }))
  const addClose = tally(closes, (reason = '') => ({ close_reason: reason }))
  const addBytes = tally(bytes, (direction = '') => ({ direction }))
  const addLines = tally(auditLines, () => ({}))
  return {
    countConnection: (dialect, decision, reason) => addConnection(1, dialect, decision, reason ?? 'none'),
    countEmptyConnection: () => empty.inc(),
    countTunnel: ({ closeReason, durationMs, bytesIn, bytesOut }) => {
      addClose(1, closeReason)
      duration.observe(durationMs / 1000)
      addBytes(bytesIn, 'in')
      addBytes(bytesOut, 'out')
    },
    countAuditLines: (lines) => addLines(lines, ''),
    countAuditLost: (lines) => auditLost.inc(lines),
    countKeyRefresh: (result) => refreshes.inc({ result }),
    countPolicy: () => generation.inc(),
    render: () => {
      for (const hand of handOn) hand()
      return registry.metrics()
    },
    contentType: registry.contentType,
    close: closeProcess,
  }
}

/** The process itself. prom-client's own set is not used: its observer of garbage collection can't be ended, and a process may hold several gateways. */
function measureProcess(registry: Registry): () => void {
  const registers = [registry]
  const gauge = (name: string, help: string, read: () => number | undefined): void => {
    new Gauge({
      name: `sallyport_process_${name}`,
      help,
      registers,
      collect() {
        const value = read()
        if (value !== undefined) this.set(value)
      },
    })
  }
  const delay = monitorEventLoopDelay({ resolution: 20 })
  delay.enable()
  gauge('cpu_seconds', 'CPU time of the process since its start.', () => {
    const { user, system } = process.cpuUsage()
    return (user + system) / 1e6
  })
  gauge('resident_memory_bytes', 'Resident memory.', () => process.memoryUsage.rss())
  gauge('heap_used_bytes', 'Used JavaScript heap.', () => process.memoryUsage().heapUsed)
  gauge('start_time_seconds', 'Start of the process, since the epoch.', () => Date.now() / 1000 - process.uptime())
  gauge('open_fds', 'Open file descriptors.', countDescriptors)
  gauge('eventloop_delay_p99_seconds', 'Delay of the event loop since the last scrape, 99th percentile.', () => {
    const value = delay.percentile(99) / 1e9
    delay.reset()
    return value
  })
  return () => void delay.disable()
}

/** Linux only; elsewhere the gauge stays at zero. */
function countDescriptors(): number | undefined {
  try {
    return readdirSync('/proc/self/fd').length
  } catch {
    return undefined
  }
}
