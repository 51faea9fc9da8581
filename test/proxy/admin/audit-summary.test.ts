/** Counting over time: every refusal is in one part of the period, and memory has a bound. */
import { expect, test } from 'vitest'
import { summarize } from '../../../proxy/admin/audit-summary.ts'
import { auditLineSchema, type AuditLine } from '../../../proxy/audit/schema.ts'

const SINCE = Date.parse('2026-01-01T00:00:00.000Z')
const HOUR = 3_600_000

function refusal(host: string | undefined, atMs: number, effective: 'allow' | 'deny' = 'deny'): { line: AuditLine } {
  return {
    line: auditLineSchema.parse({
      seq: 1,
      time: new Date(SINCE + atMs).toISOString(),
      instance: 'gw',
      kind: 'decision',
      decision: 'deny',
      effective,
      reason: 'host_not_allowed',
      ...(host !== undefined && { host }),
      prev: '0'.repeat(64),
    }),
  }
}

async function* lines(all: Iterable<{ line: AuditLine }>) {
  for (const each of all) yield await Promise.resolve(each)
}

const series = (buckets: number) => ({ sinceMs: SINCE, untilMs: SINCE + HOUR, buckets })

test('each refusal is in its part, with its host; one that was let out is in none', async () => {
  const found = [
    refusal('a.example', 0),
    refusal('b.example', HOUR / 4),
    refusal('a.example', HOUR - 1),
    refusal(undefined, HOUR / 2),
    refusal('a.example', HOUR / 2, 'allow'),
  ]
  const summary = await summarize(lines(found), { top: 10, series: series(4) })
  expect(summary).toMatchObject({
    refused: 4,
    reported: 1,
    refusedHosts: [
      { name: 'a.example', count: 2 },
      { name: 'b.example', count: 1 },
    ],
  })
  expect(summary.series).toEqual([
    { start: '2026-01-01T00:00:00.000Z', refused: 1, hosts: [1, 0] },
    { start: '2026-01-01T00:15:00.000Z', refused: 1, hosts: [0, 1] },
    { start: '2026-01-01T00:30:00.000Z', refused: 1, hosts: [0, 0] },
    { start: '2026-01-01T00:45:00.000Z', refused: 1, hosts: [1, 0] },
  ])
})

test('times at and beyond the edges fall into the first and the last part', async () => {
  const { series: found } = await summarize(lines([refusal('a', -5), refusal('a', HOUR), refusal('a', 2 * HOUR)]), {
    top: 1,
    series: series(3),
  })
  expect(found?.map(({ refused }) => refused)).toEqual([1, 0, 2])
  const empty = { sinceMs: SINCE, untilMs: SINCE, buckets: 2 }
  expect(
    (await summarize(lines([refusal('a', 0)]), { top: 1, series: empty })).series?.map(({ refused }) => refused),
  ).toEqual([1, 0])
})

test('with more hosts than are counted apart it says so, and still counts every refusal', async () => {
  const { line } = refusal('h.example', 0)
  function* flood() {
    for (let count = 0; count < 50_010; count++) yield { line: { ...line, host: `h${count}.example` } }
  }
  const summary = await summarize(lines(flood()), { top: 3, series: series(2) })
  expect(summary).toMatchObject({ refused: 50_010, exact: false })
  expect(summary.series?.reduce((sum, { refused }) => sum + refused, 0)).toBe(50_010)
})

test('without a series there is none', async () => {
  expect(await summarize(lines([refusal('a', 0)]), { top: 1 })).not.toHaveProperty('series')
})
