/**
 * How a sandbox on this machine is held to its memory and its number of processes: by a control group where one may be made. Elsewhere processes are
 * counted by a resource limit, and memory is not limited: a resource limit on memory counts what is reserved, and Node and the like reserve gigabytes.
 */
import { SandboxError } from '../sandbox-error.ts'
import { type CgroupFacts, type CgroupPlace, findCgroupPlace, makeCgroup, removeCgroup } from './cgroup.ts'

/** What may be asked for. */
export interface LimitRequest {
  readonly memoryLimitMb?: number | undefined
  readonly maxProcesses?: number | undefined
}

/** What enforces limits here. */
export interface LimitSupport {
  readonly method: 'cgroup-v2' | 'cgroup-v1' | 'prlimit'
  readonly memory: boolean
  readonly processes: boolean
  readonly place: CgroupPlace | undefined
}

/** Limits that a process inherits. */
export interface ResourceLimits {
  /** RLIMIT_NPROC. */
  readonly tasks?: number
}

/** Limits of one sandbox, ready to be entered. */
export interface OpenLimits {
  readonly method: LimitSupport['method']
  /** Outside: a process joins by writing `0` into each of these. */
  readonly joinFiles: readonly string[]
  /** Inside, in the sandbox's own user namespace, where processes are counted from nought. */
  readonly resourceLimits: ResourceLimits
  /** What is to be removed when the sandbox is gone, also by another process. */
  readonly folders: readonly string[]
  readonly close: () => Promise<void>
}

/**
 * Processes and threads of a sandbox for which nothing was asked: enough for builds and browsers, and a fork bomb ends long before the machine does.
 */
export const DEFAULT_MAX_PROCESSES = 1024

/** The worker's own threads and the two processes of bubblewrap; they come on top of what the caller gives. */
const OWN_TASKS = 24

/** Below this the worker itself does not start. */
export const MIN_MEMORY_LIMIT_MB = 96

/** Looks at the machine. `facts` for tests. */
export function findLimitSupport(facts?: CgroupFacts, uid = process.getuid?.()): LimitSupport {
  const place = findCgroupPlace(facts)
  if (place !== undefined) return { method: `cgroup-v${place.version}`, memory: true, processes: true, place }
  // The kernel exempts root from RLIMIT_NPROC.
  return { method: 'prlimit', memory: false, processes: uid !== 0, place }
}

/** Of a platform that has none of this. */
export const NO_LIMITS: LimitSupport = { method: 'prlimit', memory: false, processes: false, place: undefined }

/** What is left open here, for `capabilities.leftOpen`. */
export function limitGaps(support: LimitSupport): readonly string[] {
  return [
    ...(support.memory ? [] : ['memory is not limited, since no control group is writable here']),
    ...(support.processes
      ? []
      : [
          'the number of processes is not limited, since no control group is writable here and the kernel exempts root from resource limits',
        ]),
  ]
}

/**
 * MiB that each of so many folders in memory may hold. What is in one outlives the command that wrote it and counts towards the limit: where all of them
 * full would be more than that, they are half of it together, and the rest is for commands.
 */
export function memoryFolderMb(wantedMb: number, folders: number, limitMb = Infinity): number {
  return wantedMb * folders <= limitMb ? wantedMb : Math.max(1, Math.floor(limitMb / (2 * folders)))
}

const HOW_TO_GET_GROUPS =
  'no control group is writable here (with systemd, start the host under `systemd-run --user --scope`)'

/**
 * Makes the limits of sandbox `id`.
 *
 * @throws SandboxError `SALLYPORT_SANDBOX_NOT_SUPPORTED` for a limit that makes no sense or that nothing here can hold
 */
export async function openLimits(support: LimitSupport, id: string, request: LimitRequest): Promise<OpenLimits> {
  const { memoryLimitMb, maxProcesses } = request
  if (
    memoryLimitMb !== undefined &&
    !(memoryLimitMb >= MIN_MEMORY_LIMIT_MB && memoryLimitMb <= Number.MAX_SAFE_INTEGER / 2 ** 20)
  )
    throw notSupported(`memoryLimitMb must be ${MIN_MEMORY_LIMIT_MB} or more: the sandbox's worker is counted too`)
  if (maxProcesses !== undefined && !(Number.isInteger(maxProcesses) && maxProcesses >= 1 && maxProcesses <= 2 ** 22))
    throw notSupported('maxProcesses must be a whole number, 1 or more')
  if (memoryLimitMb !== undefined && !support.memory)
    throw notSupported(`memoryLimitMb can not be enforced: ${HOW_TO_GET_GROUPS}`)
  if (maxProcesses !== undefined && !support.processes)
    throw notSupported(`maxProcesses can not be enforced for root: ${HOW_TO_GET_GROUPS}`)
  const tasks = (maxProcesses ?? DEFAULT_MAX_PROCESSES) + OWN_TASKS

  if (support.place === undefined) {
    return {
      method: support.method,
      joinFiles: [],
      folders: [],
      resourceLimits: support.processes ? { tasks } : {},
      close: () => Promise.resolve(),
    }
  }
  const memoryBytes = memoryLimitMb === undefined ? undefined : Math.floor(memoryLimitMb * 2 ** 20)
  const { joinFiles, folders } = await makeCgroup(support.place, id, { memoryBytes, tasks })
  return { method: support.method, joinFiles, resourceLimits: {}, folders, close: () => removeCgroup(folders) }
}

function notSupported(message: string): SandboxError {
  return new SandboxError('SALLYPORT_SANDBOX_NOT_SUPPORTED', message)
}
