/** Looks after a machine for as long as this process has it: keeps it alive, and notices when it is gone or does not answer. */
import { lost } from '../../worker-client/exchange.ts'
import type { E2bApi, Machine } from './e2b-api.ts'

/** What is watched. */
export interface WatchOptions {
  readonly api: E2bApi
  readonly machine: Machine
  readonly leaseMs: number
  /** When it is to end by itself; never asked to live longer. */
  readonly expiresAtMs?: number | undefined
  /** Called when it does not answer any more; with `ended` if it is gone. */
  readonly onLoss: (error: Error) => void
}

/** See the fields. */
export interface Watch {
  readonly ended: Promise<void>
  readonly stop: () => void
}

const LOOK_MS = 4_000
const ANSWER_MS = 5_000
/** As long as a worker may be silent. */
const SILENCE_MS = 45_000

/** Begins at once. Keeps no process alive. */
export function watchMachine({ api, machine, leaseMs, expiresAtMs, onLoss }: WatchOptions): Watch {
  const ended = Promise.withResolvers<undefined>()
  let isOver = false
  let answeredAtMs = Date.now()
  let keptAtMs = Date.now()
  let timer: NodeJS.Timeout | undefined

  const over = (): void => {
    if (isOver) return
    stop()
    onLoss(lost(new Error('the machine has ended')))
    ended.resolve(undefined)
  }
  const stop = (): void => {
    isOver = true
    clearTimeout(timer)
  }
  const look = async (): Promise<void> => {
    const answers = await machine.isRunning({ requestTimeoutMs: ANSWER_MS }).catch(() => undefined)
    const now = Date.now()
    if (answers === true) answeredAtMs = now
    // Its envd may be gone for a moment, and the network too: the API knows.
    else if (!(await api.isThere(machine.sandboxId))) {
      over()
      return
    } else if (now - answeredAtMs > SILENCE_MS) onLoss(lost(new Error('the machine does not answer')))
    if (now - keptAtMs > leaseMs / 3) {
      if (!(await api.extend(machine.sandboxId, lifeMs(leaseMs, expiresAtMs)))) {
        over()
        return
      }
      keptAtMs = now
    }
  }
  const again = (): void => {
    if (isOver) return
    // A platform that fails for a moment is asked again: the machine lives on meanwhile.
    timer = setTimeout(() => void look().catch(() => undefined).then(again), LOOK_MS).unref() // prettier-ignore
  }
  again()
  return { ended: ended.promise, stop }
}

/** For how long the platform is to keep it from now on; it counts in seconds. */
export function lifeMs(leaseMs: number, expiresAtMs: number | undefined): number {
  return Math.max(1_000, Math.min(leaseMs, (expiresAtMs ?? Infinity) - Date.now()))
}
