import { afterEach, expect, test } from 'vitest'
import type { CloseReason } from '../../../proxy/reasons.ts'
import type { Identity } from '../../../proxy/tokens/identity.ts'
import { type Tunnel, TunnelRegistry, type Watched } from '../../../proxy/tunnels/registry.ts'
import { ManualClock } from './manual-clock.ts'

const opened: TunnelRegistry[] = []
afterEach(() => opened.splice(0).forEach((registry) => registry.close()))

function setUp(idleTimeoutMs = 300_000) {
  const clock = new ManualClock()
  const registry = new TunnelRegistry({ clock, idleTimeoutMs })
  opened.push(registry)
  return { clock, registry }
}

function tunnel(clock: ManualClock, requestId: string, over: { expiresInMs?: number; quota?: number } = {}) {
  const cuts: CloseReason[] = []
  let left = over.quota ?? Infinity
  let released = 0
  const relay = {
    bytesIn: 0,
    bytesOut: 0,
    lastActivityMs: clock.monotonicMs(),
    cut: (reason: CloseReason): void => void cuts.push(reason),
  }
  const value: Tunnel = {
    requestId,
    identity: { tenant: 'acme', sandbox: requestId } as Identity,
    permit: undefined as unknown as Tunnel['permit'],
    decidedBy: undefined as unknown as Tunnel['decidedBy'],
    expiresAtMs: clock.wallMs() + (over.expiresInMs ?? 3_600_000),
    place: { addBytes: (bytes) => (left -= bytes) <= 0, release: () => (released += 1) },
    relay,
  }
  return { value, relay, cuts, released: () => released }
}

test('a tunnel is cut at the expiry of its token, not before', () => {
  const { clock, registry } = setUp()
  const t = tunnel(clock, 'a', { expiresInMs: 5000 })
  registry.add(t.value)
  clock.advance(4999)
  registry.sweep()
  expect(t.cuts).toEqual([])
  clock.advance(1)
  registry.sweep()
  expect(t.cuts).toEqual(['token_expired'])
})

test('a wall clock that jumps past the expiry cuts, too', () => {
  const { clock, registry } = setUp()
  const t = tunnel(clock, 'a', { expiresInMs: 5000 })
  registry.add(t.value)
  clock.jump(10_000)
  registry.sweep()
  expect(t.cuts).toEqual(['token_expired'])
})

test('a wall clock that is put back lengthens no tunnel', () => {
  const { clock, registry } = setUp()
  const t = tunnel(clock, 'a', { expiresInMs: 5000 })
  const bound = tunnel(clock, 'bound', { expiresInMs: Infinity })
  registry.add(t.value)
  registry.add(bound.value)
  clock.jump(-3_600_000)
  clock.advance(4999)
  registry.sweep()
  expect(t.cuts).toEqual([])
  clock.advance(1)
  registry.sweep()
  expect(t.cuts).toEqual(['token_expired'])
  expect(bound.cuts).toEqual([])
})

test('idleness runs on the monotonic clock and activity starts it anew', () => {
  const { clock, registry } = setUp(1000)
  const t = tunnel(clock, 'a')
  registry.add(t.value)
  clock.jump(999_000)
  registry.sweep()
  clock.advance(900)
  t.relay.lastActivityMs = clock.monotonicMs()
  clock.advance(999)
  registry.sweep()
  expect(t.cuts).toEqual([])
  clock.advance(1)
  registry.sweep()
  expect(t.cuts).toEqual(['idle_timeout'])
})

test('bytes are counted once, and a used-up quota cuts', () => {
  const { clock, registry } = setUp()
  const t = tunnel(clock, 'a', { quota: 100 })
  registry.add(t.value)
  t.relay.bytesIn = 60
  registry.sweep()
  registry.sweep()
  expect(t.cuts).toEqual([])
  t.relay.bytesOut = 40
  registry.sweep()
  expect(t.cuts).toEqual(['byte_quota'])
})

test('a tunnel that ended is no longer watched, its last bytes are counted and its place is given back once', () => {
  const { clock, registry } = setUp()
  const t = tunnel(clock, 'a', { quota: 10, expiresInMs: 1 })
  const added: number[] = []
  const place = { addBytes: (n: number) => (added.push(n), false), release: t.value.place.release }
  const watched = registry.add({ ...t.value, place })
  t.relay.bytesIn = 7
  registry.remove(watched)
  registry.remove(watched)
  clock.advance(10)
  registry.sweep()
  expect({ added, released: t.released(), cuts: t.cuts, size: registry.size }).toEqual({
    added: [7],
    released: 1,
    cuts: [],
    size: 0,
  })
})

test('all that is cut is cut, also when cutting one removes it', () => {
  const { clock, registry } = setUp()
  const tunnels = ['a', 'b', 'c'].map((id) => tunnel(clock, id))
  for (const t of tunnels) {
    const cut = t.relay.cut
    const watched = registry.add(t.value)
    t.relay.cut = (reason) => {
      cut(reason)
      registry.remove(watched)
    }
  }
  registry.cutAll('drain_deadline')
  expect(tunnels.map((t) => t.cuts)).toEqual([['drain_deadline'], ['drain_deadline'], ['drain_deadline']])
  expect(registry.list()).toEqual([])
})

/** One that can be stopped, and whose end takes longer than a slice. */
function slowToEnd(clock: ManualClock, requestId: string) {
  const t = tunnel(clock, requestId)
  const stops: CloseReason[] = []
  const relay = Object.assign(t.relay, {
    stop: (reason: CloseReason): void => void stops.push(reason),
    cut: (reason: CloseReason): void => {
      t.cuts.push(reason)
      const untilMs = performance.now() + 6
      while (performance.now() < untilMs);
    },
  })
  return { ...t, value: { ...t.value, relay }, stops }
}

test('of many that are cut all are stopped at once, and their ends leave turns to others', async () => {
  const { clock, registry } = setUp()
  const tunnels = Array.from({ length: 20 }, (_none, at) => slowToEnd(clock, `t${at}`))
  const watched = tunnels.map((t) => registry.add(t.value))
  const ended = () => tunnels.filter((t) => t.cuts.length > 0).length
  registry.cutAll('drain_deadline')
  expect(tunnels.map((t) => t.stops)).toEqual(tunnels.map(() => ['drain_deadline']))
  const seen = new Set<number>()
  let isOver = false
  const look = () => {
    seen.add(ended())
    if (!isOver) setImmediate(look)
  }
  look()
  await registry.cutsDone()
  isOver = true
  expect(seen.size).toBeGreaterThan(10)
  expect(tunnels.map((t) => t.cuts)).toEqual(tunnels.map(() => ['drain_deadline']))
  // Places are held until a tunnel is gone.
  expect({ open: registry.size, listed: registry.list().length }).toEqual({ open: 20, listed: 0 })
  for (const one of watched) registry.remove(one)
})

test('the first reason stands, whoever cuts while others wait for their end', async () => {
  const { clock, registry } = setUp()
  const tunnels = ['a', 'b', 'c'].map((id) => slowToEnd(clock, id))
  const [a, b, c] = tunnels.map((t) => registry.add(t.value))
  if (!a || !b || !c) throw new Error('three were added')
  registry.cut(a, 'token_revoked')
  registry.cut(b, 'policy_changed')
  await new Promise((resolve) => setImmediate(resolve))
  registry.cut(a, 'policy_changed')
  registry.cut(c, 'operator')
  clock.advance(10_000_000)
  registry.sweep()
  await registry.cutsDone()
  expect(tunnels.map((t) => t.cuts)).toEqual([['token_revoked'], ['policy_changed'], ['operator']])
  expect(tunnels.map((t) => t.stops)).toEqual([['token_revoked'], ['policy_changed'], ['operator']])
})

test('what is cut while nothing waits any more ends too, and so does what is cut by an end', async () => {
  const { clock, registry } = setUp()
  const [first, second, third] = ['a', 'b', 'c'].map((id) => slowToEnd(clock, id))
  if (!first || !second || !third) throw new Error('three were made')
  const watched = registry.add(second.value)
  const cut = first.relay.cut
  first.relay.cut = (reason) => {
    cut(reason)
    registry.cut(watched, 'error')
  }
  registry.cut(registry.add(first.value), 'operator')
  await registry.cutsDone()
  registry.cut(registry.add(third.value), 'operator')
  await registry.cutsDone()
  expect([first.cuts, second.cuts, third.cuts]).toEqual([['operator'], ['error'], ['operator']])
})

test.each([true, false])(
  'a tunnel that can not be ended keeps no other open, now or later (stopped first: %s)',
  async (isStopped) => {
    const faults: unknown[] = []
    const clock = new ManualClock()
    const registry = new TunnelRegistry({ clock, idleTimeoutMs: 300_000, onFault: (fault) => faults.push(fault) })
    opened.push(registry)
    const broken = new Error('can not be ended')
    const add = (id: string, fault?: Error) => {
      const one = tunnel(clock, id)
      const cut = (reason: CloseReason) => {
        one.relay.cut(reason)
        if (fault) throw fault
      }
      const relay = { ...one.relay, cut, ...(isStopped && { stop: () => undefined }) }
      return { watched: registry.add({ ...one.value, relay }), cuts: one.cuts }
    }
    const [first, middle, last, later] = [add('a'), add('b', broken), add('c'), add('d')]
    for (const { watched } of [first, middle, last]) registry.cut(watched, 'token_revoked')
    await registry.cutsDone()
    registry.cut(later.watched, 'token_revoked')
    await registry.cutsDone()
    expect([first, middle, last, later].map(({ cuts }) => cuts)).toEqual(Array(4).fill(['token_revoked']))
    expect(faults).toEqual([broken])
  },
)

test('a gateway that closes ends at once what waits', async () => {
  const { clock, registry } = setUp()
  const tunnels = Array.from({ length: 5 }, (_none, at) => slowToEnd(clock, `t${at}`))
  for (const t of tunnels) registry.add(t.value)
  registry.cutAll('token_revoked')
  await new Promise((resolve) => setImmediate(resolve))
  registry.cutAll('drain_deadline')
  registry.endCut()
  expect(tunnels.map((t) => t.cuts)).toEqual(tunnels.map(() => ['token_revoked']))
  await registry.cutsDone()
  expect(tunnels.map((t) => t.cuts)).toEqual(tunnels.map(() => ['token_revoked']))
})

test('a sweep looks at every tunnel, also when cutting one removes it and others', () => {
  const { clock, registry } = setUp()
  const tunnels = ['a', 'b', 'c', 'd', 'e'].map((id) => tunnel(clock, id, { expiresInMs: 1000 }))
  const watched = tunnels.map((t) => registry.add(t.value))
  tunnels.forEach((t, place) => {
    const cut = t.relay.cut
    t.relay.cut = (reason) => {
      cut(reason)
      for (const other of [watched[place], watched[(place + 2) % 5]]) if (other) registry.remove(other)
    }
  })
  clock.advance(1000)
  registry.sweep()
  expect(registry.size).toBe(0)
  // Nobody is left out: whoever was not cut was removed by another's cut.
  expect(tunnels.map((t) => t.released())).toEqual([1, 1, 1, 1, 1])
})

test('the registry sweeps by itself within a second', async () => {
  const { clock, registry } = setUp()
  const t = tunnel(clock, 'a', { expiresInMs: 0 })
  const watched = await new Promise<Watched>((resolve) => {
    t.relay.cut = () => resolve(added)
    const added = registry.add(t.value)
  })
  registry.remove(watched)
  expect(registry.size).toBe(0)
}, 1000)
