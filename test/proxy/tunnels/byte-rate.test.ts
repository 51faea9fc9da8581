import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ByteRate } from '../../../proxy/tunnels/byte-rate.ts'
import { type GatewayLimits, LimitCounters, type Place } from '../../../proxy/tunnels/limits.ts'
import type { Identity } from '../../../proxy/tokens/identity.ts'
import { ManualClock } from './manual-clock.ts'

const SECOND_BYTES = 100_000

describe('one rate', () => {
  test('whoever waits as told keeps to it within a twentieth, whatever the sizes of the reads', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 65_536 }), { minLength: 200, maxLength: 400 }), (reads) => {
        const clock = new ManualClock()
        const rate = new ByteRate(clock)
        const startedMs = clock.monotonicMs()
        let last = 0
        for (const bytes of reads) {
          last = bytes
          clock.advance(rate.take(bytes, SECOND_BYTES))
        }
        const total = reads.reduce((sum, bytes) => sum + bytes, 0)
        const atRateMs = (total / SECOND_BYTES) * 1000
        const tookMs = clock.monotonicMs() - startedMs
        expect(tookMs).toBeGreaterThan(atRateMs * 0.95 - 51)
        expect(tookMs).toBeLessThan(atRateMs * 1.05 + (last / SECOND_BYTES) * 1000 + reads.length)
      }),
    )
  })

  test('a pause saves up a twentieth of a second and no more', () => {
    const clock = new ManualClock()
    const rate = new ByteRate(clock)
    rate.take(1, SECOND_BYTES)
    clock.advance(3_600_000)
    expect(rate.take(SECOND_BYTES / 20, SECOND_BYTES)).toBe(0)
    expect(rate.take(1_000, SECOND_BYTES)).toBe(10)
  })

  test('two that share it wait for both', () => {
    const rate = new ByteRate(new ManualClock())
    rate.take(SECOND_BYTES / 20, SECOND_BYTES)
    expect([rate.take(1_000, SECOND_BYTES), rate.take(1_000, SECOND_BYTES)]).toEqual([10, 20])
  })
})

describe('places', () => {
  const identity = (over: Partial<Identity> = {}): Identity => ({
    tokenId: 'jti',
    issuer: 'https://host.example',
    keyId: undefined,
    sandbox: 'sbx_1',
    tenant: 'acme',
    issuedAtMs: 0,
    expiresAtMs: Infinity,
    claim: { kind: 'deny-all' },
    binding: undefined,
    ...over,
  })
  const admit = (limits: LimitCounters, over?: Partial<Identity>): Place => {
    const admission = limits.admit(identity(over))
    if (!admission.ok) throw new Error(admission.reason)
    return admission.place
  }
  const counters = (over: Partial<GatewayLimits>): LimitCounters =>
    new LimitCounters({ tunnels: 100, perSandbox: {}, perTenant: {}, ...over }, new ManualClock())

  test('without a limit there is no pace', () => {
    expect(admit(counters({})).pace).toBeUndefined()
  })

  test('tunnels of a sandbox share its rate; another sandbox has its own', () => {
    const limits = counters({ perSandbox: { bytesPerSecond: 1_000 } })
    expect(admit(limits).pace?.(1_050)).toBe(1_000)
    expect(admit(limits).pace?.(1_000)).toBe(2_000)
    expect(admit(limits, { sandbox: 'sbx_2' }).pace?.(50)).toBe(0)
  })

  test('the slower of sandbox and tenant holds', () => {
    const limits = counters({ perSandbox: { bytesPerSecond: 10_000 }, perTenant: { bytesPerSecond: 1_000 } })
    expect(admit(limits).pace?.(1_050)).toBe(1_000)
    expect(admit(limits, { sandbox: 'sbx_2' }).pace?.(1_000)).toBe(2_000)
    expect(admit(limits, { tenant: 'umbrella' }).pace?.(50)).toBe(0)
  })

  test('a limit that is taken away slows nothing any more', () => {
    const limits = counters({ perSandbox: { bytesPerSecond: 1_000 } })
    const { pace } = admit(limits)
    limits.replaceLimits({ tunnels: 100, perSandbox: {}, perTenant: {} })
    expect(pace?.(1_000_000)).toBe(0)
  })
})
