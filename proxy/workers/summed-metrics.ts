/**
 * The metrics of all processes of a gateway as one. Counters never go back: what a worker had counted when it was last asked goes on counting after its end,
 * and one that does not answer counts with what it said last.
 */
import { AggregatorRegistry } from 'prom-client'
import type { MetricsRead } from '../admin/exposition.ts'

/** Remembers what each worker counted. */
export class SummedMetrics<Member> {
  readonly #last = new Map<Member, MetricsRead>()
  /** Of workers that are gone. */
  #gone: MetricsRead = []

  /** What a worker counts now. */
  note(member: Member, read: MetricsRead): void {
    this.#last.set(member, read)
  }

  /** It is gone. */
  leave(member: Member): void {
    const last = this.#last.get(member)
    this.#last.delete(member)
    if (last !== undefined) this.#gone = sum([this.#gone, last.filter(addsUp)])
  }

  /** In the Prometheus text format; `here` is of the supervising process. */
  async render(here: MetricsRead): Promise<string> {
    return AggregatorRegistry.aggregate([here, ...this.#last.values(), this.#gone].map((read) => [...read])).metrics()
  }
}

/** A gauge is of a process that is there. */
function addsUp({ type }: MetricsRead[number]): boolean {
  return type === 'counter' || type === 'histogram'
}

/** By name and labels. */
function sum(all: readonly MetricsRead[]): MetricsRead {
  return [...Map.groupBy(all.flat(), ({ name }) => name).values()].flatMap((same) => {
    const [first] = same
    if (first === undefined) return []
    const series = Map.groupBy(
      same.flatMap(({ values }) => values),
      (value) => JSON.stringify([value.metricName, value.labels]),
    )
    const values = [...series.values()].flatMap(([one, ...others]) =>
      one === undefined ? [] : [{ ...one, value: others.reduce((total, { value }) => total + value, one.value) }],
    )
    return [{ ...first, values }]
  })
}
