/** Machines of Firecracker, under its jailer: configured and started over its API, with no network, no metadata service and nothing else that is not used. */
import { execFile } from 'node:child_process'
import { constants, existsSync } from 'node:fs'
import { access, realpath } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { connectControl } from '../control-socket.ts'
import { findProgram } from './find-program.ts'
import { createFirecrackerApi, type FirecrackerApi } from './firecracker-api.ts'
import { TAP, VSOCK } from './guest-protocol.ts'
import { kernelArguments } from './kernel-arguments.ts'
import { kvmGroups } from './kvm-access.ts'
import { launch, type Launched } from './launch.ts'
import type { Engine, Machine, Place, Shape } from './machine.ts'
import { FILE } from './machine-folder.ts'
import { MicrovmError, printable } from './microvm-error.ts'

/** Programs, and how they are used. */
export interface FirecrackerOptions {
  readonly firecrackerBinary: string
  readonly jailerBinary: string
  readonly unsafeNoJailer: boolean
  readonly chrootBaseDir: string
  readonly kvmDevice: string
  readonly startTimeoutMs: number
}

/** What is driven here is the API of this version. */
const OLDEST = [1, 16] as const
const API_SOCKET = 'api.sock'
const POLL_MS = 5
const API_PATIENCE_MS = 30_000
/** A state of some gigabytes, from and to a disk. */
const SNAPSHOT_TIMEOUT_MS = 120_000
const CGROUP_ROOT = '/sys/fs/cgroup'
const PARENT_CGROUP = 'sallyport'
/** Of the program itself, beside the guest's memory. */
const OVERHEAD_MB = 128
const GUEST_CID = 3

/** An engine that starts nothing yet. */
export function createFirecrackerEngine(options: FirecrackerOptions): Engine {
  const { unsafeNoJailer, chrootBaseDir, kvmDevice } = options
  const findFirecracker = async (): Promise<string> =>
    realpath(await findProgram(options.firecrackerBinary, 'take a release of Firecracker, 1.16 or later, and name it as `firecrackerBinary`')) // prettier-ignore
  const findJailer = (): Promise<string> =>
    findProgram(options.jailerBinary, 'take it from the same release as Firecracker and name it as `jailerBinary`; `unsafeNoJailer: true` does without', 'jailer_missing') // prettier-ignore
  // Its name is part of the jailer's folders.
  const programName = path.basename(options.firecrackerBinary)
  const checkJailer = async (): Promise<void> => {
    if (process.getuid?.() !== 0)
      throw new MicrovmError('needs_root', 'the jailer must be started by root; `unsafeNoJailer: true` does without it')
    await findJailer()
    const firecracker = await findFirecracker()
    if (path.basename(firecracker) !== programName)
      throw new MicrovmError('binary_missing', `\`firecrackerBinary\` is a link to \`${firecracker}\`: name that, since the jailer does`) // prettier-ignore
  }

  return {
    name: 'firecracker',
    overheadMb: OVERHEAD_MB,
    needs: [
      () => checkKvm(kvmDevice),
      async () => checkVersion(await findFirecracker()),
      ...(unsafeNoJailer ? [] : [checkJailer]),
    ],
    folderOf: (id, runtimeFolder) => {
      const jail = path.join(chrootBaseDir, programName, jailId(id))
      return unsafeNoJailer
        ? { folder: path.join(runtimeFolder, 'vm'), remove: [path.join(runtimeFolder, 'vm')] }
        : { folder: path.join(jail, 'root'), remove: [jail] }
    },
    ...(!unsafeNoJailer && {
      ownCgroups: (id) => (hasCgroupVersion2() ? [path.join(CGROUP_ROOT, PARENT_CGROUP, jailId(id))] : []),
    }),
    start: async (place, shape, from) => {
      const firecracker = await findFirecracker()
      const program = ['--api-sock', API_SOCKET]
      const command = unsafeNoJailer
        ? [firecracker, ...program, '--id', jailId(place.id)]
        : [await findJailer(), ...jailerArguments({ place, shape, firecracker, chrootBaseDir, limits: hasCgroupVersion2() }), '--', ...program] // prettier-ignore
      const launched = await launch({
        command,
        cwd: place.folder,
        joinFiles: unsafeNoJailer ? place.joinFiles : [],
        // The jailer becomes another user and enters the network by itself.
        ...(unsafeNoJailer && {
          uid: place.uid,
          network: place.network,
          groups: kvmGroups(kvmDevice, place.uid) ?? [],
        }),
      })
      await place.launched(launched)
      const socketPath = path.join(place.folder, API_SOCKET)
      await apiListens(socketPath, launched, Math.max(API_PATIENCE_MS, options.startTimeoutMs), place.signal)
      const api = createFirecrackerApi(socketPath)
      if (from === 'boot') await boot(api, shape, place.network !== undefined)
      else await load(api)
      return machineOf(api, launched)
    },
  }
}

/** The jailer's arguments. @see https://github.com/firecracker-microvm/firecracker/blob/main/docs/jailer.md */
export function jailerArguments(options: {
  readonly place: Pick<Place, 'id' | 'uid' | 'network'>
  readonly shape: Pick<Shape, 'memoryMb' | 'cpus'>
  readonly firecracker: string
  readonly chrootBaseDir: string
  /** Whether there are control groups of version 2. */
  readonly limits: boolean
}): readonly string[] {
  const { place, shape, firecracker, chrootBaseDir, limits } = options
  const groups = [
    `memory.max=${(shape.memoryMb + OVERHEAD_MB) * 1024 * 1024}`,
    'memory.swap.max=0',
    `pids.max=${shape.cpus + 16}`,
    `cpu.max=${shape.cpus * 100_000} 100000`,
  ]
  return [
    '--id', jailId(place.id), '--exec-file', firecracker, '--uid', String(place.uid), '--gid', String(place.uid), '--chroot-base-dir', chrootBaseDir,
    ...(limits ? ['--cgroup-version', '2', '--parent-cgroup', PARENT_CGROUP, ...groups.flatMap((group) => ['--cgroup', group])] : []),
    ...(place.network === undefined ? [] : ['--netns', `/run/netns/${place.network}`]),
    '--resource-limit', 'no-file=1024',
  ] // prettier-ignore
}

async function boot(api: FirecrackerApi, shape: Shape, hasNetwork: boolean): Promise<void> {
  const { memoryMb, cpus, hasInitrd, rateLimits } = shape
  const { diskBytes, diskOperations, networkBytes, consoleBytes } = rateLimits
  await api.put('/machine-config', { vcpu_count: cpus, mem_size_mib: memoryMb, smt: false, track_dirty_pages: false })
  await api.put('/boot-source', {
    kernel_image_path: FILE.kernel,
    ...(hasInitrd && { initrd_path: FILE.initrd }),
    boot_args: kernelArguments({ engine: 'firecracker', hasInitrd }),
  })
  await api.put('/drives/rootfs', {
    drive_id: 'rootfs',
    path_on_host: FILE.rootfs,
    is_root_device: true,
    is_read_only: true,
    cache_type: 'Unsafe',
    io_engine: 'Sync',
    rate_limiter: { bandwidth: perSecond(diskBytes), ops: perSecond(diskOperations) },
  })
  if (hasNetwork)
    await api.put('/network-interfaces/eth0', {
      iface_id: 'eth0',
      host_dev_name: TAP.device,
      rx_rate_limiter: { bandwidth: perSecond(networkBytes) },
      tx_rate_limiter: { bandwidth: perSecond(networkBytes) },
    })
  await api.put('/vsock', { guest_cid: GUEST_CID, uds_path: VSOCK })
  await api.put('/entropy', { rate_limiter: { bandwidth: perSecond(consoleBytes) } })
  await api.put('/serial', { rate_limiter: perSecond(consoleBytes) })
  await api.put('/actions', { action_type: 'InstanceStart' })
}

/** Everything but the vsock device's place is as it was when the snapshot was made; names in the folder are the same for every machine. */
async function load(api: FirecrackerApi): Promise<void> {
  await api.put(
    '/snapshot/load',
    {
      snapshot_path: FILE.state,
      mem_backend: { backend_type: 'File', backend_path: FILE.memory },
      resume_vm: false,
      vsock_override: { uds_path: VSOCK },
      ...(process.arch === 'x64' && { clock_realtime: true }),
    },
    SNAPSHOT_TIMEOUT_MS,
  )
}

function machineOf(api: FirecrackerApi, launched: Launched): Machine {
  const become = async (state: 'Paused' | 'Resumed', expected: string): Promise<void> => {
    await api.patch('/vm', { state })
    const { state: is } = await api.get('/')
    if (is !== expected)
      throw new MicrovmError('api_refused', `the machine is not \`${expected}\` after it was told so`)
  }
  return {
    processes: [launched],
    pause: () => become('Paused', 'Paused'),
    resume: () => become('Resumed', 'Running'),
    snapshot: async () => {
      const files = { snapshot_path: FILE.state, mem_file_path: FILE.memory }
      await api.put('/snapshot/create', { snapshot_type: 'Full', ...files }, SNAPSHOT_TIMEOUT_MS)
      const { firecracker_version: version } = await api.get('/version')
      return { vmmVersion: typeof version === 'string' ? printable(version) : 'unknown' }
    },
  }
}

function perSecond(size: number): { readonly size: number; readonly refill_time: number } {
  return { size, refill_time: 1_000 }
}

/** The jailer takes letters, digits and hyphens. */
function jailId(id: string): string {
  return id.replaceAll('_', '-')
}

async function apiListens(
  socketPath: string,
  launched: Launched,
  patienceMs: number,
  signal: AbortSignal,
): Promise<void> {
  const untilMs = Date.now() + patienceMs
  for (;;) {
    signal.throwIfAborted()
    const socket = await connectControl(socketPath).catch(() => undefined)
    if (socket !== undefined) return void socket.destroy()
    if (launched.hasExited()) throw new MicrovmError('machine_ended', `Firecracker ended as it started: ${launched.said() || 'it said nothing'}`) // prettier-ignore
    if (Date.now() > untilMs) throw new MicrovmError('api_lost', `Firecracker does not open its API: ${launched.said() || 'it says nothing'}`) // prettier-ignore
    await delay(POLL_MS)
  }
}

async function checkKvm(device: string): Promise<void> {
  await access(device, constants.R_OK | constants.W_OK).catch((error: unknown) => {
    throw (error as NodeJS.ErrnoException).code === 'ENOENT'
      ? new MicrovmError('kvm_missing', `there is no \`${device}\`: Firecracker needs a machine with virtualisation (a bare one, or one that passes it on); the engine \`qemu\` does without, slowly`) // prettier-ignore
      : new MicrovmError('kvm_missing', `no permission to use \`${device}\`: join its group (\`sudo usermod -aG kvm $USER\`, then log in anew)`, error) // prettier-ignore
  })
}

async function checkVersion(firecracker: string): Promise<void> {
  const { stdout } = await promisify(execFile)(firecracker, ['--version'], { env: {}, timeout: API_PATIENCE_MS }).catch(
    (error: unknown) => {
      // prettier-ignore
      throw new MicrovmError('binary_missing', `\`${firecracker} --version\` does not work`, error)
    },
  )
  const [major = 0, minor = 0] = (/v(\d+)\.(\d+)/.exec(stdout) ?? []).slice(1).map(Number)
  if (major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1]))
    throw new MicrovmError('binary_missing', `Firecracker ${major}.${minor} is too old: ${OLDEST.join('.')} or later is needed`) // prettier-ignore
}

function hasCgroupVersion2(): boolean {
  return existsSync(path.join(CGROUP_ROOT, 'cgroup.controllers'))
}
