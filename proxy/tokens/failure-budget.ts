/**
 * How much work strangers' bad tokens may cost: a share of a core for each address and for all of them. Spent, tokens not seen before are refused
 * unread until it has refilled; tokens that were verified already are not touched.
 */

import { networkOf } from '../network-of.ts'

/**
 * Microseconds of CPU that one refused token costs, measured on one core and rounded up: with its signature verified and without, and for each byte.
 */
export const FAILURE_COST_US = { signature: 200, cheap: 15, perByte: 1 / 150 }

/** Shares of a core, and how far a burst may run ahead. */
export interface FailureLimits {
  /** Microseconds a second for one address; 2,000 is 0.2 % of a core, or 10 bad signatures. */
  readonly addressUsPerSecond: number
  /** Microseconds that one address may use at once; 40,000 is 200 bad signatures. */
  readonly addressBurstUs: number
  /** For all addresses together; 100,000 is a tenth of a core. */
  readonly totalUsPerSecond: number
  /** Default 400,000. */
  readonly totalBurstUs: number
  /** Addresses kept in mind; the one that failed longest ago is forgotten first. */
  readonly addresses: number
}

const LIMITS: FailureLimits = {
  addressUsPerSecond: 2_000,
  addressBurstUs: 40_000,
  totalUsPerSecond: 100_000,
  totalBurstUs: 400_000,
  addresses: 10_000,
}

/** Counts failures. */
export interface FailureBudget {
  /** Why a token not seen before is refused unread, and for how many seconds; `undefined` while there is budget. */
  readonly exhausted: (
    address: string,
  ) => { readonly reason: 'rate_limit' | 'gateway_busy'; readonly retryAfterSeconds: number } | undefined
  /** Books one refused token. */
  readonly charge: (address: string, costUs: number) => void
}

interface Bucket {
  leftUs: number
  atMs: number
}

/** A budget on a monotonic clock. */
export function createFailureBudget(monotonicMs: () => number, given: Partial<FailureLimits> = {}): FailureBudget {
  const limits = { ...LIMITS, ...given }
  const total: Bucket = { leftUs: limits.totalBurstUs, atMs: monotonicMs() }
  const buckets = new Map<string, Bucket>()

  function refill(bucket: Bucket, perSecond: number, burst: number): number {
    const now = monotonicMs()
    bucket.leftUs = Math.min(burst, bucket.leftUs + ((now - bucket.atMs) * perSecond) / 1000)
    bucket.atMs = now
    return bucket.leftUs
  }

  return {
    exhausted: (address) => {
      const bucket = buckets.get(networkOf(address))
      const own = bucket ? refill(bucket, limits.addressUsPerSecond, limits.addressBurstUs) : Infinity
      if (own <= 0) return { reason: 'rate_limit', retryAfterSeconds: waitSeconds(own, limits.addressUsPerSecond) }
      const all = refill(total, limits.totalUsPerSecond, limits.totalBurstUs)
      if (all <= 0) return { reason: 'gateway_busy', retryAfterSeconds: waitSeconds(all, limits.totalUsPerSecond) }
      return undefined
    },
    charge: (address, costUs) => {
      const key = networkOf(address)
      const bucket = buckets.get(key) ?? { leftUs: limits.addressBurstUs, atMs: monotonicMs() }
      buckets.delete(key)
      buckets.set(key, bucket)
      if (buckets.size > limits.addresses) forgetFirst(buckets)
      bucket.leftUs = refill(bucket, limits.addressUsPerSecond, limits.addressBurstUs) - costUs
      total.leftUs = refill(total, limits.totalUsPerSecond, limits.totalBurstUs) - costUs
    },
  }
}

function forgetFirst(buckets: Map<string, Bucket>): void {
  for (const oldest of buckets.keys()) {
    buckets.delete(oldest)
    return
  }
}

function waitSeconds(leftUs: number, perSecond: number): number {
  return Math.max(1, Math.ceil(-leftUs / perSecond))
}
