/** Whose connections are closed unread, for how long, and who says so. */
import { expect, test, vi } from 'vitest'
import { Door, type TurnedAway, WEIGHT } from '../../proxy/door.ts'
import type { Identity } from '../../proxy/tokens/identity.ts'

const HOSTILE = { address: '203.0.113.1' }
const OTHER = { address: '203.0.113.2' }

/** A door on a clock that the test moves; `busy` is what the event loop is. */
function door(busy: number) {
  const world = { nowMs: 0, busy, said: [] as (readonly TurnedAway[])[], turned: 0 }
  const made = new Door({
    clock: { monotonicMs: () => world.nowMs },
    busy: () => world.busy,
    onSay: (turnedAway) => world.said.push(turnedAway),
    onTurnAway: () => world.turned++,
  })
  return { door: made, world }
}

/** So many a second, for so long; how many were let in, all of which came to nothing. */
function flood({ door: at, world }: ReturnType<typeof door>, perSecond: number, seconds: number, client = HOSTILE) {
  let letIn = 0
  for (let sent = 0; sent < perSecond * seconds; sent++) {
    world.nowMs += 1000 / perSecond
    if (at.turnsAway(client)) continue
    letIn++
    at.cameToNothing(client)
  }
  return letIn
}

test('while there is time nobody is turned away', () => {
  const one = door(0.3)
  expect(flood(one, 5000, 5)).toBe(25_000)
  expect(one.door.isOpenToAll).toBe(true)
})

test('while there is none, a flood is held to little, and the others are let in', () => {
  const one = door(0.95)
  flood(one, 10_000, 1)
  // 300 a second, and what little time is left from before.
  expect(flood(one, 10_000, 10)).toBeLessThan(3_500)
  expect(flood(one, 10_000, 10)).toBeGreaterThan(2_500)
  expect(one.door.turnsAway(OTHER)).toBe(false)
  expect(flood(one, 200, 5, OTHER)).toBe(1000)
})

test('of a flood that is shut out they come in one by one, however long it takes to see what becomes of them', () => {
  const one = door(1)
  flood(one, 10_000, 3)
  const underway: number[] = []
  let [letIn, inARow, mostInARow] = [0, 0, 0]
  for (let sent = 0; sent < 50_000; sent++) {
    one.world.nowMs += 0.1
    while (underway[0] !== undefined && underway[0] <= one.world.nowMs) {
      underway.shift()
      one.door.cameToNothing(HOSTILE)
    }
    if (one.door.turnsAway(HOSTILE)) inARow = 0
    else {
      underway.push(one.world.nowMs + 5)
      letIn++
      mostInARow = Math.max(mostInARow, ++inARow)
    }
  }
  expect(mostInARow).toBe(1)
  expect(letIn).toBeGreaterThan(1400)
  expect(letIn).toBeLessThan(1600)
})

test('a flood that waited at the door through a standstill comes in no faster', () => {
  const one = door(1)
  flood(one, 10_000, 3)
  one.world.nowMs += 300
  expect(flood(one, 25_000, 0.02)).toBeLessThanOrEqual(24)
})

test('what goes out is given back: whoever shares the address of a flood that ended is not held to the little that it had', () => {
  const one = door(1)
  flood(one, 10_000, 3)
  one.world.nowMs += 100
  const outcomes = Array.from({ length: 5000 }, (_none, at) => {
    one.world.nowMs += 1
    if (at >= 10) one.door.wentOut(HOSTILE)
    return one.door.turnsAway(HOSTILE)
  })
  expect(outcomes).not.toContain(true)
})

test('what goes out gives nothing back that was not paid', () => {
  const one = door(1)
  one.door.cameToNothing(HOSTILE, 10_000.5)
  for (let at = 0; at < 1000; at++) one.door.wentOut(HOSTILE)
  expect(one.door.turnsAway(HOSTILE)).toBe(true)
})

test('an IPv6 client has a /64 of addresses and one budget', () => {
  const one = door(1)
  let letIn = 0
  for (let sent = 0; sent < 50_000; sent++) {
    one.world.nowMs += 0.1
    const client = { address: `2001:db8:0:1::${sent.toString(16)}` }
    if (one.door.turnsAway(client)) continue
    one.door.cameToNothing(client)
    letIn++
  }
  expect(letIn).toBeLessThan(6_000)
  expect(one.door.turnsAway({ address: '2001:db8:0:2::1' })).toBe(false)
})

test('a flood that begins while nothing else is busy is shut out within half a second', () => {
  const one = door(1)
  expect(flood(one, 10_000, 0.5)).toBeLessThan(3_500)
})

test('who comes to nothing seldom is let in, however busy it is', () => {
  const one = door(1)
  flood(one, 10_000, 5)
  expect(flood(one, 250, 20, OTHER)).toBe(5000)
})

test('a flood that ends is forgiven', () => {
  const one = door(1)
  flood(one, 10_000, 3)
  expect(one.door.turnsAway(HOSTILE)).toBe(true)
  one.world.nowMs += 1000
  expect(one.door.turnsAway(HOSTILE)).toBe(false)
  expect(one.door.isOpenToAll).toBe(true)
})

test('what there is time for comes back, also for the time that nobody asked', () => {
  const one = door(1)
  flood(one, 10_000, 3)
  one.world.busy = 0.1
  one.world.nowMs += 10_000
  expect(flood(one, 5000, 5)).toBe(25_000)
})

test('it is asked how busy the loop is ten times a second, not for each', () => {
  const asked = vi.fn(() => 1)
  let nowMs = 0
  const one = new Door({ clock: { monotonicMs: () => nowMs }, busy: asked })
  for (let at = 0; at < 10_000; at++) {
    nowMs += 0.1
    one.cameToNothing(HOSTILE)
    one.turnsAway(HOSTILE)
  }
  expect(asked.mock.calls.length).toBeLessThanOrEqual(11)
})

test('dearer things cost more, pieces of a head less', () => {
  const [handshakes, pieces] = [door(1), door(1)]
  for (let at = 0; at < 4000; at++) handshakes.door.cameToNothing(HOSTILE, WEIGHT.handshake)
  for (let at = 0; at < 50_000; at++) pieces.door.cameToNothing(HOSTILE, WEIGHT.piece)
  expect([handshakes, pieces].map((one) => one.door.isClosedTo(HOSTILE))).toEqual([true, false])
})

test('a bound listener has what comes to nothing for itself', () => {
  const one = door(1)
  const bound = { tokenId: 'bound-1' } as Identity
  for (let at = 0; at < 20_000; at++) one.door.cameToNothing({ address: 'unix', bound })
  expect(one.door.turnsAway({ address: 'unix', bound })).toBe(true)
  expect(one.door.turnsAway({ address: 'unix' })).toBe(false)
  expect(one.door.turnsAway({ address: 'unix', bound: { ...bound, tokenId: 'bound-2' } })).toBe(false)
})

test('the addresses that are kept in mind are bounded, and whoever is forgotten is not turned away for ever', () => {
  const one = door(1)
  one.door.cameToNothing(HOSTILE, 1e9)
  for (let at = 0; at < 10_000; at++) one.door.cameToNothing({ address: `2001:db8:0:${at.toString(16)}::1` })
  expect(one.door.turnsAway(HOSTILE)).toBe(false)
  expect(one.door.isOpenToAll).toBe(true)
})

test('it is said who was turned away: sixteen by name, the others together', () => {
  const one = door(1)
  const clients = Array.from({ length: 20 }, (_none, at) => ({ address: `203.0.113.${at}` }))
  for (const client of clients) one.door.cameToNothing(client, 1e9)
  for (const client of clients) for (let times = 0; times < 3; times++) one.door.turnsAway(client)
  one.door.close()
  one.door.close()
  expect(one.world.turned).toBe(60)
  expect(one.world.said).toHaveLength(1)
  const [said = []] = one.world.said
  expect(said.map(({ connections }) => connections)).toEqual([...Array<number>(16).fill(3), 12])
  expect(said.map(({ who }) => who)).toEqual([...clients.slice(0, 16).map(({ address }) => address), undefined])
})

test('it is said every ten seconds', () => {
  vi.useFakeTimers()
  try {
    const one = door(1)
    one.door.cameToNothing(HOSTILE, 1e9)
    one.door.turnsAway(HOSTILE)
    vi.advanceTimersByTime(10_000)
    expect(one.world.said).toEqual([[{ who: HOSTILE.address, connections: 1 }]])
    vi.advanceTimersByTime(60_000)
    expect(one.world.said).toHaveLength(1)
  } finally {
    vi.useRealTimers()
  }
})

test('where it is not used nobody is turned away', () => {
  let isUsed = true
  const one = new Door({ clock: { monotonicMs: () => 0 }, busy: () => 1, isUsed: () => isUsed })
  one.cameToNothing(HOSTILE, 1e9)
  expect(one.turnsAway(HOSTILE)).toBe(true)
  isUsed = false
  expect(one.turnsAway(HOSTILE)).toBe(false)
})
