/** Takes a machine away, whoever made it and however far it came: by its record alone, part by part, and as often as one likes. */
import { readdir, rm, stat } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { removeCgroup } from '../cgroup.ts'
import { isRunning, startTimeOf } from '../process-record.ts'
import { removeFolders } from './machine-folder.ts'
import { removeNetwork } from './tap-network.ts'
import type { MachineRecord } from './vm-record.ts'

const PAUSE_MS = 10

/** Resolves when nothing of it is left but the record. */
export async function removeMachine(record: MachineRecord): Promise<void> {
  for (;;) {
    const left = await processesOf(record)
    if (left.length === 0) break
    for (const pid of left) kill(pid)
    await delay(PAUSE_MS)
  }
  await removeCgroup(record.cgroups)
  if (record.network !== undefined) await removeNetwork(record.network)
  await removeFolders(record.folders)
  if (record.uidClaim !== undefined) await rm(record.uidClaim, { force: true })
}

/** Those on record, and whatever runs under the machine's own user: it may have been started just before the host died. */
async function processesOf({ processes, uid }: MachineRecord): Promise<readonly number[]> {
  const found = new Set<number>()
  for (const each of processes) if (await isRunning(each)) found.add(each.pid)
  if (uid === undefined) return [...found]
  const names = await readdir('/proc')
  await Promise.all(
    names.map(async (name) => {
      if (!/^\d+$/.test(name)) return
      const owner = await stat(`/proc/${name}`).then(
        (stats) => stats.uid,
        () => undefined,
      )
      // A zombie is somebody else's to collect.
      if (owner === uid && (await startTimeOf(Number(name))) !== undefined) found.add(Number(name))
    }),
  )
  return [...found]
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}
