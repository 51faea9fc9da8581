/** What operators see of the audit log's sinks. The labels are the names that the configuration gives them. */
import { Gauge, type Registry } from 'prom-client'
import type { SinkStatus } from '../audit/sinks/shipper.ts'

const MEASURES = [
  ['lag_records', 'Lines of the audit log that a sink has not taken.', (sink) => sink.lagRecords],
  ['lag_seconds', 'Age of the oldest line that waits for a sink.', (sink) => sink.lagSeconds],
  ['delivered_records', 'Lines that a sink has taken since the start.', (sink) => sink.delivered],
  ['failures', 'Attempts to send to a sink that failed since the start.', (sink) => sink.failures],
  [
    'refused_records',
    'Lines that a sink will never take, since the start; they stay in the files.',
    (sink) => sink.refused,
  ],
  [
    'missing_records',
    'Lines that were gone from the files before a sink had taken them, since the start.',
    (sink) => sink.missing,
  ],
] as const satisfies readonly (readonly [string, string, (sink: SinkStatus) => number])[]

/** Adds `sallyport_audit_sink_…{sink}`; `read` is asked once a scrape. */
export function measureSinks(registry: Registry, read: () => Promise<readonly SinkStatus[]>): void {
  let asked: Promise<readonly SinkStatus[]> | undefined
  const readOnce = (): Promise<readonly SinkStatus[]> =>
    (asked ??= read().finally(() => setImmediate(() => (asked = undefined))))
  for (const [name, help, valueOf] of MEASURES) {
    new Gauge({
      name: `sallyport_audit_sink_${name}`,
      help,
      labelNames: ['sink'],
      registers: [registry],
      aggregator: name === 'lag_seconds' ? 'max' : 'sum',
      async collect() {
        for (const sink of await readOnce()) this.set({ sink: sink.name }, valueOf(sink))
      },
    })
  }
}
