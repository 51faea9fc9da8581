/** Several logs may be sent to one sink, each from a place of its own: how it is doing over all of them. */
import type { SinkStatus } from './shipper.ts'

/** One status for each name; counts add up, and the oldest line that waits counts. */
export function sinksByName(all: readonly SinkStatus[]): readonly SinkStatus[] {
  return [...Map.groupBy(all, ({ name }) => name).values()].flatMap((same) => {
    const [first, ...others] = same
    return first === undefined ? [] : [others.reduce(together, first)]
  })
}

function together(one: SinkStatus, other: SinkStatus): SinkStatus {
  return {
    name: one.name,
    lagRecords: one.lagRecords + other.lagRecords,
    lagSeconds: Math.max(one.lagSeconds, other.lagSeconds),
    delivered: one.delivered + other.delivered,
    failures: one.failures + other.failures,
    refused: one.refused + other.refused,
    missing: one.missing + other.missing,
    segment: Math.min(one.segment, other.segment),
  }
}
