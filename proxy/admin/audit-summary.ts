/** Counts lines of the audit log: how many, and which hosts, tenants and reasons were refused most. Memory is bounded, whatever hosts were asked for. */
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
}

/** Most first; equal counts in the order of their names. */
export type Ranking = { name: string; count: number }[]

/** Names counted apart, for each ranking. */
const MAX_NAMES = 50_000

/** Reads all of it; `top` of each ranking are given back. */
export async function summarize(lines: AsyncIterable<Pick<Found, 'line'>>, top: number): Promise<AuditSummary> {
  const totals = { allowed: 0, refused: 0, reported: 0, credentialsRefused: 0 }
  const hosts = new Counter()
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
        totals.refused++
        hosts.add(line.host)
        tenants.add(line.tenant)
        reasons.add(line.reason)
      }
    }
  }
  return {
    ...totals,
    refusedHosts: hosts.ranking(top),
    refusedTenants: tenants.ranking(top),
    reasons: reasons.ranking(top),
    exact: hosts.isExact && tenants.isExact && reasons.isExact,
  }
}

class Counter {
  readonly #counts = new Map<string, number>()
  isExact = true

  add(name: string | undefined): void {
    if (name === undefined) return
    const count = this.#counts.get(name)
    if (count === undefined && this.#counts.size >= MAX_NAMES) this.isExact = false
    else this.#counts.set(name, (count ?? 0) + 1)
  }

  ranking(top: number): Ranking {
    return [...this.#counts]
      .map(([name, count]) => ({ name, count }))
      .sort((one, other) => other.count - one.count || (one.name < other.name ? -1 : 1))
      .slice(0, top)
  }
}
