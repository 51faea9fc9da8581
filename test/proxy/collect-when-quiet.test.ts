import vm from 'node:vm'
import { expect, test } from 'vitest'
import { collect, collectionRule, type Reading } from '../../proxy/collect-when-quiet.ts'

const MIB = 1024 * 1024
const QUIET: Reading = { residentBytes: 100 * MIB, oldBytes: 20 * MIB, busyShare: 0.01, processorMs: 1000 }

const rows: readonly (readonly [string, Partial<Reading>, boolean])[] = [
  ['a process that has grown, worked and come to rest', {}, true],
  ['one that is at work', { busyShare: 0.06 }, false],
  ['one that has grown by little', { residentBytes: 119 * MIB }, false],
  ['one that did nothing to speak of since it began', { processorMs: 1999 }, false],
  ['one with so much in it that looking at it would take long', { oldBytes: 129 * MIB }, false],
]

test.each(rows)('%s', (_sentence, over, expected) => {
  const isDue = collectionRule()
  expect(isDue(QUIET)).toBe(false)
  expect(isDue({ ...QUIET, residentBytes: 200 * MIB, processorMs: 9000, ...over })).toBe(expected)
})

test('what is not given back is not collected again until there was work again', () => {
  const isDue = collectionRule()
  const large = { ...QUIET, residentBytes: 200 * MIB }
  isDue(QUIET)
  expect([9000, 10_000, 10_999, 11_000, 12_000].map((processorMs) => isDue({ ...large, processorMs }))).toEqual([
    true,
    false,
    false,
    true,
    false,
  ])
})

test('a collection collects, and leaves nobody else the means', async () => {
  const seen = (() => new WeakRef({ bytes: new Uint8Array(1024) }))()
  // A reference that was made in this turn is kept until its end.
  await new Promise((resolve) => setImmediate(resolve))
  collect()
  collect()
  expect(seen.deref()).toBeUndefined()
  expect(vm.runInNewContext('typeof gc')).toBe('undefined')
  expect('gc' in globalThis).toBe(process.execArgv.includes('--expose-gc'))
})
