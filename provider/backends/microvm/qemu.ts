/**
 * Machines of QEMU: `microvm` with what a guest needs and no more. Without KVM the processor is emulated, which is slow and isolates by QEMU's own code alone.
 * The vsock device is a program of its own, vhost-device-vsock, with the protocol that Firecracker has built in.
 */
import { readFileSync } from 'node:fs'
import { lstat } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { findProgram } from './find-program.ts'
import { TAP, VSOCK } from './guest-protocol.ts'
import { kernelArguments } from './kernel-arguments.ts'
import { kvmGroups } from './kvm-access.ts'
import { launch, type Launched } from './launch.ts'
import type { Engine, Place, Shape } from './machine.ts'
import { FILE } from './machine-folder.ts'
import { MicrovmError } from './microvm-error.ts'

/** Programs, by path or by name in `PATH`. */
export interface QemuOptions {
  readonly qemuBinary: string
  readonly vsockBinary: string
}

const KVM = '/dev/kvm'
const CONTROL = 'vhost.sock'
/** What QEMU keeps of an emulated processor's code, which is a gigabyte by default. */
const TRANSLATION_MB = 128
/** QEMU itself, and the vsock device. */
const OWN_MB = 320
const POLL_MS = 5
const DEVICE_PATIENCE_MS = 30_000

/** An engine that starts nothing yet. */
export function createQemuEngine({ qemuBinary, vsockBinary }: QemuOptions): Engine {
  const findQemu = (): Promise<string> =>
    findProgram(qemuBinary, 'install QEMU (`apt-get install qemu-system-x86`), or name it as `qemuBinary`')
  const findVsock = (): Promise<string> =>
    findProgram(
      vsockBinary,
      'install vhost-device-vsock (Debian has it after 13, others by `cargo install vhost-device-vsock`), or name it as `vsockBinary`',
    )
  return {
    name: 'qemu',
    overheadMb: TRANSLATION_MB + OWN_MB,
    needs: [
      async () => {
        if (process.platform !== 'linux' || process.arch !== 'x64')
          throw new MicrovmError('binary_missing', `QEMU's microVMs are for Linux on x64, not for \`${process.platform}\` on \`${process.arch}\``) // prettier-ignore
        await findQemu()
      },
      async () => {
        await findVsock()
      },
    ],
    folderOf: (_id, runtimeFolder) => ({ folder: path.join(runtimeFolder, 'vm'), remove: [path.join(runtimeFolder, 'vm')] }), // prettier-ignore
    start: async (place, shape, from) => {
      if (from === 'snapshot') throw new MicrovmError('snapshot_unusable', 'QEMU keeps no snapshot of a machine with a vsock device: use the engine `firecracker`, or leave `snapshot` out') // prettier-ignore
      const [qemu, vsock] = [await findQemu(), await findVsock()]
      const device = await launch({
        command: [vsock, '--guest-cid', '3', '--socket', CONTROL, '--uds-path', VSOCK],
        ...whereOf(place),
        network: undefined,
        output: 'ignored',
      })
      await place.launched(device)
      await deviceListens(path.join(place.folder, CONTROL), device, place.signal)
      const groups = kvmGroups(KVM, place.uid)
      const accelerator = groups === undefined ? 'tcg' : 'kvm'
      const machine = await launch({
        command: [qemu, ...qemuArguments(shape, accelerator, place.network !== undefined)],
        ...whereOf(place),
        groups: groups ?? [],
      })
      await place.launched(machine)
      // Time that stands still for the program stands still for its guest, which is told what time it is before it is used.
      const signal = (name: 'SIGSTOP' | 'SIGCONT') => (): Promise<void> => {
        if (!machine.hasExited()) process.kill(machine.pid, name)
        return Promise.resolve()
      }
      return { processes: [machine, device], pause: signal('SIGSTOP'), resume: signal('SIGCONT') }
    },
  }
}

function whereOf({
  folder,
  uid,
  network,
  joinFiles,
}: Place): Pick<Parameters<typeof launch>[0], 'cwd' | 'uid' | 'network' | 'joinFiles'> {
  // prettier-ignore
  return { cwd: folder, uid, network, joinFiles }
}

/** Of the machine's folder; no path of the host is in them. */
export function qemuArguments(shape: Shape, accelerator: 'kvm' | 'tcg', hasNetwork: boolean): readonly string[] {
  const { memoryMb, cpus, hasInitrd, rateLimits } = shape
  const isEmulated = accelerator === 'tcg'
  return [
    '-M', 'microvm,memory-backend=memory', '-nodefaults', '-no-user-config', '-nographic', '-no-reboot', '-serial', 'stdio',
    '-sandbox', 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny',
    '-accel', isEmulated ? `tcg,thread=multi,tb-size=${TRANSLATION_MB}` : 'kvm', '-cpu', isEmulated ? 'max' : 'host', '-smp', String(cpus), '-m', String(memoryMb),
    '-object', `memory-backend-memfd,id=memory,size=${memoryMb}M,share=on`,
    '-kernel', FILE.kernel, ...(hasInitrd ? ['-initrd', FILE.initrd] : []),
    '-append', kernelArguments({ engine: 'qemu', hasInitrd, emulatedKhz: isEmulated ? processorKhz() : undefined }),
    '-drive', `id=root,file=${FILE.rootfs},format=raw,if=none,readonly=on,throttling.bps-total=${rateLimits.diskBytes},throttling.iops-total=${rateLimits.diskOperations}`,
    '-device', 'virtio-blk-device,drive=root', '-device', 'virtio-rng-device',
    '-chardev', `socket,id=vsock,path=${CONTROL}`, '-device', 'vhost-user-vsock-device,chardev=vsock',
    ...(hasNetwork ? ['-netdev', `tap,id=net,ifname=${TAP.device},script=no,downscript=no`, '-device', 'virtio-net-device,netdev=net'] : []),
  ] // prettier-ignore
}

/** The emulated board has no timer to measure by, and a kernel that is not told hangs early on now and then. */
function processorKhz(): number {
  const megahertz = /^cpu MHz\s*:\s*([\d.]+)$/m.exec(readFileSync('/proc/cpuinfo', 'utf8'))?.[1]
  return Math.round(Number(megahertz ?? 2_000) * 1000)
}

async function deviceListens(socket: string, device: Launched, signal: AbortSignal): Promise<void> {
  const untilMs = Date.now() + DEVICE_PATIENCE_MS
  while ((await lstat(socket).catch(() => undefined))?.isSocket() !== true) {
    signal.throwIfAborted()
    if (device.hasExited() || Date.now() > untilMs)
      throw new MicrovmError('machine_ended', 'the vsock device of the microVM does not start')
    await delay(POLL_MS)
  }
}
