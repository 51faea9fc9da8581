/** What the container backends may be told, and what holds when they are not. */
import { SandboxError } from '../sandbox-error.ts'
import type { ContainerSandboxLayout } from './container-layout.ts'

/** How the engine is reached. */
export type DockerConnection =
  | { readonly socketPath: string }
  | {
      readonly host: string
      readonly port: number
      /** PEM. The three together make TLS with a client certificate. */
      readonly ca?: string
      readonly cert?: string
      readonly key?: string
    }

/** Of both container backends. */
export interface ContainerOptions {
  /** Any image with a shell, of this machine's processor; it need not have Node. It must be on the engine already. */
  readonly image: string
  /** `DOCKER_HOST`, or `/var/run/docker.sock`, by default. */
  readonly engine?: DockerConnection
  /**
   * `none` (default): no interface but loopback, two mounted folders with sockets. `internal`: a network of the sandbox's own, without a way out, whose only
   * neighbour carries bytes to the gateway; for engines to which sockets can not be mounted, such as Docker Desktop.
   */
  readonly network?: 'none' | 'internal'
  readonly layout?: ContainerSandboxLayout
  /** `uid:gid`, not root; `10001:10001` by default, or the host's own user when a host folder is mounted writable and that user is not root. */
  readonly user?: string
  /** Processors; 2 by default, never more than there are. */
  readonly cpus?: number
  /** MiB for sandboxes that ask for nothing; 2048 by default. Folders in memory are part of it. */
  readonly memoryLimitMb?: number
  /** Processes and threads for sandboxes that ask for nothing; 512 by default. */
  readonly maxProcesses?: number
  /** MiB of each folder in memory (`/tmp`, and `/workspace` without a layout); 1024 by default. Less where the memory limit leaves commands no room beside. */
  readonly memoryFolderMb?: number
  /** Node in the image, by path. Without it this process's own is mounted (Linux), or that which the image's label `sallyport.node` names is used. */
  readonly nodePath?: string
  /** Milliseconds until a sandbox that does not answer counts as failed; 60 s by default. */
  readonly startTimeoutMs?: number
}

/** With every default in its place. */
export type ResolvedContainerOptions = ContainerOptions &
  Required<
    Pick<ContainerOptions, 'network' | 'cpus' | 'memoryLimitMb' | 'maxProcesses' | 'memoryFolderMb' | 'startTimeoutMs'>
  >

/** Below this Node itself does not start. */
export const MIN_MEMORY_MB = 96
/** The worker and init; they come on top of what the caller gives. */
export const OWN_PROCESSES = 24

const DEFAULTS = {
  network: 'none',
  cpus: 2,
  memoryLimitMb: 2048,
  maxProcesses: 512,
  memoryFolderMb: 1024,
  startTimeoutMs: 60_000,
} as const

/** @throws TypeError for a caller's mistake */
export function resolveContainerOptions(options: ContainerOptions): ResolvedContainerOptions {
  const resolved = { ...DEFAULTS, ...withoutUndefined(options) }
  const { image, network, user, nodePath } = resolved
  if (typeof image !== 'string' || !/^[\w][\w./:@-]{0,254}$/.test(image))
    throw new TypeError('`image` must be the name of an image')
  if (!['none', 'internal'].includes(network)) throw new TypeError('`network` must be `none` or `internal`')
  if (user !== undefined && !/^[1-9]\d{0,9}:[1-9]\d{0,9}$/.test(user))
    throw new TypeError('`user` must be `uid:gid`, as numbers, not root')
  if (nodePath !== undefined && !nodePath.startsWith('/'))
    throw new TypeError('`nodePath` must be an absolute path in the image')
  for (const name of ['cpus', 'memoryFolderMb', 'startTimeoutMs'] as const) {
    if (!(resolved[name] > 0 && resolved[name] <= 2 ** 31)) throw new TypeError(`\`${name}\` must be a number above 0`)
  }
  checkLimits(resolved)
  return resolved
}

/** @throws SandboxError `SALLYPORT_SANDBOX_NOT_SUPPORTED` for limits that make no sense */
export function checkLimits({
  memoryLimitMb,
  maxProcesses,
}: {
  readonly memoryLimitMb: number
  readonly maxProcesses: number
}): void {
  if (!(memoryLimitMb >= MIN_MEMORY_MB && memoryLimitMb <= 2 ** 30)) {
    throw new SandboxError(
      'SALLYPORT_SANDBOX_NOT_SUPPORTED',
      `memoryLimitMb must be ${MIN_MEMORY_MB} or more: the sandbox's worker is counted too`,
    )
  }
  if (!(Number.isInteger(maxProcesses) && maxProcesses >= 1 && maxProcesses <= 2 ** 22)) {
    throw new SandboxError('SALLYPORT_SANDBOX_NOT_SUPPORTED', 'maxProcesses must be a whole number, 1 or more')
  }
}

function withoutUndefined(options: ContainerOptions): ContainerOptions {
  return Object.fromEntries(
    Object.entries(options).filter(([, value]) => value !== undefined),
  ) as unknown as ContainerOptions
}
