/** Which machines have ended by themselves: one look at the list for all of them, now and then; what it lacks is looked at by itself, since a list may be old. */
import { hasEnded, type MachinesApi } from './machines-api.ts'
import { ANY_SANDBOX } from './machine-request.ts'

/** Looks as long as it has something to look for. */
export interface MachineWatch {
  /** Resolves when the machine has ended. */
  readonly ended: (machineId: string) => Promise<void>
  /** It was ended by us: the promise resolves at once. */
  readonly forget: (machineId: string) => void
  readonly close: () => void
}

/** What can't be asked is not over: it is asked for again. */
export function createMachineWatch(api: Pick<MachinesApi, 'list' | 'get'>, everyMs: number): MachineWatch {
  const watched = new Map<string, { readonly ended: Promise<void>; readonly end: () => void }>()
  let timer: NodeJS.Timeout | undefined
  const end = (id: string): void => {
    const entry = watched.get(id)
    watched.delete(id)
    entry?.end()
  }
  const look = async (): Promise<void> => {
    const running = new Set((await api.list(ANY_SANDBOX)).filter((each) => !hasEnded(each)).map(({ id }) => id))
    for (const id of [...watched.keys()].filter((each) => !running.has(each))) {
      const machine = await api.get(id)
      if (machine === undefined || hasEnded(machine)) end(id)
    }
  }
  const arm = (): void => {
    if (timer !== undefined || watched.size === 0) return
    timer = setTimeout(() => {
      void look()
        .catch(() => undefined)
        .finally(() => {
          timer = undefined
          arm()
        })
    }, everyMs)
    timer.unref()
  }
  return {
    ended: (id) => {
      const known = watched.get(id)
      if (known !== undefined) return known.ended
      let settle = (): void => undefined
      const ended = new Promise<void>((resolve) => (settle = resolve))
      watched.set(id, { ended, end: settle })
      arm()
      return ended
    },
    forget: end,
    close: () => {
      clearTimeout(timer)
      timer = undefined
      watched.clear()
    },
  }
}
