/** The command line of bubblewrap for one sandbox: a function of what was found out and asked for, with no look at the machine. */
import { INSIDE, INSIDE_USER } from './inside.ts'
import type { SystemView } from './system-view.ts'

/** A host folder or file that is shown inside. */
export interface SandboxMount {
  /** Absolute. */
  readonly hostPath: string
  /** Where it is inside; absolute. */
  readonly path: string
  readonly writable: boolean
}

/** What one sandbox is built of. */
export interface BubblewrapPlan {
  readonly system: SystemView
  /** Host's folder with the sandbox's own files of `/etc`, and their names. */
  readonly ownFiles: { readonly folder: string; readonly names: readonly string[] }
  /** In order: a later one lies over an earlier one. The writable folder is among them. */
  readonly mounts: readonly SandboxMount[]
  readonly node: string
  readonly worker: string
  readonly controlFolder: string
  readonly egressFolder: string
  readonly workingFolder: string
  /** Bytes that `/tmp` and `/dev/shm` may hold, each; undefined where bubblewrap is too old to say it. */
  readonly tempBytes: number | undefined
}

/** Options for bubblewrap, besides those of a process's life and the filter. */
export function bubblewrapOptions(plan: BubblewrapPlan): string[] {
  const temporary = (folder: string): string[] => [
    ...(plan.tempBytes === undefined ? [] : ['--size', String(plan.tempBytes)]),
    '--tmpfs',
    folder,
  ]
  return [
    // Not `--unshare-all`, which goes on without the namespaces that it can't get.
    ...['user', 'ipc', 'pid', 'net', 'uts'].map((namespace) => `--unshare-${namespace}`),
    // Gone where the kernel has none; what can be seen of groups is not mounted anyway.
    '--unshare-cgroup-try',
    '--new-session',
    ...['--cap-drop', 'ALL'],
    '--clearenv',
    ...['--uid', String(INSIDE_USER.uid), '--gid', String(INSIDE_USER.gid), '--hostname', 'sandbox'],

    ...plan.system.entries.flatMap((entry) =>
      entry.kind === 'bind' ? readOnly(entry.path, entry.path) : ['--symlink', entry.target, entry.path],
    ),
    // One mount and links to what is in it, since each mount of its own would cost a start a hundredth of its time.
    ...readOnly(plan.ownFiles.folder, INSIDE.ownFiles),
    ...plan.ownFiles.names.flatMap((name) => ['--symlink', `${INSIDE.ownFiles}/${name}`, `/etc/${name}`]),
    ...['--proc', '/proc'],
    ...plan.system.maskedFiles.flatMap((file) => readOnly('/dev/null', file)),
    ...plan.system.maskedFolders.flatMap((folder) => ['--tmpfs', folder, '--remount-ro', folder]),
    // The kernel lets the host's user 0 write its settings without a capability: `core_pattern` names a program that the host then runs as root.
    // And nothing writes into the worker's memory through `/proc/…/mem`.
    ...['--remount-ro', '/proc'],
    ...['--dev', '/dev', '--remount-ro', '/dev'],
    ...temporary('/dev/shm'),
    ...['--perms', '1777', ...temporary('/tmp')],
    ...['--symlink', '/tmp', '/var/tmp', '--symlink', '/run', '/var/run'],

    ...readOnly(plan.node, INSIDE.node),
    ...readOnly(plan.worker, INSIDE.worker),
    ...['--bind', plan.controlFolder, INSIDE.control],
    ...readOnly(plan.egressFolder, INSIDE.egress),
    ...plan.mounts.flatMap(({ hostPath, path, writable }) => [writable ? '--bind' : '--ro-bind', hostPath, path]),
    // Last, when every folder that something is mounted on has been made.
    ...['--remount-ro', '/'],

    ...['--chdir', plan.workingFolder],
  ]
}

function readOnly(hostPath: string, path: string): string[] {
  return ['--ro-bind', hostPath, path]
}
