import { afterEach, expect, test } from 'vitest'
import { createMetrics, type Metrics, type MetricsOptions } from '../../../proxy/admin/metrics.ts'

let open: Metrics[] = []
afterEach(() => {
  for (const metrics of open) metrics.close()
  open = []
})

function make(options: Partial<MetricsOptions> = {}): Metrics {
  const metrics = createMetrics({ version: '1.2.3', activeTunnels: () => 0, ...options })
  open.push(metrics)
  return metrics
}

test('what was counted is rendered, under names of the product', async () => {
  let tunnels = 0
  const metrics = make({ activeTunnels: () => tunnels })
  tunnels = 3
  metrics.countConnection('connect', 'allow')
  metrics.countConnection('socks5', 'deny', 'host_not_allowed')
  metrics.countConnection('socks5', 'deny', 'host_not_allowed')
  metrics.countEmptyConnection()
  metrics.countTunnel({ closeReason: 'token_expired', durationMs: 700, bytesIn: 11, bytesOut: 5 })
  metrics.countAuditLines(4)
  metrics.countAuditLost(2)
  metrics.countKeyRefresh('failed')
  metrics.countPolicy()
  const lines = (await metrics.render()).split('\n')
  expect(lines).toEqual(
    expect.arrayContaining([
      'sallyport_connections_total{dialect="connect",decision="allow",reason="none"} 1',
      'sallyport_connections_total{dialect="socks5",decision="deny",reason="host_not_allowed"} 2',
      'sallyport_empty_connections_total 1',
      'sallyport_tunnel_closes_total{close_reason="token_expired"} 1',
      'sallyport_tunnel_duration_seconds_bucket{le="0.5"} 0',
      'sallyport_tunnel_duration_seconds_bucket{le="1"} 1',
      'sallyport_bytes_total{direction="in"} 11',
      'sallyport_bytes_total{direction="out"} 5',
      'sallyport_audit_lines_total 4',
      'sallyport_audit_lost_total 2',
      'sallyport_jwks_refresh_total{result="failed"} 1',
      'sallyport_policy_generation 1',
      'sallyport_active_tunnels 3',
      `sallyport_build_info{version="1.2.3",node="${process.versions.node}"} 1`,
    ]),
  )
  const names = lines.filter((line) => line !== '' && !line.startsWith('#'))
  expect(names.filter((line) => !line.startsWith('sallyport_'))).toEqual([])
})

test('a histogram has every bucket, cumulated, and counts what no clock should say as nothing', async () => {
  const metrics = make()
  metrics.countSetUp({ identityMs: 0.05, policyMs: 0.5, dnsMs: 3, connectMs: 40, totalMs: 44 })
  metrics.countSetUp({ identityMs: 2, policyMs: Number.NaN, dnsMs: -7, connectMs: 60_000 })
  metrics.countAuditWrite(0.2)
  const lines = (await metrics.render()).split('\n')
  const step = (name: string) => lines.filter((line) => line.includes(`{step="${name}"`))
  expect(step('identity')).toEqual(
    expect.arrayContaining([
      'sallyport_setup_step_seconds_bucket{step="identity",le="0.00001"} 0',
      'sallyport_setup_step_seconds_bucket{step="identity",le="0.0001"} 1',
      'sallyport_setup_step_seconds_bucket{step="identity",le="0.0025"} 2',
      'sallyport_setup_step_seconds_bucket{step="identity",le="+Inf"} 2',
      'sallyport_setup_step_seconds_count{step="identity"} 2',
    ]),
  )
  expect(step('dns')[0]).toBe('sallyport_setup_step_seconds_bucket{step="dns",le="0.00001"} 1')
  expect(step('connect').slice(-4)).toEqual([
    'sallyport_setup_step_seconds_bucket{step="connect",le="10"} 1',
    'sallyport_setup_step_seconds_bucket{step="connect",le="+Inf"} 2',
    'sallyport_setup_step_seconds_sum{step="connect"} 60.04',
    'sallyport_setup_step_seconds_count{step="connect"} 2',
  ])
  expect(lines).toEqual(
    expect.arrayContaining([
      '# TYPE sallyport_setup_seconds histogram',
      'sallyport_setup_seconds_count 1',
      'sallyport_setup_seconds_sum 0.044',
      'sallyport_audit_write_seconds_bucket{le="0.0005"} 1',
    ]),
  )
})

test('what is counted elsewhere is shown, never goes back, and is read at a scrape only', async () => {
  const dns = { hits: 3, misses: 1 }
  let open = { bytesIn: 100, bytesOut: 10 }
  let version = 'aaaa'
  const metrics = make({
    openBytes: () => open,
    tunnelLimit: () => 9,
    isReady: () => false,
    policyVersion: () => version,
    caches: { dns },
    auditUnwritableSeconds: () => 12,
    traceSpans: () => ({ sent: 7, dropped: 0 }),
  })
  expect(await metrics.render()).toContain('sallyport_bytes_total{direction="in"} 100')
  // The tunnel ends with some bytes more.
  open = { bytesIn: 0, bytesOut: 0 }
  metrics.countTunnel({ closeReason: 'client_closed', durationMs: 1, bytesIn: 120, bytesOut: 10 })
  dns.hits = 5
  version = 'bbbb'
  const lines = (await metrics.render()).split('\n')
  expect(lines).toEqual(
    expect.arrayContaining([
      'sallyport_bytes_total{direction="in"} 120',
      'sallyport_bytes_total{direction="out"} 10',
      'sallyport_cache_lookups_total{cache="dns",result="hit"} 5',
      'sallyport_cache_lookups_total{cache="dns",result="miss"} 1',
      'sallyport_tunnel_limit 9',
      'sallyport_ready 0',
      'sallyport_audit_unwritable_seconds 12',
      'sallyport_trace_spans_total{result="sent"} 7',
      'sallyport_trace_spans_total{result="dropped"} 0',
    ]),
  )
  // One series, whatever the version was before.
  expect(lines.filter((line) => line.startsWith('sallyport_policy_info'))).toEqual([
    'sallyport_policy_info{version="bbbb"} 1',
  ])
})

test('the process is measured', async () => {
  const text = await make().render()
  for (const name of [
    'cpu_seconds',
    'resident_memory_bytes',
    'heap_used_bytes',
    'start_time_seconds',
    'eventloop_delay_max_seconds',
    'eventloop_delay_p99_seconds',
  ]) {
    expect(text).toMatch(new RegExp(`^sallyport_process_${name} [\\d.e-]+$`, 'm'))
  }
})

test('two gateways in one process count apart', async () => {
  const first = make()
  const second = make()
  first.countEmptyConnection()
  expect(await first.render()).toContain('sallyport_empty_connections_total 1')
  expect(await second.render()).toContain('sallyport_empty_connections_total 0')
})
