/** Where this process may make control groups that hold a sandbox to its limits, and how it makes one. Version 2 before version 1. */
import { accessSync, constants, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { rmdir } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'

/** A place for groups. */
export interface CgroupPlace {
  readonly version: 1 | 2
  /** Folders under which a sandbox gets a group of its own: one in version 2, one for each controller in version 1. */
  readonly parents: readonly { readonly controllers: readonly ('memory' | 'pids')[]; readonly folder: string }[]
}

/** Limits of one sandbox. */
export interface CgroupLimits {
  readonly memoryBytes: number | undefined
  /** Processes and threads. */
  readonly tasks: number | undefined
}

/** A group, made. */
export interface Cgroup {
  /** A process joins by writing `0` into each of these, before it starts anything. */
  readonly joinFiles: readonly string[]
  readonly folders: readonly string[]
}

/** What is read of the machine; a test gives its own. */
export interface CgroupFacts {
  /** `/proc/self/cgroup`. */
  readonly own: string
  /** `/proc/self/mountinfo`. */
  readonly mounts: string
}

/**
 * Finds a place that has both controllers and is writable; undefined where there is none (no root, nothing delegated, a container without them).
 */
export function findCgroupPlace(facts?: CgroupFacts): CgroupPlace | undefined {
  const { own, mounts } = facts ?? { own: readText('/proc/self/cgroup'), mounts: readText('/proc/self/mountinfo') }
  const hierarchies = parseMounts(mounts)
  const memberships = parseMemberships(own)
  return findVersion2(hierarchies, memberships) ?? findVersion1(hierarchies, memberships)
}

/** Makes the group of sandbox `id` and sets its limits, at one stroke: a start waits for it. Removes what it made when a step fails. */
export async function makeCgroup(place: CgroupPlace, id: string, limits: CgroupLimits): Promise<Cgroup> {
  const folders: string[] = []
  try {
    for (const parent of place.parents) {
      const settings = settingsOf(place.version, parent.controllers, limits)
      if (settings.length === 0) continue
      const folder = path.join(parent.folder, `sallyport-${id}`)
      mkdirSync(folder)
      folders.push(folder)
      for (const setting of settings) applySetting(folder, setting)
    }
  } catch (error) {
    await removeCgroup(folders)
    throw error
  }
  // Of version 1, each thread can be moved by itself, for which the kernel need not hold up all others; what joins has one.
  const joinFile = place.version === 1 ? 'tasks' : 'cgroup.procs'
  return { folders, joinFiles: folders.map((folder) => path.join(folder, joinFile)) }
}

/** Kills what is left in the groups, and removes them; one that is not there is fine. */
export async function removeCgroup(folders: readonly string[]): Promise<void> {
  for (const folder of folders) await removeFolder(folder)
}

interface Setting {
  readonly file: string
  readonly value: string
  /** The kernel may be built without it. */
  readonly optional?: boolean
}

function settingsOf(version: 1 | 2, controllers: readonly string[], limits: CgroupLimits): readonly Setting[] {
  const settings: Setting[] = []
  if (controllers.includes('memory') && limits.memoryBytes !== undefined) {
    const value = String(limits.memoryBytes)
    if (version === 2)
      settings.push({ file: 'memory.max', value }, { file: 'memory.swap.max', value: '0', optional: true })
    // Memory with swap can't be set below memory, so it comes second.
    else
      settings.push(
        { file: 'memory.limit_in_bytes', value },
        { file: 'memory.memsw.limit_in_bytes', value, optional: true },
      )
  }
  if (controllers.includes('pids') && limits.tasks !== undefined)
    settings.push({ file: 'pids.max', value: String(limits.tasks) })
  return settings
}

function applySetting(folder: string, { file, value, optional }: Setting): void {
  try {
    // `r+`: such a file is never made, only written.
    writeFileSync(path.join(folder, file), value, { flag: 'r+' })
  } catch (error) {
    if (optional !== true || (error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
  }
}

const REMOVE_ATTEMPTS = 50
const REMOVE_PAUSE_MS = 20

async function removeFolder(folder: string): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      await rmdir(folder)
      return
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      if (code === 'ENOENT') return
      if (code !== 'EBUSY' || attempt === REMOVE_ATTEMPTS) throw error
      killMembers(folder)
      await delay(REMOVE_PAUSE_MS)
    }
  }
}

/** Also those that are on their way out. */
function killMembers(folder: string): void {
  for (const pid of readText(path.join(folder, 'cgroup.procs')).split('\n').map(Number)) {
    // 0 is a process that this one can't see, and would be this one's own group.
    if (pid <= 0) continue
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // It has ended.
    }
  }
}

interface Hierarchy {
  readonly mountPoint: string
  /** What of the hierarchy is mounted there: `/`, or a container's part. */
  readonly root: string
  /** Of version 1; undefined for version 2. */
  readonly controllers: readonly string[] | undefined
}

/** @see man 5 proc_pid_mountinfo */
function parseMounts(text: string): readonly Hierarchy[] {
  return text.split('\n').flatMap((line) => {
    const [before, after] = line.split(' - ')
    const [root, mountPoint] = before?.split(' ').slice(3, 5) ?? []
    const [type, , options] = after?.split(' ') ?? []
    if (root === undefined || mountPoint === undefined || (type !== 'cgroup' && type !== 'cgroup2')) return []
    return [{ mountPoint, root, controllers: type === 'cgroup' ? (options?.split(',') ?? []) : undefined }]
  })
}

/** Path by controller; version 2 under the empty name. @see man 7 cgroups */
function parseMemberships(text: string): ReadonlyMap<string, string> {
  const memberships = new Map<string, string>()
  for (const line of text.split('\n')) {
    const [, controllers, ...rest] = line.split(':')
    if (controllers === undefined) continue
    for (const controller of controllers.split(',')) memberships.set(controller, rest.join(':'))
  }
  return memberships
}

/** The nearest folder above this process that hands both controllers to its children and may be written. */
function findVersion2(
  hierarchies: readonly Hierarchy[],
  memberships: ReadonlyMap<string, string>,
): CgroupPlace | undefined {
  const hierarchy = hierarchies.find(({ controllers }) => controllers === undefined)
  const own = memberships.get('')
  if (hierarchy === undefined || own === undefined) return undefined
  for (let folder = folderOf(hierarchy, own); isInside(folder, hierarchy.mountPoint); folder = path.dirname(folder)) {
    const handedDown = readText(path.join(folder, 'cgroup.subtree_control')).trim().split(' ')
    if (!handedDown.includes('memory') || !handedDown.includes('pids')) continue
    if (isWritable(folder, path.join(folder, 'cgroup.procs')))
      return { version: 2, parents: [{ controllers: ['memory', 'pids'], folder }] }
  }
  return undefined
}

function findVersion1(
  hierarchies: readonly Hierarchy[],
  memberships: ReadonlyMap<string, string>,
): CgroupPlace | undefined {
  const parents: CgroupPlace['parents'][number][] = []
  for (const controller of ['memory', 'pids'] as const) {
    const hierarchy = hierarchies.find(({ controllers }) => controllers?.includes(controller))
    const own = memberships.get(controller)
    if (hierarchy === undefined || own === undefined) return undefined
    const folder = folderOf(hierarchy, own)
    if (!isWritable(folder)) return undefined
    parents.push({ controllers: [controller], folder })
  }
  return { version: 1, parents }
}

/** Where the group `own` is seen from here. Paths of a container's own part begin at that part's root. */
function folderOf({ mountPoint, root }: Hierarchy, own: string): string {
  const relative = root !== '/' && (own === root || own.startsWith(`${root}/`)) ? own.slice(root.length) : own
  return path.resolve(path.join(mountPoint, relative))
}

function isInside(folder: string, mountPoint: string): boolean {
  return folder === mountPoint || folder.startsWith(`${mountPoint}/`)
}

function isWritable(...paths: readonly string[]): boolean {
  try {
    for (const each of paths) accessSync(each, constants.W_OK)
    return true
  } catch {
    return false
  }
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}
