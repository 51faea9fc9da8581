/** What is scraped: counters, gauges and histograms that stay plain numbers until somebody asks. What prom-client does for each of its own calls costs more than a decision. */
import { Counter, Gauge, Registry } from 'prom-client'
import { Buckets, exposeHistogram } from './tallied-histogram.ts'

const PREFIX = 'sallyport_'

/** What one scrape reads, as data. */
export type MetricsRead = readonly MetricRead[]

interface MetricRead {
  readonly name: string
  readonly help: string
  /** `counter`, `gauge` or `histogram`. */
  readonly type: unknown
  readonly aggregator: string
  readonly values: readonly {
    readonly value: number
    readonly labels: Partial<Record<string, string | number>>
    /** Of a histogram's parts. */
    readonly metricName?: string | undefined
  }[]
}

/** What becomes of the gauges of several processes: they add up, or one of them is shown. Counters and histograms always add up. */
export type Together = 'sum' | 'max' | 'min' | 'first'

/** The metrics of one gateway, in a registry of their own. Names come without the prefix `sallyport_`. */
export class Exposition {
  readonly registry = new Registry()
  readonly #beforeScrape: (() => void)[] = []

  /** A counter that is added to so seldom that it may cost. */
  counter<Label extends string>(name: string, help: string, labelNames: readonly Label[] = []): Counter<Label> {
    return new Counter({ name: PREFIX + name, help, labelNames, registers: [this.registry] })
  }

  /** A counter that adds up, and hands on at a scrape; returns what adds. The values of the labels come in the order of their names. */
  tally(
    name: string,
    help: string,
    labelNames: readonly string[] = [],
  ): (by: number, ...values: readonly string[]) => void {
    const counter = this.counter(name, help, labelNames)
    const counts = new Map<string, number>()
    this.#beforeScrape.push(() => {
      for (const [key, count] of counts) {
        const values = key.split(' ')
        counter.inc(Object.fromEntries(labelNames.map((label, index) => [label, values[index] ?? ''])), count)
      }
      counts.clear()
    })
    return (by, ...values) => {
      const key = values.length <= 1 ? (values[0] ?? '') : values.join(' ')
      counts.set(key, (counts.get(key) ?? 0) + by)
    }
  }

  /** Shows in a counter what somebody else counts; it never goes back. */
  mirror<Label extends string>(
    to: Counter<Label>,
    labels: Readonly<Partial<Record<Label, string>>>,
    read: () => number,
  ): void {
    let told = 0
    to.inc(labels, 0)
    this.#beforeScrape.push(() => {
      const now = Math.max(told, read())
      to.inc(labels, now - told)
      told = now
    })
  }

  /** A gauge that is read at a scrape; without `read` there is none. */
  gauge(name: string, help: string, read: (() => number) | undefined, together: Together = 'sum'): void {
    if (read === undefined) return
    const gauge = new Gauge({ name: PREFIX + name, help, registers: [this.registry], aggregator: together })
    this.#beforeScrape.push(() => gauge.set(read()))
  }

  /** A gauge that is always 1; its labels say something. With a function they are read at a scrape, and the old ones go. */
  info(name: string, help: string, labels: Record<string, string> | (() => Record<string, string>)): void {
    const read = typeof labels === 'function' ? labels : () => labels
    const gauge = new Gauge({
      name: PREFIX + name,
      help,
      labelNames: Object.keys(read()),
      registers: [this.registry],
      aggregator: 'first',
    })
    this.#beforeScrape.push(() => {
      gauge.reset()
      gauge.set(read(), 1)
    })
  }

  /** A histogram of one series; what is returned is observed. */
  histogram(name: string, help: string, bounds: readonly number[]): Buckets {
    const buckets = new Buckets(bounds)
    exposeHistogram(this.registry, { name: PREFIX + name, help, series: [['', buckets]] })
    return buckets
  }

  /** A histogram with a series for each value of a label. */
  histograms<Value extends string>(
    name: string,
    help: string,
    bounds: readonly number[],
    label: string,
    values: readonly Value[],
  ): Readonly<Record<Value, Buckets>> {
    const series = values.map((value) => [value, new Buckets(bounds)] as const)
    exposeHistogram(this.registry, { name: PREFIX + name, help, label, series })
    return Object.fromEntries(series) as Record<Value, Buckets>
  }

  /** All of it, in the Prometheus text format. */
  render(): Promise<string> {
    for (const step of this.#beforeScrape) step()
    return this.registry.metrics()
  }

  /** The same as data. */
  read(): Promise<MetricsRead> {
    for (const step of this.#beforeScrape) step()
    return this.registry.getMetricsAsJSON()
  }
}
