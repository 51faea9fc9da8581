import { describe, expect, test } from 'vitest'
import { type Admission, type GatewayLimits, LimitCounters, type Place } from '../../../proxy/tunnels/limits.ts'
import type { Identity } from '../../../proxy/tokens/identity.ts'
import { ManualClock } from './manual-clock.ts'

const OPEN: GatewayLimits = { tunnels: 100, perSandbox: {}, perTenant: {} }

function identity(over: Partial<Identity> = {}): Identity {
  return {
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
  }
}

function placeOf(admission: Admission): Place {
  if (!admission.ok) throw new Error(`refused: ${admission.reason}`)
  return admission.place
}

describe('tunnels at a time', () => {
  test('the sandbox that holds its limit is refused until it gives one back', () => {
    const limits = new LimitCounters({ ...OPEN, perSandbox: { tunnels: 2 } }, new ManualClock())
    const first = placeOf(limits.admit(identity()))
    placeOf(limits.admit(identity()))
    expect(limits.admit(identity())).toMatchObject({ ok: false, reason: 'tunnel_limit' })
    first.release()
    expect(limits.admit(identity()).ok).toBe(true)
  })

  test('releasing twice gives back one place', () => {
    const limits = new LimitCounters({ ...OPEN, perSandbox: { tunnels: 1 } }, new ManualClock())
    const place = placeOf(limits.admit(identity()))
    place.release()
    place.release()
    placeOf(limits.admit(identity()))
    expect(limits.admit(identity())).toMatchObject({ ok: false, reason: 'tunnel_limit' })
    expect(limits.tunnels).toBe(1)
  })

  test('sandboxes of one name under two tenants or two issuers do not share a limit', () => {
    const limits = new LimitCounters({ ...OPEN, perSandbox: { tunnels: 1 } }, new ManualClock())
    placeOf(limits.admit(identity()))
    expect(limits.admit(identity({ tenant: 'umbrella' })).ok).toBe(true)
    expect(limits.admit(identity({ issuer: 'https://other.example' })).ok).toBe(true)
  })

  test('a tenant limit holds over all sandboxes of the tenant, and a refusal costs the sandbox nothing', () => {
    const limits = new LimitCounters({ ...OPEN, perTenant: { tunnels: 1 } }, new ManualClock())
    const place = placeOf(limits.admit(identity()))
    expect(limits.admit(identity({ sandbox: 'sbx_2' }))).toMatchObject({ ok: false, reason: 'tunnel_limit' })
    expect(limits.usageOf(identity({ sandbox: 'sbx_2' })).tunnels).toBe(0)
    place.release()
    expect(limits.admit(identity({ sandbox: 'sbx_2' })).ok).toBe(true)
  })

  test('tokens without a sandbox each count for themselves', () => {
    const limits = new LimitCounters({ ...OPEN, perSandbox: { tunnels: 1 } }, new ManualClock())
    placeOf(limits.admit(identity({ sandbox: undefined, tokenId: 'a' })))
    expect(limits.admit(identity({ sandbox: undefined, tokenId: 'a' })).ok).toBe(false)
    expect(limits.admit(identity({ sandbox: undefined, tokenId: 'b' })).ok).toBe(true)
  })

  test('the whole gateway being full is not the fault of one identity', () => {
    const limits = new LimitCounters({ ...OPEN, tunnels: 1 }, new ManualClock())
    placeOf(limits.admit(identity()))
    expect(limits.admit(identity({ sandbox: 'sbx_2' }))).toMatchObject({ ok: false, reason: 'gateway_busy' })
  })
})

describe('new ones per second', () => {
  test('a burst of one second is let through, then the rate holds', () => {
    const clock = new ManualClock()
    const limits = new LimitCounters({ ...OPEN, perSandbox: { newPerSecond: 2 } }, clock)
    const admitted = () => limits.admit(identity()).ok
    expect([admitted(), admitted(), admitted()]).toEqual([true, true, false])
    clock.advance(500)
    expect([admitted(), admitted()]).toEqual([true, false])
    clock.advance(60_000)
    expect([admitted(), admitted(), admitted()]).toEqual([true, true, false])
  })

  test('setting the wall clock back or ahead does not grant more', () => {
    const clock = new ManualClock()
    const limits = new LimitCounters({ ...OPEN, perSandbox: { newPerSecond: 1 } }, clock)
    placeOf(limits.admit(identity()))
    clock.jump(3_600_000)
    expect(limits.admit(identity())).toMatchObject({ ok: false, reason: 'rate_limit' })
  })
})

describe('bytes per day', () => {
  test('bytes of all tunnels of the sandbox count, and the next day begins at zero', () => {
    const clock = new ManualClock()
    const limits = new LimitCounters({ ...OPEN, perSandbox: { bytesPerDay: 1000 } }, clock)
    const one = placeOf(limits.admit(identity()))
    const two = placeOf(limits.admit(identity()))
    expect(one.addBytes(600)).toBe(false)
    expect(two.addBytes(400)).toBe(true)
    expect(limits.admit(identity())).toMatchObject({ ok: false, reason: 'byte_quota', retryAfterSeconds: 12 * 3600 })
    clock.advance(12 * 3_600_000)
    expect(limits.admit(identity()).ok).toBe(true)
    expect(one.addBytes(1)).toBe(false)
  })

  test('a tenant quota is used up by its sandboxes together', () => {
    const limits = new LimitCounters({ ...OPEN, perTenant: { bytesPerDay: 10 } }, new ManualClock())
    placeOf(limits.admit(identity())).addBytes(10)
    expect(limits.admit(identity({ sandbox: 'sbx_9' }))).toMatchObject({ ok: false, reason: 'byte_quota' })
    expect(limits.admit(identity({ tenant: 'umbrella' })).ok).toBe(true)
  })
})

test('fifty thousand one-off sandboxes do not grow the counters without bound, and open ones are kept', () => {
  const limits = new LimitCounters({ tunnels: 1_000_000, perSandbox: { tunnels: 1 }, perTenant: {} }, new ManualClock())
  const kept = identity({ sandbox: 'kept' })
  placeOf(limits.admit(kept))
  for (let i = 0; i < 60_000; i++) placeOf(limits.admit(identity({ sandbox: `once-${i}` }))).release()
  expect(limits.admit(kept)).toMatchObject({ ok: false, reason: 'tunnel_limit' })
  expect(limits.usageOf(identity({ sandbox: 'once-1' })).tunnels).toBe(0)
})
