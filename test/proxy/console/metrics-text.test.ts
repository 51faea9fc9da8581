/** The console reads what the gateway writes at `/metrics`. */
import { expect, test } from 'vitest'
import { parseMetrics, sumOf } from '../../../proxy/console/metrics-text.ts'

test('names, labels, values; what can not be read is passed over', () => {
  const metrics = parseMetrics(
    [
      '# HELP sallyport_connections_total Requests.',
      '# TYPE sallyport_connections_total counter',
      'sallyport_connections_total{dialect="connect",decision="allow",reason="none"} 3',
      'sallyport_connections_total{dialect="http",decision="deny",reason="host_not_allowed"} 2.5e1',
      'sallyport_active_tunnels 7',
      'sallyport_build_info{version="1 \\"quoted\\", x",node="24"} 1',
      'garbage',
      '{} 4',
    ].join('\n'),
  )
  expect(sumOf(metrics, 'sallyport_connections_total')).toBe(28)
  expect(sumOf(metrics, 'sallyport_connections_total', ({ decision }) => decision === 'deny')).toBe(25)
  expect(sumOf(metrics, 'sallyport_active_tunnels')).toBe(7)
  expect(sumOf(metrics, 'absent')).toBe(0)
  expect([...metrics.keys()]).toEqual([
    'sallyport_connections_total',
    'sallyport_active_tunnels',
    'sallyport_build_info',
  ])
})
