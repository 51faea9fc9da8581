/** The pool lends each buffer to one holder at a time, and no more than it may. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { HotBuffers, type HotHolder } from '../../../proxy/relay/buffers.ts'

const holder = (surrender: () => boolean = () => false): HotHolder => ({ surrender })

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

test('lends so many different buffers and then none', () => {
  const pool = new HotBuffers({ bytes: 1024, limit: 3 })
  const lent = Array.from({ length: 5 }, () => pool.borrow(holder()))
  expect(new Set(lent.slice(0, 3)).size).toBe(3)
  expect(lent.slice(3)).toEqual([undefined, undefined])
  expect(lent[0]).toHaveLength(1024)
})

test('takes a buffer back once, from its holder alone', () => {
  const pool = new HotBuffers({ bytes: 1024, limit: 1 })
  const [first, second] = [holder(), holder()]
  const buffer = pool.borrow(first)!
  pool.giveBack(buffer, second)
  expect(pool).toMatchObject({ lent: 1, free: 0, strays: 1 })
  pool.giveBack(buffer, first)
  pool.giveBack(buffer, first)
  expect(pool).toMatchObject({ lent: 0, free: 1, strays: 2 })
  expect(pool.borrow(second)).toBe(buffer)
  pool.giveBack(buffer, first)
  expect(pool.lent).toBe(1)
})

test('an empty pool asks its holders, and not again at once', () => {
  const pool = new HotBuffers({ bytes: 1024, limit: 2 })
  let asked = 0
  const idle: HotHolder = {
    surrender: () => {
      asked++
      pool.giveBack(buffer, idle)
      return true
    },
  }
  const buffer = pool.borrow(idle)!
  pool.borrow(holder())
  vi.advanceTimersByTime(1000)
  const next = holder(() => {
    asked++
    return false
  })
  expect(pool.borrow(next)).toBe(buffer)
  expect(pool.borrow(holder())).toBeUndefined()
  expect(pool.borrow(holder())).toBeUndefined()
  expect(asked).toBe(1)
  vi.advanceTimersByTime(150)
  expect(pool.borrow(holder())).toBeUndefined()
  expect(asked).toBe(2)
})

test('lets memory go that was not needed for a while, and keeps what was', () => {
  const pool = new HotBuffers({ bytes: 1024, limit: 8, keepMs: 100 })
  const me = holder()
  const lent = Array.from({ length: 6 }, () => pool.borrow(me)!)
  for (const buffer of lent) pool.giveBack(buffer, me)
  vi.advanceTimersByTime(100)
  const used = [pool.borrow(me)!, pool.borrow(me)!]
  for (const buffer of used) pool.giveBack(buffer, me)
  expect(pool.free).toBe(6)
  vi.advanceTimersByTime(100)
  expect(pool.free).toBe(2)
  vi.advanceTimersByTime(100)
  expect(pool.free).toBe(0)
  expect(vi.getTimerCount()).toBe(0)
})
