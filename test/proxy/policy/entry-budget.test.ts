/** Memory for the policies of all tenants together. */
import v8 from 'node:v8'
import { expect, test } from 'vitest'
import { parsePolicy } from '../../../policies/index.ts'
import { EntryBudget, entriesOf, mostEntries } from '../../../proxy/policy/entry-budget.ts'

function policy(...allowedHosts: readonly string[]) {
  const read = parsePolicy({ kind: 'static', allowedHosts }, { from: 'file' })
  if (!read.ok) throw new Error('no policy')
  return read.value
}

test('what is read and what is held counts, until it is given back; twice is once', () => {
  const budget = new EntryBudget(3)
  const giveBack = budget.reserve(2)
  expect(() => budget.reserve(2)).toThrow('more than 3 entries together')
  giveBack()
  giveBack()
  const letGo = budget.hold(policy('a.test', 'b.test'))
  expect(() => budget.reserve(2)).toThrow()
  budget.reserve(1)()
  letGo()
  letGo()
  budget.reserve(3)()
  expect(() => budget.reserve(4)).toThrow()
})

test('a policy that several tenants have counts once, until the last of them is gone', () => {
  const budget = new EntryBudget(4)
  const same = policy('a.test', 'b.test')
  const ends = [budget.hold(same), budget.hold(same), budget.hold(same)]
  budget.reserve(2)()
  ends[0]?.()
  ends[0]?.()
  ends[1]?.()
  expect(() => budget.reserve(3)).toThrow()
  ends[2]?.()
  budget.reserve(4)()
})

test('entries of anything are counted, and of what is no list there are none', () => {
  const counts = [
    { kind: 'static', allowedHosts: ['a', 'b'], deniedHosts: ['c'] },
    policy('a.test'),
    { allowedHosts: 'abc', deniedHosts: { length: 9 } },
    null,
    'abc',
    undefined,
  ].map(entriesOf)
  expect(counts).toEqual([3, 1, 0, 0, 0, 0])
})

test('there is room for some of the longest lists, and not for a heap of them', () => {
  const heap = mostEntries() * 300 * 4
  expect(mostEntries()).toBeGreaterThan(100_000)
  expect(Math.abs(heap - v8.getHeapStatistics().heap_size_limit)).toBeLessThan(2_000)
})
