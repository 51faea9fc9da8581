/** What a snapshot is on disk: the machine's state, its memory, and a note of what it was made from, without which it is not used. */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { readFile, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { pipeline } from 'node:stream/promises'
import { z } from 'zod'
import { GUEST_PROTOCOL } from './guest-protocol.ts'
import { MicrovmError } from './microvm-error.ts'
import type { ResolvedSelfHostedOptions } from './self-hosted-options.ts'

const noteSchema = z.object({
  version: z.literal(1),
  guestProtocol: z.number(),
  vmmVersion: z.string(),
  memoryMb: z.number(),
  cpus: z.number(),
  network: z.enum(['none', 'tap']),
  /** Of the root file system, which the machine goes on reading. */
  rootfs: z.object({ sha256: z.string() }),
  createdAt: z.string(),
})

/** See the schema. */
export type SnapshotNote = Readonly<z.infer<typeof noteSchema>>

/** Names in the folder. */
export const SNAPSHOT = { state: 'state', memory: 'memory', note: 'snapshot.json' } as const

type Wanted = Pick<ResolvedSelfHostedOptions, 'memoryLimitMb' | 'cpus' | 'network' | 'rootfsImage'>

/**
 * Files of a snapshot that fits what is wanted.
 *
 * @throws MicrovmError `snapshot_unusable` that says what does not fit
 */
export async function snapshotFiles(
  folder: string,
  wanted: Wanted,
): Promise<{ readonly state: string; readonly memory: string }> {
  // prettier-ignore
  const note = await readNote(folder)
  const sha256 = await sha256Of(wanted.rootfsImage).catch((error: unknown) => {
    throw unusable(folder, `its root file system \`${wanted.rootfsImage}\` can't be read`, error)
  })
  const faults = [
    note.guestProtocol !== GUEST_PROTOCOL && 'its guest is of another version',
    note.memoryMb !== wanted.memoryLimitMb &&
      `it has ${note.memoryMb} MiB, and \`memoryLimitMb\` is ${wanted.memoryLimitMb}`,
    note.cpus !== wanted.cpus && `it has ${note.cpus} processors, and \`cpus\` is ${wanted.cpus}`,
    note.network !== wanted.network && `its network is \`${note.network}\`, and \`network\` is \`${wanted.network}\``,
    note.rootfs.sha256 !== sha256 && 'its root file system was another',
  ].filter((each) => each !== false)
  if (faults.length > 0) throw unusable(folder, faults.join('; '))
  return { state: path.join(folder, SNAPSHOT.state), memory: path.join(folder, SNAPSHOT.memory) }
}

/** Written last: a folder without it is none. */
export async function writeNote(folder: string, note: SnapshotNote): Promise<void> {
  await writeFile(path.join(folder, SNAPSHOT.note), `${JSON.stringify(note, null, 2)}\n`, { mode: 0o644 })
}

/** Of files that were read before and have not changed: each start of a machine asks. */
const known = new Map<string, string>()
const MAX_KNOWN = 16

/** Hex. */
export async function sha256Of(file: string): Promise<string> {
  const { ino, size, mtimeMs, ctimeMs } = await stat(file)
  const key = [file, ino, size, mtimeMs, ctimeMs].join(':')
  const present = known.get(key)
  if (present !== undefined) return present
  const hash = createHash('sha256')
  await pipeline(createReadStream(file), hash)
  const digest = hash.digest('hex')
  if (known.size >= MAX_KNOWN) known.clear()
  known.set(key, digest)
  return digest
}

async function readNote(folder: string): Promise<SnapshotNote> {
  const text = await readFile(path.join(folder, SNAPSHOT.note), 'utf8').catch((error: unknown) => {
    throw unusable(folder, 'there is none', error)
  })
  try {
    return noteSchema.parse(JSON.parse(text))
  } catch (error) {
    throw unusable(folder, `\`${SNAPSHOT.note}\` can't be read`, error)
  }
}

function unusable(folder: string, what: string, cause?: unknown): MicrovmError {
  return new MicrovmError('snapshot_unusable', `the snapshot \`${folder}\` can't be used: ${what}; make it anew with \`sallyport microvm snapshot\``, cause) // prettier-ignore
}
