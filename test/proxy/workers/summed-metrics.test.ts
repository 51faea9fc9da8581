import { describe, expect, test } from 'vitest'
import { createMetrics, type Metrics } from '../../../proxy/admin/metrics.ts'
import { parseSeries } from '../../integration/scrape.ts'
import { SummedMetrics } from '../../../proxy/workers/summed-metrics.ts'

/** One process that counted so much. */
async function counting(work: (metrics: Metrics) => void, activeTunnels = 0) {
  const metrics = createMetrics({ version: '1', activeTunnels: () => activeTunnels, isReady: () => activeTunnels < 5 })
  work(metrics)
  const read = JSON.parse(JSON.stringify(await metrics.read())) as Awaited<ReturnType<Metrics['read']>>
  metrics.close()
  return read
}

const closed = (seconds: number) => (metrics: Metrics) => {
  metrics.countConnection('connect', 'allow')
  metrics.countTunnel({ closeReason: 'error', durationMs: seconds * 1000, bytesIn: 10, bytesOut: 1 })
}

async function render(summed: SummedMetrics<string>) {
  const series = parseSeries(await summed.render(await counting(() => undefined)))
  return (name: string, labels: Readonly<Record<string, string>> = {}) =>
    series.find(
      (one) => one.name === `sallyport_${name}` && Object.entries(labels).every(([k, v]) => one.labels[k] === v),
    )?.value
}

describe('metrics of several processes', () => {
  test('counters and histograms add up, gauges as each is meant', async () => {
    const summed = new SummedMetrics<string>()
    summed.note('a', await counting(closed(2), 3))
    summed.note('b', await counting(closed(0.01), 7))
    const value = await render(summed)
    expect(value('connections_total', { dialect: 'connect', decision: 'allow' })).toBe(2)
    expect(value('bytes_total', { direction: 'in' })).toBe(20)
    expect(value('tunnel_duration_seconds_count')).toBe(2)
    expect(value('tunnel_duration_seconds_bucket', { le: '0.1' })).toBe(1)
    expect(value('tunnel_duration_seconds_bucket', { le: '+Inf' })).toBe(2)
    expect(value('active_tunnels')).toBe(10)
    expect(value('ready')).toBe(0)
    expect(value('build_info')).toBe(1)
  })

  test('what one that is gone counted stays, and its gauges go; its successor adds to it', async () => {
    const summed = new SummedMetrics<string>()
    summed.note('a', await counting(closed(2), 3))
    summed.leave('a')
    const gone = await render(summed)
    expect(gone('bytes_total', { direction: 'in' })).toBe(10)
    expect(gone('tunnel_duration_seconds_sum')).toBe(2)
    expect(gone('active_tunnels')).toBe(0)
    expect(gone('ready')).toBe(1)
    summed.note('a again', await counting(closed(2), 1))
    summed.leave('a again')
    summed.note('a third time', await counting(closed(2), 1))
    const third = await render(summed)
    expect(third('bytes_total', { direction: 'in' })).toBe(30)
    expect(third('tunnel_duration_seconds_bucket', { le: '5' })).toBe(3)
  })
})
