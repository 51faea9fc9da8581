/** Machines that wait, stopped, for whoever asks next. A pool never makes anybody wait: who finds it empty makes a machine of their own. */
import { rm } from 'node:fs/promises'
import path from 'node:path'
import { stateOfOwner } from '../../owner.ts'
import type { WaitingMachine } from './make-machine.ts'
import { removeMachine } from './remove-machine.ts'
import { readMachines } from './vm-record.ts'

/** A machine of a pool. */
export interface PooledMachine extends WaitingMachine {
  /** Takes it off the pool's own records, once a sandbox has it on its. */
  readonly leave: () => Promise<void>
}

/** A pool of one backend. */
export interface MachinePool {
  /** Makes what is missing, one after the other, in the background; a machine that can't be made is not tried again before the next call. */
  readonly fill: () => void
  /** One that is ready, if there is one, and makes another. */
  readonly take: () => Promise<PooledMachine | undefined>
  /** Ends those that wait; idempotent. */
  readonly close: () => Promise<void>
}

/** An empty one, for `size` machines. */
export function createMachinePool(size: number, make: (signal: AbortSignal) => Promise<PooledMachine>): MachinePool {
  const ready = new Set<PooledMachine>()
  const closing = new AbortController()
  let filling: Promise<void> | undefined

  const isClosed = (): boolean => closing.signal.aborted
  const fillUp = async (): Promise<void> => {
    while (ready.size < size && !isClosed()) {
      const made = await make(closing.signal)
      if (isClosed()) return made.remove()
      ready.add(made)
      // One that ended by itself is of no use to anybody.
      void made.ended.then(() => (ready.delete(made) ? made.remove().catch(() => undefined) : undefined))
    }
  }
  const fill = (): void => {
    filling ??= fillUp()
      .catch(() => undefined)
      .finally(() => (filling = undefined))
  }
  return {
    fill,
    take: () => {
      const [first] = ready
      if (first !== undefined) ready.delete(first)
      if (size > 0) fill()
      return Promise.resolve(first)
    },
    close: async () => {
      closing.abort(new Error('the pool is closed'))
      await filling
      const left = [...ready]
      ready.clear()
      await Promise.all(left.map((machine) => machine.remove()))
    },
  }
}

/** Takes away the machines of pools whose process is gone. */
export async function sweepPool(runtimeRoot: string): Promise<void> {
  for (const { name, record } of await readMachines(runtimeRoot)) {
    if (!name.startsWith('vm_') || (await stateOfOwner(record.owner)) !== 'gone') continue
    await removeMachine(record)
    await rm(path.join(runtimeRoot, name), { recursive: true, force: true })
  }
}
