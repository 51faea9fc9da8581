/** What gVisor leaves running when a container failed to start: its sentry, its gofer and their shim, which the engine forgets and which eat a processor. */
import { readdir, readFile } from 'node:fs/promises'

const CONTAINER_ID = /^[0-9a-f]{64}$/
const PROGRAMS = /(^|\/)(runsc[\w-]*|exe|containerd-shim[\w-]*)$/
const PATIENCE_MS = 2_000
const RETRY_MS = 50

/** Ends the processes of one container, by id. Processes of somebody else can not be ended, nor, on another machine, be seen; then it does nothing. */
export async function sweepRunsc(containerId: string): Promise<void> {
  if (!CONTAINER_ID.test(containerId) || process.platform !== 'linux') return
  const untilMs = performance.now() + PATIENCE_MS
  // One that is just ending by itself is given time to.
  let found = await findRunsc(containerId)
  while (found.length > 0 && performance.now() < untilMs) {
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS))
    found = await findRunsc(containerId)
  }
  for (const pid of found) {
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // Gone meanwhile, or not ours to end.
    }
  }
}

/** Processes of gVisor or its shim whose command line has the container's id. */
export async function findRunsc(containerId: string): Promise<readonly number[]> {
  const pids: number[] = []
  for (const name of await readdir('/proc').catch(() => [])) {
    if (!/^\d+$/.test(name)) continue
    const args = (await readFile(`/proc/${name}/cmdline`, 'utf8').catch(() => '')).split('\0')
    const [program = ''] = args
    if (
      (PROGRAMS.test(program) || program.startsWith('runsc')) &&
      args.some((arg) => arg === containerId || arg.includes(`/${containerId}`))
    )
      pids.push(Number(name))
  }
  return pids
}
