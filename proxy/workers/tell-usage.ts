/** Tells what was counted against limits a moment after it was counted: what comes within that moment goes in one message. */
import type { UsageChange } from '../tunnels/usage.ts'
import { UntoldUsage } from '../tunnels/usage.ts'
import { packUsage, TELL_MS, type WireUsage } from './protocol.ts'

/** Collects and tells. */
export interface UsageTeller {
  readonly untold: UntoldUsage
  /** Idempotent. */
  readonly close: () => void
}

/** `isSlow`: the other side has not read what it was told before; then it is told later, and all in one. */
export function tellUsage(tell: (changes: WireUsage) => void, isSlow: () => boolean): UsageTeller {
  let timer: NodeJS.Timeout | undefined
  const plan = (): void => {
    timer ??= setTimeout(() => {
      timer = undefined
      if (isSlow()) plan()
      else for (const changes of packUsage(untold.take().filter(counts))) tell(changes)
    }, TELL_MS).unref()
  }
  const untold = new UntoldUsage(plan)
  return { untold, close: () => clearTimeout(timer) }
}

/** A tunnel that came and went at once still counts against the new ones per second. */
function counts({ tunnels, opened, bytes, paced }: UsageChange): boolean {
  return tunnels !== 0 || opened + bytes + paced > 0
}
