/** Counts lines of the audit log: how many, which hosts, tenants and reasons were refused most, and when. Memory is bounded, whatever hosts were asked for. */
import type { Found } from '../audit/query.ts'

/** What was counted. */
export interface AuditSummary {
  readonly allowed: number
  readonly refused: number
  readonly reported: number
  readonly credentialsRefused: number
  readonly refusedHosts: Ranking
  readonly refusedTenants: Ranking
  readonly reasons: Ranking
  /** `false` when there were more names than are counted apart. */
  readonly exact: boolean
  /** When it was asked for: refusals in each part of the period. */
  readonly series?: { start: string; refused: number; hosts: number[] }[]
}

/** Most first; equal counts in the order of their names. */
export type Ranking = { name: string; count: number }[]

/** What {@link summarize} is to count. */
export interface SummaryOptions {
  /** Of each ranking. */
  readonly top: number
  /** Counts refusals also in equal parts of a period. */
  readonly series?: { readonly sinceMs: number; readonly untilMs: number; readonly buckets: number }
}

/** Names counted apart, for each ranking; with a series each costs 4 bytes a part. */
const MAX_NAMES = 50_000

/** Reads all of it. */
export async function summarize(
  lines: AsyncIterable<Pick<Found, 'line'>>,
  { top, series }: SummaryOptions,
): Promise<AuditSummary> {
  const totals = { allowed: 0, refused: 0, reported: 0, credentialsRefused: 0 }
  const buckets = series?.buckets ?? 0
  const stepMs = series === undefined ? 1 : Math.max(1, (series.untilMs - series.sinceMs) / series.buckets)
  const bucketOf = (time: string): number =>
    series === undefined
      ? 0
      : Math.min(buckets - 1, Math.max(0, Math.floor((Date.parse(time) - series.sinceMs) / stepMs)))
  const all = new Uint32Array(buckets)
  const hosts = new Counter(buckets)
  const tenants = new Counter()
  const reasons = new Counter()
  for await (const { line } of lines) {
    if (line.kind === 'auth') {
      totals.credentialsRefused++
      reasons.add(line.reason)
    } else if (line.kind === 'decision') {
      if (line.effective === 'allow' && line.decision === 'allow') totals.allowed++
      else if (line.effective === 'allow') totals.reported++
      else {
        const bucket = bucketOf(line.time)
        totals.refused++
        if (buckets > 0) all[bucket] = (all[bucket] ?? 0) + 1
        hosts.add(line.host, bucket)
        tenants.add(line.tenant)
        reasons.add(line.reason)
      }
    }
  }
  const refusedHosts = hosts.ranking(top)
  return {
    ...totals,
    refusedHosts,
    refusedTenants: tenants.ranking(top),
    reasons: reasons.ranking(top),
    exact: hosts.isExact && tenants.isExact && reasons.isExact,
    ...(series !== undefined && {
      series: [...all].map((refused, bucket) => ({
        start: new Date(series.sinceMs + bucket * stepMs).toISOString(),
        refused,
        hosts: refusedHosts.map(({ name }) => hosts.inBucket(name, bucket)),
      })),
    }),
  }
}

class Counter {
  readonly #buckets: number
  readonly #counts = new Map<string, number>()
  readonly #parts = new Map<string, Uint32Array>()
  isExact = true

  constructor(buckets = 0) {
    this.#buckets = buckets
  }

  add(name: string | undefined, bucket = 0): void {
    if (name === undefined) return
    const count = this.#counts.get(name)
    if (count === undefined && this.#counts.size >= MAX_NAMES) {
      this.isExact = false
      return
    }
    this.#counts.set(name, (count ?? 0) + 1)
    if (this.#buckets === 0) return
    let parts = this.#parts.get(name)
    if (parts === undefined) this.#parts.set(name, (parts = new Uint32Array(this.#buckets)))
    parts[bucket] = (parts[bucket] ?? 0) + 1
  }

  inBucket(name: string, bucket: number): number {
    return this.#parts.get(name)?.[bucket] ?? 0
  }

  ranking(top: number): Ranking {
    return [...this.#counts]
      .map(([name, count]) => ({ name, count }))
      .sort((one, other) => other.count - one.count || (one.name < other.name ? -1 : 1))
      .slice(0, top)
  }
}
