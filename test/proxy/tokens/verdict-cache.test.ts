/** What is remembered of tokens is bounded, whatever they hold. */
import { describe, expect, test } from 'vitest'
import { VerdictCache } from '../../../proxy/tokens/verdict-cache.ts'

const held = <V>(cache: VerdictCache<V>, keys: readonly string[]): readonly string[] =>
  keys.filter((key) => cache.get(key) !== undefined)

test('the least recently used goes first', () => {
  const cache = new VerdictCache<number>({ entries: 3 })
  for (const [index, key] of ['a', 'b', 'c'].entries()) cache.set(key, index, 1)
  cache.get('a')
  cache.set('d', 3, 1)
  expect(held(cache, ['a', 'b', 'c', 'd'])).toEqual(['a', 'c', 'd'])
})

describe('bytes of tokens', () => {
  test('those of one list count once', () => {
    const cache = new VerdictCache<number>({ tokenBytes: 100 })
    const list = {}
    for (let index = 0; index < 50; index++) cache.set(`shared-${index}`, index, 60, list)
    expect(cache.size).toBe(50)
    cache.set('own', 1, 40)
    expect(cache.size).toBe(51)
  })

  test('a list weighs until the last that holds it is gone, and not after', () => {
    const cache = new VerdictCache<number>({ tokenBytes: 100 })
    const [list, other] = [{}, {}]
    cache.set('a', 1, 60, list)
    cache.set('b', 2, 60, list)
    cache.delete('a')
    cache.set('c', 3, 60, other)
    expect(held(cache, ['a', 'b', 'c'])).toEqual(['c'])
    cache.set('d', 4, 40)
    expect(held(cache, ['c', 'd'])).toEqual(['c', 'd'])
  })

  test('lists that are all different push each other out', () => {
    const cache = new VerdictCache<number>({ tokenBytes: 1_000 })
    for (let index = 0; index < 1_000; index++) cache.set(`k${index}`, index, 100, {})
    expect(cache.size).toBe(10)
  })

  test('the same token again, with another list, is counted once', () => {
    const cache = new VerdictCache<number>({ tokenBytes: 100 })
    for (let index = 0; index < 10; index++) cache.set('a', index, 90, {})
    expect(cache.size).toBe(1)
    cache.clear()
    cache.set('b', 1, 100, {})
    expect(held(cache, ['a', 'b'])).toEqual(['b'])
  })
})
