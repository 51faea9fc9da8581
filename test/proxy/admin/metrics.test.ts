import { afterEach, expect, test } from 'vitest'
import { createMetrics, type Metrics } from '../../../proxy/admin/metrics.ts'

let open: Metrics[] = []
afterEach(() => {
  for (const metrics of open) metrics.close()
  open = []
})

function make(activeTunnels = () => 0): Metrics {
  const metrics = createMetrics({ version: '1.2.3', activeTunnels })
  open.push(metrics)
  return metrics
}

test('what was counted is rendered, under names of the product', async () => {
  let tunnels = 0
  const metrics = make(() => tunnels)
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

test('the process is measured', async () => {
  const text = await make().render()
  for (const name of [
    'cpu_seconds',
    'resident_memory_bytes',
    'heap_used_bytes',
    'start_time_seconds',
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
