/** What a machine needs and this host lacks: all of it at once, so that nobody has to find out one by one. */
import { access, constants, stat } from 'node:fs/promises'
import type { Engine } from './machine.ts'
import { MicrovmError } from './microvm-error.ts'
import type { ResolvedSelfHostedOptions } from './self-hosted-options.ts'
import { snapshotFiles } from './snapshot-folder.ts'

const TUN = '/dev/net/tun'

/** In the order in which it is to be mended; none when machines can be made. */
export async function findMissing(
  engine: Engine,
  options: ResolvedSelfHostedOptions,
): Promise<readonly MicrovmError[]> {
  // prettier-ignore
  const { kernelImage, initrdImage, rootfsImage, snapshot, network } = options
  const needs = [
    ...engine.needs,
    ...(network === 'tap' ? [needsRoot] : []),
    ...(network === 'tap' && !isJailed(options) ? [needsTun] : []),
    ...[kernelImage, initrdImage, rootfsImage].flatMap((image) =>
      image === undefined ? [] : [() => isReadable(image)],
    ),
    ...(snapshot === undefined ? [] : [() => snapshotFiles(snapshot, options)]),
  ]
  const missing: MicrovmError[] = []
  for (const need of needs) {
    try {
      await need()
    } catch (error) {
      if (!(error instanceof MicrovmError)) throw error
      missing.push(error)
    }
  }
  return missing
}

function needsRoot(): Promise<void> {
  return process.getuid?.() === 0
    ? Promise.resolve()
    : Promise.reject(new MicrovmError('needs_root', "`network: 'tap'` makes network namespaces, which only root may"))
}

/** The jailer makes a node of its own. */
function isJailed({ engine, unsafeNoJailer }: ResolvedSelfHostedOptions): boolean {
  return engine === 'firecracker' && !unsafeNoJailer
}

/** The machine's own user opens it, and gets no more than the interface that was made for it. */
async function needsTun(): Promise<void> {
  const { mode } = await stat(TUN).catch(() => ({ mode: 0 }))
  if ((mode & 0o006) !== 0o006)
    throw new MicrovmError('network_failed', `\`${TUN}\` can't be opened by every user, as it can on most systems: \`chmod 666 ${TUN}\`, or use Firecracker with its jailer`) // prettier-ignore
}

async function isReadable(image: string): Promise<void> {
  await access(image, constants.R_OK).catch((error: unknown) => {
    throw new MicrovmError('image_missing', `there is no image \`${image}\` that can be read: build it with \`node deploy/microvm/build.ts FOLDER\``, error) // prettier-ignore
  })
}
