/** Reads the text format of Prometheus, as far as the gateway writes it. */

/** One value, and its labels. */
export interface Sample {
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

/** Samples by the name of their metric. */
export type Metrics = ReadonlyMap<string, readonly Sample[]>

const LINE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{([^}]*)\})? (\S+)$/
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"/g

/** What can't be read is passed over. */
export function parseMetrics(text: string): Metrics {
  const metrics = new Map<string, Sample[]>()
  for (const line of text.split('\n')) {
    const [, name, labels = '', value] = LINE.exec(line) ?? []
    if (name === undefined || value === undefined) continue
    const sample = {
      labels: Object.fromEntries([...labels.matchAll(LABEL)].map(([, label = '', text = '']) => [label, text])),
      value: Number(value),
    }
    const known = metrics.get(name)
    if (known) known.push(sample)
    else metrics.set(name, [sample])
  }
  return metrics
}

/** The sum of all samples for which `fits` holds. */
export function sumOf(
  metrics: Metrics,
  name: string,
  fits: (labels: Sample['labels']) => boolean = () => true,
): number {
  return (metrics.get(name) ?? []).reduce((sum, { labels, value }) => sum + (fits(labels) ? value : 0), 0)
}
