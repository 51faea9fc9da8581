/** How far back a view looks. */

/** What may be chosen. */
export const PERIODS = [
  { name: '15m', text: 'Last 15 minutes', ms: 900_000, buckets: 30 },
  { name: '1h', text: 'Last hour', ms: 3_600_000, buckets: 60 },
  { name: '6h', text: 'Last 6 hours', ms: 21_600_000, buckets: 36 },
  { name: '24h', text: 'Last 24 hours', ms: 86_400_000, buckets: 48 },
  { name: '7d', text: 'Last 7 days', ms: 604_800_000, buckets: 56 },
] as const

/** The name of one of them. */
export type Period = (typeof PERIODS)[number]['name']

/** The one of this name, or the last hour. */
export function periodOf(name: string | undefined): Period {
  return PERIODS.find((each) => each.name === name)?.name ?? '1h'
}

/** All of it. */
export function periodNamed(name: Period): (typeof PERIODS)[number] {
  return PERIODS.find((each) => each.name === name) ?? PERIODS[1]
}

/** When it begins, seen from now; RFC 3339. */
export function sinceOf(name: Period): string {
  return new Date(Date.now() - periodNamed(name).ms).toISOString()
}
