/** Limits of one gateway over several processes: what is near a limit is told soon, what is far later, and nothing is told twice or forgotten. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { Identity } from '../../../proxy/tokens/identity.ts'
import { type GatewayLimits, LimitCounters } from '../../../proxy/tunnels/limits.ts'
import { unpackUsage } from '../../../proxy/workers/protocol.ts'
import { SharedUsage, type UsageMember } from '../../../proxy/workers/shared-usage.ts'
import { tellUsage } from '../../../proxy/workers/tell-usage.ts'
import { ManualClock } from '../tunnels/manual-clock.ts'

const OPEN: GatewayLimits = { tunnels: 1_000_000, perSandbox: {}, perTenant: {} }
const NEAR_MS = 100

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

const who = (sandbox = 'sbx', tenant?: string): Identity => ({
  tokenId: 'jti',
  issuer: 'https://host.example',
  keyId: undefined,
  sandbox,
  tenant,
  issuedAtMs: 0,
  expiresAtMs: Infinity,
  claim: { kind: 'deny-all' },
  binding: undefined,
})

/** A supervising process and workers, each with its counters; messages are the real ones. */
function gateway(over: Partial<GatewayLimits>, workers = 2) {
  const clock = new ManualClock()
  const limits = { ...OPEN, ...over }
  const usage = new SharedUsage(workers)
  const supervising = new LimitCounters(limits, clock)
  supervising.share(usage.untold)
  usage.use(supervising)
  let messages = 0
  const join = () => {
    const counters = new LimitCounters(limits, clock)
    const member: UsageMember = { send: ({ changes }) => counters.addElsewhere(unpackUsage(changes)), isSlow: false }
    const teller = tellUsage(workers + 1, (changes) => {
      messages++
      usage.take(
        member,
        changes.map(({ key, isTenant, tunnels, opened, bytes, paced }) => [
          key,
          isTenant ? 1 : 0,
          tunnels,
          opened,
          bytes,
          paced,
        ]),
      )
    })
    counters.share(teller.untold)
    usage.join(member)
    const die = (): void => {
      teller.close()
      usage.leave(member)
    }
    return { counters, die }
  }
  return { clock, supervising, join, all: Array.from({ length: workers }, join), messages: () => messages }
}

function admitted(counters: LimitCounters, identity = who()) {
  const admission = counters.admit(identity)
  return admission.ok ? admission.place : undefined
}

describe('shared limits', () => {
  test('a place that one gives is missing everywhere, and back everywhere when it is given back', () => {
    const { all, supervising } = gateway({ perSandbox: { tunnels: 1 } })
    const place = admitted(all[0]!.counters)
    vi.advanceTimersByTime(NEAR_MS)
    for (const { counters } of all) expect(admitted(counters)).toBeUndefined()
    expect(supervising.usageOf(who()).tunnels).toBe(1)
    place?.release()
    vi.advanceTimersByTime(NEAR_MS)
    expect(admitted(all[1]!.counters)).toBeDefined()
  })

  test('far from every limit, a thousand tunnels are one message a second', () => {
    const { all, messages, supervising } = gateway({ perSandbox: { tunnels: 100_000, newPerSecond: 100_000 } })
    for (let count = 0; count < 1_000; count++) admitted(all[0]!.counters)?.release()
    vi.advanceTimersByTime(NEAR_MS)
    expect(messages()).toBe(0)
    admitted(all[0]!.counters)
    vi.advanceTimersByTime(1_100)
    expect(messages()).toBe(1)
    expect(supervising.usageOf(who()).tunnels).toBe(1)
  })

  test('what one had not told since it was far is told as soon as another comes near', () => {
    const { all } = gateway({ perSandbox: { tunnels: 100 } })
    for (let count = 0; count < 10; count++) admitted(all[0]!.counters)
    for (let count = 0; count < 89; count++) admitted(all[1]!.counters)
    vi.advanceTimersByTime(NEAR_MS)
    expect(admitted(all[1]!.counters)).toBeDefined()
    vi.advanceTimersByTime(NEAR_MS)
    for (const { counters } of all) expect(admitted(counters)).toBeUndefined()
  })

  test('the whole gateway is full for all', () => {
    const { all } = gateway({ tunnels: 20 })
    for (let count = 0; count < 10; count++) admitted(all[0]!.counters, who(`a${count}`))
    vi.advanceTimersByTime(NEAR_MS)
    for (let count = 0; count < 10; count++) expect(admitted(all[1]!.counters, who(`b${count}`))).toBeDefined()
    vi.advanceTimersByTime(NEAR_MS)
    expect(all[0]!.counters.admit(who('c'))).toMatchObject({ reason: 'gateway_busy' })
  })

  test('new ones per second and bytes of the day are owed by all, also to one that begins later', () => {
    const { all, join } = gateway({ perSandbox: { newPerSecond: 4 }, perTenant: { bytesPerDay: 100 } })
    const identity = who('sbx', 'acme')
    for (let count = 0; count < 4; count++) admitted(all[0]!.counters, identity)?.addBytes(25)
    vi.advanceTimersByTime(NEAR_MS)
    expect(all[1]!.counters.admit(identity)).toMatchObject({ reason: 'rate_limit' })
    expect(all[1]!.counters.admit(who('other', 'acme'))).toMatchObject({ reason: 'byte_quota' })
    for (const { die } of all) die()
    const { counters } = join()
    expect(counters.admit(identity)).toMatchObject({ reason: 'rate_limit' })
    expect(counters.admit(who('other', 'acme'))).toMatchObject({ reason: 'byte_quota' })
  })

  test('bytes per second that pass here are waited for elsewhere', () => {
    const { all } = gateway({ perSandbox: { bytesPerSecond: 1_000 } })
    const [here, there] = all.map(({ counters }) => admitted(counters))
    expect(there?.pace?.(0)).toBe(0)
    here?.pace?.(2_000)
    vi.advanceTimersByTime(NEAR_MS)
    expect(there?.pace?.(0)).toBeGreaterThan(1_500)
  })

  test('what a dead one held is free, and nothing that it says later counts', () => {
    const { all, supervising } = gateway({ perSandbox: { tunnels: 1 } })
    admitted(all[0]!.counters)
    vi.advanceTimersByTime(NEAR_MS)
    all[0]!.die()
    vi.advanceTimersByTime(NEAR_MS)
    expect(admitted(all[1]!.counters)).toBeDefined()
    expect(supervising.usageOf(who()).tunnels).toBe(0)
  })

  test('one that gives back what it never held is caught', () => {
    const usage = new SharedUsage(1)
    usage.use(new LimitCounters(OPEN, new ManualClock()))
    const member: UsageMember = { send: () => undefined, isSlow: false }
    usage.join(member)
    expect(() => usage.take(member, [['k', 0, -1, 0, 0, 0]])).toThrow(RangeError)
  })
})
