/** Sandboxes of this machine that any process of the same user made, by what is on record about them. */
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { StartedSandbox } from '../backend.ts'
import type { SandboxInfo } from '../sandbox.ts'
import { killTree } from '../worker/process-tree.ts'
import { removeCgroup } from './cgroup.ts'
import { connectControl } from './control-socket.ts'
import { isRunning, type ProcessRecord, readRecord, readRecords } from './process-record.ts'
import { onlyOnce } from './process-start.ts'

const LOOK_MS = 500
const WAIT_MS = 10

/** Those on record, also when they have ended and nobody has cleared up behind them. */
export async function listRecorded(
  runtimeRoot: string,
  backend: ProcessRecord['backend'],
): Promise<readonly SandboxInfo[]> {
  const records = await readRecords(runtimeRoot, backend)
  return records.map(({ id, createdAtMs, expiresAtMs, labels }) => ({
    id,
    createdAtMs,
    ...(expiresAtMs !== undefined && { expiresAtMs }),
    labels,
  }))
}

/** Undefined when it has ended; what is left of it on the machine, its control groups, is then removed. */
export async function attachRecorded(
  runtimeFolder: string,
  backend: ProcessRecord['backend'],
): Promise<StartedSandbox | undefined> {
  const record = await readRecord(runtimeFolder)
  if (record?.backend !== backend || record.id !== path.basename(runtimeFolder)) return undefined
  if (!(await isRunning(record))) {
    await removeCgroup(record.cgroups)
    return undefined
  }
  return {
    rootDir: record.rootDir,
    ...(record.gatewayPort !== undefined && { gateway: { host: '127.0.0.1', port: record.gatewayPort } }),
    connect: () => connectControl(path.join(runtimeFolder, 'control', 'worker.sock')),
    ended: untilGone(record, LOOK_MS),
    stop: onlyOnce(async () => {
      // Without a wall nothing ends with the first process: it is asked to end what it started.
      if (await isRunning(record)) kill(record.pid, backend === 'passthrough' ? 'SIGTERM' : 'SIGKILL')
      await untilGone(record, WAIT_MS)
      if (backend === 'passthrough') killTree(undefined, `${record.pid}-`)
      await removeCgroup(record.cgroups)
    }),
  }
}

/** Does not keep the process alive. */
async function untilGone(record: ProcessRecord, pauseMs: number): Promise<void> {
  while (await isRunning(record)) await delay(pauseMs, undefined, { ref: pauseMs === WAIT_MS })
}

function kill(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}
