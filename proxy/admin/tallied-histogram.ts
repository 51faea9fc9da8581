/** A histogram whose observations are additions to plain numbers: what prom-client does for each of its own costs more than a decision. */
import { Gauge, Histogram, type Registry } from 'prom-client'

/** Observations of one series. */
export class Buckets {
  readonly bounds: readonly number[]
  /** Not cumulated; the last is for what is above every bound. */
  readonly counts: number[]
  sum = 0

  /** Bounds go up; an observation belongs to the first that is not below it. */
  constructor(bounds: readonly number[]) {
    this.bounds = bounds
    this.counts = new Array<number>(bounds.length + 1).fill(0)
  }

  /** Adds one. What is no number, or below zero (a clock that was put back), counts as zero. */
  observe(value: number): void {
    const { bounds, counts } = this
    const seen = value > 0 ? value : 0
    let index = 0
    while (index < bounds.length && seen > (bounds[index] ?? Infinity)) index += 1
    counts[index] = (counts[index] ?? 0) + 1
    this.sum += seen
  }
}

type Sample = Awaited<ReturnType<Histogram['get']>>
type SampleValue = Sample['values'][number]

/** What {@link exposeHistogram} takes: one series, or one for each value of a label. */
export interface HistogramSeries {
  readonly name: string
  readonly help: string
  readonly label?: string
  readonly series: readonly (readonly [value: string, Buckets])[]
}

/** Adds the histogram to a registry; its numbers are read at each scrape. */
export function exposeHistogram(registry: Registry, series: HistogramSeries): void {
  registry.registerMetric(new TalliedHistogram(series))
}

/** A gauge to prom-client, whose gauges are asked for all that they say; a histogram to whoever scrapes. */
class TalliedHistogram extends Gauge {
  readonly #series: HistogramSeries
  /** For its head alone. */
  readonly #empty: Histogram

  constructor(series: HistogramSeries) {
    const { name, help } = series
    super({ name, help, registers: [] })
    this.#series = series
    this.#empty = new Histogram({ name, help, registers: [] })
  }

  override async get(): Promise<Sample> {
    const { name, label, series } = this.#series
    const values = series.flatMap(([value, buckets]) =>
      valuesOf(name, label === undefined ? {} : { [label]: value }, buckets),
    )
    return { ...(await this.#empty.get()), values }
  }
}

function valuesOf(
  name: string,
  labels: Readonly<Record<string, string>>,
  { bounds, counts, sum }: Buckets,
): SampleValue[] {
  let count = 0
  const buckets = counts.map((more, index) => {
    count += more
    return { metricName: `${name}_bucket`, labels: { ...labels, le: bounds[index] ?? '+Inf' }, value: count }
  })
  return [
    ...buckets,
    { metricName: `${name}_sum`, labels, value: sum },
    { metricName: `${name}_count`, labels, value: count },
  ]
}
