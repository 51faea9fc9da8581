/** Which process made a sandbox, and whether it is still there. A number alone says nothing: numbers come back. */
import { createHash } from 'node:crypto'
import { readFileSync, readlinkSync } from 'node:fs'
import { readFile } from 'node:fs/promises'

/** Whether an owner lives. `unknown`: it can't be seen from here (another machine, another container), so nothing is concluded. */
export type OwnerState = 'alive' | 'gone' | 'unknown'

let own: string | undefined

/** This process, as `machine.boot.namespace.pid.start`; fit for a label. */
export function ownerOfThisProcess(): string {
  own ??= [machine(), boot(), pidNamespace(), process.pid, startOf(read(`/proc/${process.pid}/stat`)) ?? '0'].join('.')
  return own
}

/** Looks for the process that an owner names. */
export async function stateOfOwner(owner: string | undefined): Promise<OwnerState> {
  const [ownMachine, ownBoot, ownNamespace] = ownerOfThisProcess().split('.')
  const [theirMachine, theirBoot, namespace, pidText = '', start] = (owner ?? '').split('.')
  const pid = Number(pidText)
  if (theirMachine !== ownMachine || start === undefined || !Number.isSafeInteger(pid) || pid <= 0) return 'unknown'
  if (theirBoot !== ownBoot) return 'gone'
  if (namespace !== ownNamespace) return 'unknown'
  if (process.platform !== 'linux') return isThere(pid) ? 'alive' : 'gone'
  return startOf(await readFile(`/proc/${pid}/stat`, 'latin1').catch(() => '')) === start ? 'alive' : 'gone'
}

/** Field 22 in the kernel's ticks; undefined for a process that is gone or a zombie. @see man 5 proc_pid_stat */
function startOf(stat: string): string | undefined {
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return fields[0] === 'Z' || fields[0] === 'X' ? undefined : fields[19]
}

function machine(): string {
  const id = read('/etc/machine-id').trim()
  return id === '' ? 'none' : createHash('sha256').update(id).digest('hex').slice(0, 12)
}

function boot(): string {
  return read('/proc/sys/kernel/random/boot_id').trim().slice(0, 8) || 'none'
}

function pidNamespace(): string {
  try {
    return /\d+/.exec(readlinkSync('/proc/self/ns/pid'))?.[0] ?? 'none'
  } catch {
    return 'none'
  }
}

function read(file: string): string {
  try {
    return readFileSync(file, 'latin1')
  } catch {
    return ''
  }
}

function isThere(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
