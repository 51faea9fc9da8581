/** `sallyport microvm`: what microVMs are started from faster than by booting. */
import { addCommand, addGroup, option, type CommandHost } from '../../../proxy/cli/command.ts'
import { json } from '../../../proxy/cli/print.ts'
import { EXIT, type ExitCode, type Terminal, UsageError } from '../../../proxy/cli/terminal.ts'
import path from 'node:path'
import type { SelfHostedOptions } from '../../backends/microvm/self-hosted-options.ts'
import { checkRuntimeRoot, defaultRuntimeRoot } from '../../runtime-folder.ts'
import { DEFAULT_IMAGES, imagesIn } from '../microvm-images.ts'

interface SnapshotOptions {
  readonly images: string
  readonly firecracker?: string
  readonly jailer?: string
  readonly unsafeNoJailer?: true
  readonly chrootBase?: string
  readonly kvm?: string
  readonly memory?: string
  readonly cpus?: string
  readonly network?: 'none' | 'tap'
  readonly json?: true
}

/** Adds the group. */
export function addMicrovmCommands(host: CommandHost): void {
  const group = addGroup(host, 'microvm', 'prepare what microVMs start from', [
    'sallyport microvm snapshot /var/lib/sallyport/snapshot',
  ])
  addCommand<SnapshotOptions>(group, {
    usage: 'snapshot <folder>',
    description:
      'boot a machine of Firecracker once and keep it as it waits, for sandboxes to go on from\n\n' +
      'Give the folder as `snapshot` of the backend. Memory, processors and network are then those of the snapshot, and the root file system must stay as it is.',
    examples: ['sallyport microvm snapshot --memory 1024 /var/lib/sallyport/snapshot-1024'],
    options: [
      option('--images <folder>', 'of deploy/microvm: vmlinux, initrd.cpio, rootfs.squashfs').default(DEFAULT_IMAGES),
      option('--firecracker <file>', 'the program; by default that in PATH'),
      option('--jailer <file>', 'the program; by default that in PATH'),
      option('--unsafe-no-jailer', 'run Firecracker without its jailer'),
      option('--chroot-base <folder>', 'where the jailer makes its folders; /srv/jailer by default'),
      option('--kvm <device>', '/dev/kvm by default'),
      option('--memory <mib>', 'MiB of the guest; 512 by default'),
      option('--cpus <count>', 'virtual processors; 1 by default'),
      option('--network <kind>', 'what the machine has').choices(['none', 'tap']),
    ],
    json: true,
    run: (terminal, options, folder) => snapshot(terminal, options, folder ?? ''),
  })
}

async function snapshot(terminal: Terminal, options: SnapshotOptions, folder: string): Promise<ExitCode> {
  const { makeSnapshot } = await import('../../backends/microvm/make-snapshot.ts')
  const { firecracker, jailer, unsafeNoJailer, chrootBase, kvm, network } = options
  const note = await makeSnapshot(
    {
      runtimeRoot: checkRuntimeRoot(defaultRuntimeRoot()),
      ...imagesIn(options.images),
      ...(firecracker !== undefined && { firecrackerBinary: firecracker }),
      ...(jailer !== undefined && { jailerBinary: jailer }),
      ...(unsafeNoJailer === true && { unsafeNoJailer }),
      ...(chrootBase !== undefined && { chrootBaseDir: chrootBase }),
      ...(kvm !== undefined && { kvmDevice: kvm }),
      ...(network !== undefined && { network }),
      ...whole('memoryLimitMb', '--memory', options.memory),
      ...whole('cpus', '--cpus', options.cpus),
    },
    path.resolve(folder),
  )
  terminal.out(options.json === true ? json(note) : `${path.resolve(folder)}: ${note.memoryMb} MiB, Firecracker ${note.vmmVersion}`) // prettier-ignore
  return EXIT.done
}

function whole(name: 'memoryLimitMb' | 'cpus', flag: string, text: string | undefined): Partial<SelfHostedOptions> {
  if (text === undefined) return {}
  if (!/^[1-9]\d{0,6}$/.test(text)) throw new UsageError(`\`${flag} ${text}\`: write a whole number`)
  return { [name]: Number(text) }
}
