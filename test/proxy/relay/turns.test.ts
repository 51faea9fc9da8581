/** Busy connections take turns, and turns stay short. */
import { expect, test } from 'vitest'
import { Turns } from '../../../proxy/relay/turns.ts'

const MIB = 1024 * 1024

/** An event loop of which each turn takes as long as what was read in it. */
function loop(msPerMib: number): { turns: Turns; turn: () => number; busy: (count: number) => void; served: number[] } {
  let nowMs = 0
  let end: (() => void) | undefined
  let reading: number[] = []
  const served: number[] = []
  const turns = new Turns(
    () => nowMs,
    (run) => {
      expect(end).toBeUndefined()
      end = run
    },
  )
  const visitor = (id: number): { readOn: () => void } => ({ readOn: () => void reading.push(id) })
  const visitors: ReturnType<typeof visitor>[] = []
  return {
    turns,
    served,
    busy: (count) => {
      for (let id = 0; id < count; id++) {
        served.push(0)
        visitors.push(visitor(id))
        turns.queue(visitors[id]!)
      }
    },
    /** One turn: those let in read a visit's worth and queue again. Returns how long it took. */
    turn: () => {
      const run = end
      end = undefined
      run?.()
      const beganMs = nowMs
      const now = reading
      reading = []
      for (const id of now) {
        served[id]!++
        nowMs += (turns.bytesAVisit / MIB) * msPerMib
      }
      for (const id of now) turns.queue(visitors[id]!)
      return nowMs - beganMs
    },
  }
}

test.each([
  ['a fast machine', 0.2],
  ['an ordinary one', 0.5],
  ['a slow one', 4],
])(
  'on %s turns settle at a few milliseconds, whatever the number of busy connections, and shorter while new ones come',
  (_machine, msPerMib) => {
    for (const count of [1, 8, 64]) {
      const { turns, turn, busy } = loop(msPerMib)
      busy(count)
      const longest = (arriving: boolean): number => {
        const took: number[] = []
        for (let round = 0; round < 300; round++) {
          if (arriving) turns.arrived()
          took.push(turn())
        }
        return Math.max(...took.slice(-60))
      }
      const calm = longest(false)
      const brisk = longest(true)
      expect(calm).toBeLessThanOrEqual(13)
      expect(brisk).toBeLessThanOrEqual(6)
      // Where there is more to read than fits into a turn, calm turns are longer ones.
      if (count * 4 * msPerMib > 20) expect(calm).toBeGreaterThan(brisk)
    }
  },
)

test('everybody is served alike', () => {
  const { turn, busy, served } = loop(0.5)
  busy(20)
  for (let round = 0; round < 400; round++) turn()
  expect(Math.max(...served) - Math.min(...served)).toBeLessThanOrEqual(1)
})

test('when nobody is busy any more, nothing runs', () => {
  const pending: (() => void)[] = []
  const turns = new Turns(
    () => 0,
    (run) => void pending.push(run),
  )
  turns.queue({ readOn: () => undefined })
  for (let round = 0; round < 5; round++) pending.shift()?.()
  expect(pending).toEqual([])
})
