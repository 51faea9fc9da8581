/** Boots a machine once, keeps it as it waits for orders, and ends it. What is kept has no identity: no bearer, no policy, no seed of a sandbox. */
import { randomBytes } from 'node:crypto'
import { chmod, chown, copyFile, mkdir, rm } from 'node:fs/promises'
import path from 'node:path'
import { openRuntimeRoot } from '../../runtime-folder.ts'
import { engineOf } from './engine-of.ts'
import { findMissing } from './find-missing.ts'
import { GUEST_PROTOCOL } from './guest-protocol.ts'
import { FILE } from './machine-folder.ts'
import { makeMachine } from './make-machine.ts'
import { fileFault, MicrovmError } from './microvm-error.ts'
import { resolveSelfHostedOptions, type SelfHostedOptions } from './self-hosted-options.ts'
import { sha256Of, SNAPSHOT, type SnapshotNote, writeNote } from './snapshot-folder.ts'

/**
 * Makes the folder and fills it: the machine's memory, so that its size is `memoryLimitMb`. Machines that go on from there need the same root file system.
 *
 * @throws MicrovmError; nothing is left of the machine, and nothing in the folder
 */
export async function makeSnapshot(
  given: Omit<SelfHostedOptions, 'snapshot' | 'pool'>,
  folder: string,
): Promise<SnapshotNote> {
  // prettier-ignore
  const options = resolveSelfHostedOptions(given)
  if (options.engine !== 'firecracker') throw new MicrovmError('snapshot_unusable', 'snapshots are of the engine `firecracker` alone') // prettier-ignore
  const engine = engineOf(options)
  const [missing] = await findMissing(engine, options)
  if (missing !== undefined) throw missing
  await mkdir(folder, { mode: 0o755 }).catch((error: unknown) => {
    throw (error as NodeJS.ErrnoException).code === 'EEXIST'
      ? new MicrovmError('name_taken', `there is something at \`${folder}\` already, which machines may be made from: take another name`, error) // prettier-ignore
      : fileFault(`make the folder \`${folder}\``, error)
  })
  await openRuntimeRoot(options.runtimeRoot)
  const name = `vm_${randomBytes(8).toString('hex')}`
  const runtimeFolder = path.join(options.runtimeRoot, name)
  await mkdir(runtimeFolder, { mode: 0o700 })
  let remove = (): Promise<void> => Promise.resolve()
  try {
    const { memoryLimitMb: memoryMb, cpus, network, rootfsImage } = options
    const waiting = await makeMachine(engine, options, { id: name, runtimeFolder, memoryMb, labels: {} }, (action) => {
      remove = action
    })
    await waiting.machine.pause()
    const made = await waiting.machine.snapshot?.()
    const machine = waiting.record().folder
    await keep(path.join(machine, FILE.state), path.join(folder, SNAPSHOT.state))
    await keep(path.join(machine, FILE.memory), path.join(folder, SNAPSHOT.memory))
    const note: SnapshotNote = {
      version: 1,
      guestProtocol: GUEST_PROTOCOL,
      vmmVersion: made?.vmmVersion ?? 'unknown',
      memoryMb,
      cpus,
      network,
      rootfs: { sha256: await sha256Of(rootfsImage) },
      createdAt: new Date().toISOString(),
    }
    await writeNote(folder, note)
    return note
  } catch (error) {
    await rm(folder, { recursive: true, force: true })
    throw error
  } finally {
    await remove()
    await rm(runtimeFolder, { recursive: true, force: true })
  }
}

/** Of this process's user from then on, and never written again: machines map the memory for as long as they live. */
async function keep(from: string, to: string): Promise<void> {
  await copyFile(from, to).catch((error: unknown) => {
    throw fileFault(`keep \`${to}\``, error)
  })
  const { getuid, getgid } = process
  if (getuid !== undefined && getgid !== undefined) await chown(to, getuid(), getgid())
  await chmod(to, 0o444)
}
