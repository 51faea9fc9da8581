import { describe, expect, test } from 'vitest'
import { Restarts } from '../../../proxy/workers/restarts.ts'

const RULES = { soundMs: 1_000, firstMs: 100, longestMs: 300, most: 4 }

describe('a worker that ends', () => {
  test('is replaced at once, then later and later, and at last not any more', () => {
    const restarts = new Restarts(RULES)
    expect([0, 999, 0, 0, 0].map((served) => restarts.afterEnd(served))).toEqual([0, 100, 200, 300, undefined])
  })

  test('after it had served for long, begins a row of its own', () => {
    const restarts = new Restarts(RULES)
    expect([0, 0, 1_000, 0].map((served) => restarts.afterEnd(served))).toEqual([0, 100, 0, 100])
  })
})
