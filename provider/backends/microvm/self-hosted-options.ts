/** What the self-hosted backend may be told, and what holds when it is not. */
import path from 'node:path'
import { SandboxError } from '../../sandbox-error.ts'
import type { RateLimits } from './machine.ts'
import { DEFAULT_UIDS, type UidRange } from './uids.ts'

/** How microVMs of this machine are made. */
export interface SelfHostedOptions {
  /** `firecracker` (default) needs KVM. `qemu` does without, slowly; see docs/provider.md for what it isolates. */
  readonly engine?: 'firecracker' | 'qemu'
  /** Folder of the runtime folders: that of a sandbox is `<runtimeRoot>/<id>`. */
  readonly runtimeRoot: string
  /** The guest's kernel, uncompressed; `vmlinux` of `deploy/microvm`. Absolute, as all paths here. */
  readonly kernelImage: string
  /** The kernel's drivers; `initrd.cpio` of `deploy/microvm`. None for a kernel that has virtio over MMIO, vsock and squashfs built in. */
  readonly initrdImage?: string
  /** The root file system, squashfs, which machines share and none may write; `rootfs.squashfs` of `deploy/microvm`. */
  readonly rootfsImage: string
  /** Path or name in `PATH`; `firecracker` by default. */
  readonly firecrackerBinary?: string
  /** Path or name in `PATH`; `jailer` by default. */
  readonly jailerBinary?: string
  /** Runs Firecracker without its jailer, and so without root; false by default. What is then between it and the host are its own system call filters. */
  readonly unsafeNoJailer?: boolean
  /** Where the jailer makes its folders; `/srv/jailer` by default. Images on the same file system are linked there, others copied. */
  readonly chrootBaseDir?: string
  /** `/dev/kvm` by default. */
  readonly kvmDevice?: string
  /** Path or name in `PATH`; `qemu-system-x86_64` by default. */
  readonly qemuBinary?: string
  /** Path or name in `PATH`; `vhost-device-vsock` by default. */
  readonly vsockBinary?: string
  /** Users of which each machine has one to itself, where this process is root; 3 000 000 to 3 009 999 by default. */
  readonly uids?: UidRange
  /** `none` (default): no network device. `tap`: one with a neighbour that is the gateway, and no route. Needs root, iproute2 and nftables. */
  readonly network?: 'none' | 'tap'
  /** Folder that `sallyport microvm snapshot` made: machines go on from there instead of booting. Of Firecracker alone. */
  readonly snapshot?: string
  /** Machines that are kept ready, stopped, for sandboxes that ask for the default memory; none by default, at most 64. */
  readonly pool?: { readonly size: number }
  /** Virtual processors, 1 or an even number up to 32; 1 by default. */
  readonly cpus?: number
  /** MiB of a whole guest, for sandboxes that ask for nothing; 512 by default. Its folders in memory are part of it. */
  readonly memoryLimitMb?: number
  /** Processes and threads for sandboxes that ask for nothing; 512 by default. */
  readonly maxProcesses?: number
  readonly rateLimits?: Partial<RateLimits>
  /** Milliseconds until a machine whose guest does not call counts as failed; 60 s by default. */
  readonly startTimeoutMs?: number
}

/** With every default in its place. */
export type ResolvedSelfHostedOptions = Omit<SelfHostedOptions, 'initrdImage' | 'snapshot' | 'rateLimits'> &
  Required<Omit<SelfHostedOptions, 'initrdImage' | 'snapshot' | 'rateLimits'>> & {
    readonly initrdImage: string | undefined
    readonly snapshot: string | undefined
    readonly rateLimits: RateLimits
  }

/** Below this a guest does not boot and have room for a command. */
export const MIN_MEMORY_MB = 192

const MAX_POOL = 64
const RATE_LIMITS: RateLimits = {
  diskBytes: 200_000_000,
  diskOperations: 20_000,
  networkBytes: 50_000_000,
  consoleBytes: 64_000,
}

/** @throws TypeError for a caller's mistake */
export function resolveSelfHostedOptions(given: SelfHostedOptions): ResolvedSelfHostedOptions {
  const options: ResolvedSelfHostedOptions = {
    engine: given.engine ?? 'firecracker',
    runtimeRoot: given.runtimeRoot,
    kernelImage: given.kernelImage,
    initrdImage: given.initrdImage,
    rootfsImage: given.rootfsImage,
    firecrackerBinary: given.firecrackerBinary ?? 'firecracker',
    jailerBinary: given.jailerBinary ?? 'jailer',
    unsafeNoJailer: given.unsafeNoJailer ?? false,
    chrootBaseDir: given.chrootBaseDir ?? '/srv/jailer',
    kvmDevice: given.kvmDevice ?? '/dev/kvm',
    qemuBinary: given.qemuBinary ?? 'qemu-system-x86_64',
    vsockBinary: given.vsockBinary ?? 'vhost-device-vsock',
    uids: given.uids ?? DEFAULT_UIDS,
    network: given.network ?? 'none',
    snapshot: given.snapshot,
    pool: given.pool ?? { size: 0 },
    cpus: given.cpus ?? 1,
    memoryLimitMb: given.memoryLimitMb ?? 512,
    maxProcesses: given.maxProcesses ?? 512,
    rateLimits: { ...RATE_LIMITS, ...given.rateLimits },
    startTimeoutMs: given.startTimeoutMs ?? 60_000,
  }
  const { engine, network, uids, cpus, pool } = options
  // Whoever writes no TypeScript may say anything.
  if (!['firecracker', 'qemu'].includes(engine)) throw new TypeError('`engine` must be `firecracker` or `qemu`')
  if (!['none', 'tap'].includes(network)) throw new TypeError('`network` must be `none` or `tap`')
  for (const name of ['kernelImage', 'rootfsImage', 'initrdImage', 'snapshot', 'chrootBaseDir', 'kvmDevice'] as const) {
    const value: unknown = options[name]
    const isAbsent = value === undefined && (name === 'initrdImage' || name === 'snapshot')
    if (!isAbsent && (typeof value !== 'string' || !path.isAbsolute(value)))
      throw new TypeError(`\`${name}\` must be an absolute path${value === undefined ? ', and is missing' : ''}`)
  }
  for (const name of ['firecrackerBinary', 'jailerBinary', 'qemuBinary', 'vsockBinary'] as const) {
    if (!/^(\/.*)?[^/]+$/.test(options[name]))
      throw new TypeError(`\`${name}\` must be an absolute path or a name in \`PATH\``)
  }
  if (engine === 'qemu' && options.snapshot !== undefined)
    throw new TypeError(
      '`snapshot` is of the engine `firecracker` alone: QEMU keeps none of a machine with a vsock device',
    )
  if (!(Number.isInteger(cpus) && (cpus === 1 || (cpus % 2 === 0 && cpus >= 2 && cpus <= 32))))
    throw new TypeError('`cpus` must be 1 or an even number up to 32')
  if (!(Number.isInteger(pool.size) && pool.size >= 0 && pool.size <= MAX_POOL))
    throw new TypeError(`\`pool.size\` must be a whole number up to ${MAX_POOL}`)
  if (!(
    Number.isInteger(uids.first) &&
    uids.first >= 1_000 &&
    Number.isInteger(uids.count) &&
    uids.count >= 1 &&
    uids.first + uids.count < 2 ** 31
  ))
    // prettier-ignore
    throw new TypeError('`uids` must be `{ first, count }`, whole numbers, from 1000 on')
  for (const [name, value] of [
    ...Object.entries(options.rateLimits),
    ['startTimeoutMs', options.startTimeoutMs] as const,
  ]) {
    if (!(Number.isInteger(value) && value > 0 && value <= 2 ** 40)) throw new TypeError(`\`${name}\` must be a whole number above 0`) // prettier-ignore
  }
  checkMachineLimits(options)
  return options
}

/** @throws SandboxError `SALLYPORT_SANDBOX_NOT_SUPPORTED` for limits that make no sense */
export function checkMachineLimits({
  memoryLimitMb,
  maxProcesses,
}: {
  readonly memoryLimitMb: number
  readonly maxProcesses: number
}): void {
  // prettier-ignore
  if (!(Number.isInteger(memoryLimitMb) && memoryLimitMb >= MIN_MEMORY_MB && memoryLimitMb <= 2 ** 20))
    throw new SandboxError('SALLYPORT_SANDBOX_NOT_SUPPORTED', `memoryLimitMb must be ${MIN_MEMORY_MB} or more: the guest's own kernel and the worker are counted too`) // prettier-ignore
  if (!(Number.isInteger(maxProcesses) && maxProcesses >= 1 && maxProcesses <= 2 ** 22))
    throw new SandboxError('SALLYPORT_SANDBOX_NOT_SUPPORTED', 'maxProcesses must be a whole number, 1 or more')
}
