/** What an engine makes a machine from, and what it gives back. */
import type { Launched } from './launch.ts'

/** Where one machine is made. */
export interface Place {
  readonly id: string
  /** Its folder on the host, made and staged. */
  readonly folder: string
  readonly uid: number | undefined
  /** Name of its network namespace, which has the interface; undefined for a machine without a network. */
  readonly network: string | undefined
  /** Control groups, made; a process joins by writing `0` into each. */
  readonly joinFiles: readonly string[]
  /** To be told of each process as soon as it is there, before the next step. */
  readonly launched: (launched: Launched) => Promise<void>
  readonly signal: AbortSignal
}

/** What it looks like from inside. */
export interface Shape {
  readonly memoryMb: number
  readonly cpus: number
  readonly hasInitrd: boolean
  readonly rateLimits: RateLimits
}

/** What one machine may take of the host, each a second. */
export interface RateLimits {
  /** Reads of the root file system; 200 MB by default. */
  readonly diskBytes: number
  /** 20 000 by default. */
  readonly diskOperations: number
  /** Each way, of a machine with a network; 50 MB by default. */
  readonly networkBytes: number
  /** Of the console, which is read to say why a machine does not start; 64 kB by default. */
  readonly consoleBytes: number
}

/** A machine whose processors run, or are stopped. */
export interface Machine {
  /** The machine itself first. */
  readonly processes: readonly Launched[]
  readonly pause: () => Promise<void>
  readonly resume: () => Promise<void>
  /** Writes its state into its folder, while it is stopped; undefined where that can't be done. */
  readonly snapshot?: () => Promise<{ readonly vmmVersion: string }>
}

/** Makes machines of one kind. */
export interface Engine {
  readonly name: 'firecracker' | 'qemu'
  /** MiB that its programs may take beside the guest's memory. */
  readonly overheadMb: number
  /** What it needs, one by one. Each throws MicrovmError that says what is missing. */
  readonly needs: readonly (() => Promise<void>)[]
  /** Boots a machine, or goes on with one whose snapshot is staged; that one is stopped. */
  readonly start: (place: Place, shape: Shape, from: 'boot' | 'snapshot') => Promise<Machine>
  /** Folders to be removed with a machine's folder. */
  readonly folderOf: (
    id: string,
    runtimeFolder: string,
  ) => { readonly folder: string; readonly remove: readonly string[] }
  /** Whether it sees to the control groups itself: then their folders, to be removed. */
  readonly ownCgroups?: (id: string) => readonly string[]
}
