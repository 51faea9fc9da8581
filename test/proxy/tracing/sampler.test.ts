import { describe, expect, test } from 'vitest'
import { createSampler } from '../../../proxy/tracing/sampler.ts'
import { newTraceId } from '../../../proxy/tracing/trace-context.ts'

const still = () => 0

describe('a sampler', () => {
  test('keeps all of a ratio of 1, and none of 0, whatever the identifiers', () => {
    const ids = ['0'.repeat(31) + '1', 'f'.repeat(32), ...Array.from({ length: 200 }, newTraceId)]
    const all = createSampler({ ratio: 1, maxPerSecond: 1000, monotonicMs: still })
    const none = createSampler({ ratio: 0, maxPerSecond: 1000, monotonicMs: still })
    expect(ids.filter((id) => all(id))).toEqual(ids)
    expect(ids.filter((id) => none(id))).toEqual([])
  })

  test('keeps about its share, the same each time, and what a smaller share keeps a larger one keeps too', () => {
    const ids = Array.from({ length: 20_000 }, newTraceId)
    const kept = (ratio: number) => {
      const isKept = createSampler({ ratio, maxPerSecond: 100_000, monotonicMs: still })
      return new Set(ids.filter((id) => isKept(id)))
    }
    const tenth = kept(0.1)
    // Twenty standard deviations.
    expect(Math.abs(tenth.size - 2000)).toBeLessThan(850)
    expect(kept(0.1)).toEqual(tenth)
    const half = kept(0.5)
    expect([...tenth].filter((id) => !half.has(id))).toEqual([])
  })

  test('a client that chooses identifiers which are kept gets so many a second and no more', () => {
    let nowMs = 0
    const isKept = createSampler({ ratio: 0.001, maxPerSecond: 10, monotonicMs: () => nowMs })
    const chosen = 'f'.repeat(32)
    const burst = () => Array.from({ length: 1000 }, () => isKept(chosen)).filter(Boolean).length
    expect(burst()).toBe(10)
    nowMs += 500
    expect(burst()).toBe(5)
    nowMs += 3_600_000
    expect(burst()).toBe(10)
  })
})
