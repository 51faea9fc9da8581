/** Is this trace kept? A share of all by their identifiers, so that others who sample alike keep the same, and so many a second at most. */

/** Settings of {@link createSampler}. */
export interface SamplerOptions {
  /** From 0 to 1. */
  readonly ratio: number
  /** A client can choose identifiers that are kept: this bounds what that costs. */
  readonly maxPerSecond: number
  readonly monotonicMs: () => number
}

/** 13 hexadecimal digits: as many bits as a number holds exactly. */
const RANGE = 2 ** 52

/**
 * Whether to keep a trace: by the leading 52 of the 56 bits of its identifier that are random. At most a second's worth at once.
 * @see https://opentelemetry.io/docs/specs/otel/trace/tracestate-probability-sampling/
 */
export function createSampler(options: SamplerOptions): (traceId: string) => boolean {
  const { ratio, maxPerSecond, monotonicMs } = options
  const threshold = (1 - ratio) * RANGE
  let left = maxPerSecond
  let refilledAtMs = monotonicMs()
  return (traceId) => {
    if (Number.parseInt(traceId.slice(18, 31), 16) < threshold) return false
    const nowMs = monotonicMs()
    left = Math.min(maxPerSecond, left + ((nowMs - refilledAtMs) / 1000) * maxPerSecond)
    refilledAtMs = nowMs
    if (left < 1) return false
    left -= 1
    return true
  }
}
