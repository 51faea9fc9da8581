/** Notices that a group has ended by itself: its worker is knocked at now and then, and Azure is asked only when nobody opens. */
import { setTimeout as delay } from 'node:timers/promises'
import type net from 'node:net'
import type { Arm } from './arm.ts'
import { whyEnded } from './reach-worker.ts'

const LOOK_MS = 5_000

/** Resolves when it has ended, or `isStopped`. What can't be asked is not over. Does not keep the process alive. */
export async function untilGroupEnded(
  arm: Pick<Arm, 'getGroup'>,
  name: string,
  connect: () => Promise<net.Socket>,
  isStopped: () => boolean,
): Promise<void> {
  for (;;) {
    await delay(LOOK_MS, undefined, { ref: false })
    if (isStopped()) return
    if (await opens(connect)) continue
    try {
      if (whyEnded((await arm.getGroup(name))?.group) !== undefined) return
    } catch {
      // Asked again.
    }
  }
}

async function opens(connect: () => Promise<net.Socket>): Promise<boolean> {
  try {
    const socket = await connect()
    socket.destroy()
    return true
  } catch {
    return false
  }
}
