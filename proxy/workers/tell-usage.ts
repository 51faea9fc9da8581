/** Tells what was counted against limits: a moment after it was counted where a limit is near, and else with all that comes in a second. */
import { type UsageChange, UntoldUsage } from '../tunnels/usage.ts'
import { TELL_LATER_MS, TELL_MS } from './protocol.ts'

/** Collects and tells. */
export interface UsageTeller {
  readonly untold: UntoldUsage
  /** Idempotent. */
  readonly close: () => void
}

/** `isSlow`: the other side has not read what it was told before; then it is told later, and all in one. */
export function tellUsage(
  processes: number,
  tell: (changes: readonly UsageChange[]) => void,
  isSlow: () => boolean = () => false,
): UsageTeller {
  let soon: NodeJS.Timeout | undefined
  let later: NodeJS.Timeout | undefined
  const send = (isAll: boolean): void => {
    const changes = untold.take(isAll).filter(counts)
    if (changes.length > 0) tell(changes)
  }
  const plan = (isSoon: boolean): void => {
    if (isSoon) soon ??= setTimeout(sendSoon, TELL_MS).unref()
    else later ??= setTimeout(sendAll, TELL_LATER_MS).unref()
  }
  const sendSoon = (): void => {
    soon = undefined
    if (isSlow()) plan(true)
    else send(false)
  }
  const sendAll = (): void => {
    later = undefined
    if (isSlow()) plan(false)
    else send(true)
  }
  const untold = new UntoldUsage(processes, plan)
  return {
    untold,
    close: () => {
      clearTimeout(soon)
      clearTimeout(later)
    },
  }
}

/** A tunnel that came and went at once still counts against the new ones per second. */
function counts({ tunnels, opened, bytes, paced }: UsageChange): boolean {
  return tunnels !== 0 || opened + bytes + paced > 0
}
