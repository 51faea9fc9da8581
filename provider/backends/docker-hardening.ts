/** What a container may do: as little as a worker and the programs that it starts need. */
import type { HostConfig } from 'dockerode'
import type { ContainerFolder } from './container-layout.ts'
import { dockerSeccompProfile } from './docker-seccomp.ts'
import { memoryFolderMb } from './limits.ts'
import type { FilterArchitecture } from './syscalls.ts'

/** What differs between containers. */
export interface HardeningRequest {
  readonly architecture: FilterArchitecture
  readonly runtime: string | undefined
  readonly networkMode: string
  readonly memoryMb: number
  readonly processes: number
  /** The kernel inside is not the host's. */
  readonly foreignKernel: boolean
  readonly cpus: number
  /** MiB of each folder in memory, at most: see {@link memoryFolderMb}. */
  readonly memoryFolderMb: number
  /** Folders in memory, besides `/tmp`. */
  readonly memoryFolders: readonly string[]
  readonly folders: readonly ContainerFolder[]
  /** Mounted read-only, or where said writable: `[host path, path inside]`. */
  readonly binds: readonly { readonly from: string; readonly to: string; readonly writable: boolean }[]
  /** Volumes that the image declares: kept, but not writable. */
  readonly imageVolumes: readonly string[]
}

type Mount = NonNullable<HostConfig['Mounts']>[number]

const MIB = 1024 * 1024

/**
 * A kernel in user space has threads on the host, and ends when it can have no more. Under gVisor's ptrace platform a dozen of them were counted for each
 * process inside. So processes are counted inside, and what the host counts is a second line, well above.
 */
const FOREIGN_KERNEL_TASKS = 32
const FOREIGN_KERNEL_TASKS_AT_REST = 2048

/** For the engine. */
export function hardenedHostConfig(request: HardeningRequest): HostConfig {
  const { folders, binds, imageVolumes, memoryMb } = request
  const memoryFolders = ['/tmp', ...request.memoryFolders]
  const folderMb = memoryFolderMb(request.memoryFolderMb, memoryFolders.length, memoryMb)
  const taken = new Set(folders.map(({ path }) => path))
  return {
    NetworkMode: request.networkMode,
    ...(request.runtime !== undefined && { Runtime: request.runtime }),
    ReadonlyRootfs: true,
    CapDrop: ['ALL'],
    SecurityOpt: ['no-new-privileges:true', `seccomp=${JSON.stringify(dockerSeccompProfile(request.architecture))}`],
    Privileged: false,
    IpcMode: 'private',
    // A name server that answers nothing: old engines ask the host's on behalf of networks without a way out.
    Dns: ['127.0.0.1'],
    DnsSearch: ['.'],
    DnsOptions: ['timeout:1', 'attempts:1'],
    // Nobody may open an ICMP socket.
    Sysctls: { 'net.ipv4.ping_group_range': '1 0' },
    PidsLimit: request.foreignKernel
      ? request.processes * FOREIGN_KERNEL_TASKS + FOREIGN_KERNEL_TASKS_AT_REST
      : request.processes,
    Memory: memoryMb * MIB,
    MemorySwap: memoryMb * MIB,
    NanoCpus: Math.round(request.cpus * 1e9),
    Ulimits: [
      { Name: 'core', Soft: 0, Hard: 0 },
      ...(request.foreignKernel ? [{ Name: 'nproc', Soft: request.processes, Hard: request.processes }] : []),
    ],
    Tmpfs: Object.fromEntries(memoryFolders.map((path) => [path, `rw,nosuid,nodev,exec,mode=1777,size=${folderMb}m`])),
    Mounts: [
      ...binds.map(({ from, to, writable }): Mount => bind(from, to, writable)),
      ...folders.flatMap(({ path, writable, hostPath }): Mount[] => {
        if (hostPath !== undefined) return [bind(hostPath, path, writable)]
        // What the image has there, in a volume that goes with the container.
        return writable ? [{ Type: 'volume', Source: '', Target: path, ReadOnly: false }] : []
      }),
      ...imageVolumes
        .filter((path) => !taken.has(path))
        .map((path): Mount => ({ Type: 'volume', Source: '', Target: path, ReadOnly: true })),
    ],
    Init: true,
    RestartPolicy: { Name: 'no' },
    // Gone with its end, also when nobody is there to remove it.
    AutoRemove: true,
    LogConfig: { Type: 'none', Config: {} },
  }
}

function bind(from: string, to: string, writable: boolean): Mount {
  return { Type: 'bind', Source: from, Target: to, ReadOnly: !writable, BindOptions: { Propagation: 'rprivate' } }
}
