/** Makes a machine up to the point where its guest waits for orders: user, folder, network, groups, program, in this order, each on record before the next. */
import path from 'node:path'
import { ownerOfThisProcess } from '../../owner.ts'
import { findCgroupPlace, makeCgroup } from '../cgroup.ts'
import { startFolderRelay } from './folder-relay.ts'
import { expectCall, type GuestCall } from './guest-call.ts'
import type { Engine, Machine } from './machine.ts'
import { FILE, makeMachineFolder, stage } from './machine-folder.ts'
import { MicrovmError } from './microvm-error.ts'
import { removeMachine } from './remove-machine.ts'
import type { ResolvedSelfHostedOptions } from './self-hosted-options.ts'
import { snapshotFiles } from './snapshot-folder.ts'
import { makeNetwork, networkOf, startTapRelay } from './tap-network.ts'
import { claimUid } from './uids.ts'
import { type MachineRecord, writeMachine } from './vm-record.ts'

/** What is wanted. */
export interface MachineRequest {
  readonly id: string
  /** Where its record is kept. */
  readonly runtimeFolder: string
  readonly memoryMb: number
  readonly labels: Readonly<Record<string, string>>
  readonly timeoutMs?: number | undefined
  readonly signal?: AbortSignal | undefined
}

/** A machine that waits. */
export interface WaitingMachine {
  readonly record: () => MachineRecord
  readonly machine: Machine
  readonly call: GuestCall
  /** Where clients of the gateway are carried from now on. */
  readonly carryTo: (gatewaySocket: string) => void
  readonly ended: Promise<void>
  readonly said: () => string
  /** Takes all of it away but the record; idempotent, and tried again after a failure. */
  readonly remove: () => Promise<void>
}

const HOST_TASKS = 128

/**
 * Makes it. `undo` is told how to take it away before anything is there.
 *
 * @throws MicrovmError; the reason of `signal`
 */
export async function makeMachine(
  engine: Engine,
  options: ResolvedSelfHostedOptions,
  request: MachineRequest,
  undo: (action: () => Promise<void>) => void,
): Promise<WaitingMachine> {
  const { id, runtimeFolder, memoryMb, labels, timeoutMs } = request
  const failed = new AbortController()
  const deadline = AbortSignal.timeout(options.startTimeoutMs)
  const signal = AbortSignal.any([failed.signal, ...(request.signal === undefined ? [] : [request.signal])])
  const isRoot = process.getuid?.() === 0
  const { folder, remove: folders } = engine.folderOf(id, runtimeFolder)
  const createdAtMs = Date.now()

  let record: MachineRecord = {
    version: 1,
    engine: engine.name,
    id,
    owner: ownerOfThisProcess(),
    folder,
    folders: [],
    processes: [],
    cgroups: [],
    memoryMb,
    createdAtMs,
    ...(timeoutMs !== undefined && { expiresAtMs: createdAtMs + timeoutMs }),
    labels: { ...labels },
  }
  const keep = async (change: Partial<MachineRecord>): Promise<void> => {
    record = { ...record, ...change }
    await writeMachine(runtimeFolder, record)
  }
  let gatewaySocket: string | undefined
  const target = (): { readonly path: string } | undefined =>
    gatewaySocket === undefined ? undefined : { path: gatewaySocket }
  const closers: (() => unknown)[] = []
  const remove = async (): Promise<void> => {
    failed.abort(new MicrovmError('machine_ended', 'the microVM is taken away'))
    for (const close of closers.splice(0)) await close()
    await removeMachine(record)
  }
  undo(remove)

  await keep({})
  const claimed = isRoot ? await claimUid(runtimeFolder, options.uids) : undefined
  if (claimed !== undefined) await keep({ uid: claimed.uid, uidClaim: claimed.claim })
  await makeMachineFolder(folder, claimed?.uid)
  await keep({ folders: [...folders] })
  await stageImages(options, folder, claimed?.uid)
  const network = options.network === 'tap' ? networkOf(id) : undefined
  if (network !== undefined) {
    await keep({ network })
    await makeNetwork(network, claimed?.uid)
  }
  const place = engine.ownCgroups === undefined ? findCgroupPlace() : undefined
  const cgroups =
    place?.parents.map((parent) => path.join(parent.folder, `sallyport-${id}`)) ?? engine.ownCgroups?.(id) ?? []
  await keep({ cgroups: [...cgroups] })
  const joinFiles = place === undefined ? [] : (await makeCgroup(place, id, { memoryBytes: (memoryMb + engine.overheadMb) * 2 ** 20, tasks: HOST_TASKS })).joinFiles // prettier-ignore
  signal.throwIfAborted()

  const relay = network === undefined ? await startFolderRelay(folder, target) : await startTapRelay(network, target)
  closers.push(relay.close)
  const call = await expectCall(folder)
  closers.push(call.close)
  const machine = await engine.start(
    {
      id,
      folder,
      uid: claimed?.uid,
      network,
      joinFiles,
      signal,
      launched: ({ pid, startTime }) => keep({ processes: [{ pid, startTime }, ...record.processes] }),
    },
    { memoryMb, cpus: options.cpus, hasInitrd: options.initrdImage !== undefined, rateLimits: options.rateLimits },
    options.snapshot === undefined ? 'boot' : 'snapshot',
  )
  const ended = Promise.race(machine.processes.map(({ exited }) => exited))
  const said = (): string => machine.processes[0]?.said() ?? ''
  if (options.snapshot !== undefined) await machine.resume()
  await untilCalled({ call, ended, said, signal, deadline, timeoutMs: options.startTimeoutMs })
  return {
    record: () => record,
    machine,
    call,
    carryTo: (socket) => {
      gatewaySocket = socket
    },
    ended,
    said,
    remove,
  }
}

async function stageImages(options: ResolvedSelfHostedOptions, folder: string, uid: number | undefined): Promise<void> {
  const { kernelImage, initrdImage, rootfsImage, snapshot } = options
  await stage(rootfsImage, folder, FILE.rootfs, uid)
  if (snapshot !== undefined) {
    const { state, memory } = await snapshotFiles(snapshot, options)
    await stage(state, folder, FILE.state, uid)
    await stage(memory, folder, FILE.memory, uid)
    return
  }
  await stage(kernelImage, folder, FILE.kernel, uid)
  if (initrdImage !== undefined) await stage(initrdImage, folder, FILE.initrd, uid)
}

async function untilCalled(options: {
  readonly call: GuestCall
  readonly ended: Promise<void>
  readonly said: () => string
  readonly signal: AbortSignal
  readonly deadline: AbortSignal
  readonly timeoutMs: number
}): Promise<void> {
  const { call, ended, said, signal, deadline, timeoutMs } = options
  const over = new AbortController()
  const stopped = new Promise<'stopped'>((resolve) => {
    for (const each of [signal, deadline]) {
      each.addEventListener('abort', () => resolve('stopped'), { once: true, signal: over.signal })
      if (each.aborted) resolve('stopped')
    }
  })
  try {
    const outcome = await Promise.race([call.waiting, ended.then(() => 'ended' as const), stopped])
    if (outcome === undefined) return
    signal.throwIfAborted()
    const words = said() === '' ? 'it said nothing' : `it said \`${said()}\``
    if (outcome === 'ended') throw new MicrovmError('machine_ended', `the microVM ended as it booted; ${words}`)
    throw new MicrovmError('guest_silent', `the guest did not call within ${timeoutMs} ms; ${words}. Is its root file system one of \`deploy/microvm\`, with a worker?`) // prettier-ignore
  } finally {
    over.abort()
  }
}
