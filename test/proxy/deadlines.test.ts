import { afterEach, expect, test, vi } from 'vitest'
import { type Awaited, Deadlines } from '../../proxy/deadlines.ts'
import { ManualClock } from './tunnels/manual-clock.ts'

const opened: Deadlines[] = []
afterEach(() => opened.splice(0).forEach((deadlines) => deadlines.close()))

function setUp(afterMs = 1000) {
  const clock = new ManualClock()
  const deadlines = new Deadlines(afterMs, clock)
  const other = new Deadlines(5000, clock)
  opened.push(deadlines, other)
  return { clock, deadlines, other }
}

function awaited(): Awaited & { ended: number } {
  return { wait: undefined, ended: 0, destroy() { this.ended++ } } // prettier-ignore
}

test('what takes too long is ended once, what was stopped in time is not', () => {
  const { clock, deadlines } = setUp()
  const [slow, quick] = [awaited(), awaited()]
  deadlines.start(slow)
  deadlines.start(quick)
  deadlines.stop(quick)
  clock.advance(999)
  deadlines.sweep()
  expect([slow.ended, quick.ended, deadlines.size]).toEqual([0, 0, 1])
  clock.advance(1)
  deadlines.sweep()
  deadlines.sweep()
  expect([slow.ended, quick.ended, deadlines.size]).toEqual([1, 0, 0])
})

test('a second start begins the time anew, also for another wait', () => {
  const { clock, deadlines, other } = setUp()
  const what = awaited()
  deadlines.start(what)
  clock.advance(900)
  deadlines.start(what)
  clock.advance(900)
  deadlines.sweep()
  expect([what.ended, deadlines.size]).toEqual([0, 1])
  other.start(what)
  clock.advance(900)
  deadlines.sweep()
  expect([what.ended, deadlines.size, other.size]).toEqual([0, 0, 1])
  clock.advance(4100)
  other.sweep()
  expect(what.ended).toBe(1)
})

test('stopping a wait of another leaves it as it is', () => {
  const { clock, deadlines, other } = setUp()
  const what = awaited()
  deadlines.start(what)
  other.stop(what)
  clock.advance(1000)
  deadlines.sweep()
  expect(what.ended).toBe(1)
})

test('a shorter time holds for waits that begin from then on; all that is late is ended in whatever order it began', () => {
  const { clock, deadlines } = setUp()
  const [first, second, third] = [awaited(), awaited(), awaited()]
  deadlines.start(first)
  deadlines.setAfter(100)
  deadlines.start(second)
  deadlines.start(third)
  clock.advance(100)
  deadlines.sweep()
  expect([first.ended, second.ended, third.ended]).toEqual([0, 1, 1])
})

test('it sweeps by itself', async () => {
  const { clock, deadlines } = setUp()
  await new Promise<void>((resolve) => {
    deadlines.start({ wait: undefined, destroy: resolve })
    clock.advance(1000)
  })
  expect(deadlines.size).toBe(0)
})

test('after a standstill what came meanwhile is read before anybody is late', () => {
  vi.useFakeTimers()
  try {
    const { clock, deadlines } = setUp()
    const [arrived, slow] = [awaited(), awaited()]
    for (const what of [arrived, slow]) deadlines.start(what)
    clock.advance(60_000)
    vi.advanceTimersByTime(250)
    expect([arrived.ended, slow.ended]).toEqual([0, 0])
    deadlines.stop(arrived)
    clock.advance(250)
    vi.advanceTimersByTime(250)
    expect([arrived.ended, slow.ended]).toEqual([0, 1])
  } finally {
    vi.useRealTimers()
  }
})
