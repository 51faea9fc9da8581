/** Sandboxes as microVMs of this machine: a kernel of their own, and between it and the host two byte channels over vsock. */
import { randomBytes } from 'node:crypto'
import { mkdir, rm } from 'node:fs/promises'
import path from 'node:path'
import type { Backend, StartedSandbox } from '../backend.ts'
import { isSandboxId } from '../runtime-folder.ts'
import type { SandboxCapabilities, SandboxInfo } from '../sandbox.ts'
import { INSIDE } from './inside.ts'
import { findCgroupPlace } from './cgroup.ts'
import { attachMachine } from './microvm/attach-machine.ts'
import { engineOf } from './microvm/engine-of.ts'
import { findMissing } from './microvm/find-missing.ts'
import { PORT, TAP, VSOCK } from './microvm/guest-protocol.ts'
import type { Engine } from './microvm/machine.ts'
import { makeMachine, type WaitingMachine } from './microvm/make-machine.ts'
import { MicrovmError } from './microvm/microvm-error.ts'
import { createMachinePool, sweepPool } from './microvm/machine-pool.ts'
import { checkMachineLimits, resolveSelfHostedOptions, type ResolvedSelfHostedOptions, type SelfHostedOptions } from './microvm/self-hosted-options.ts' // prettier-ignore
import { readMachine, readMachines, writeMachine } from './microvm/vm-record.ts'
import { connectVsock } from './microvm/vsock.ts'
import { afterMs } from './time-to-live.ts'

/** See {@link SelfHostedOptions}. */
export type SelfHostedBackendOptions = SelfHostedOptions

/** From the orders to the worker's answer. */
const WORKER_TIMEOUT_MS = 60_000

/** What is missing here, for people; none when sandboxes can be made. @throws TypeError for a caller's mistake */
export async function findMissingForSelfHosted(given: SelfHostedBackendOptions): Promise<readonly MicrovmError[]> {
  const options = resolveSelfHostedOptions(given)
  return findMissing(engineOf(options), options)
}

/** Makes the backend. @throws TypeError for a caller's mistake */
export function createSelfHostedBackend(given: SelfHostedBackendOptions): Backend {
  const options = resolveSelfHostedOptions(given)
  const { runtimeRoot } = options
  const engine = engineOf(options)
  const pool = createMachinePool(options.pool.size, async (signal) => {
    const name = `vm_${randomBytes(8).toString('hex')}`
    return makePooled(engine, options, name, signal)
  })

  return {
    name: 'self-hosted',
    environment: 'linux-namespace',
    capabilities: capabilitiesOf(options),
    check: async () => {
      const [first] = await findMissing(engine, options)
      if (first !== undefined) throw first
      await sweepPool(runtimeRoot)
      pool.fill()
    },

    start: async (request) => {
      const { id, runtimeFolder, undo, signal, timeoutMs } = request
      const memoryMb = request.memoryLimitMb ?? options.memoryLimitMb
      const maxProcesses = request.maxProcesses ?? options.maxProcesses
      checkMachineLimits({ memoryLimitMb: memoryMb, maxProcesses })
      // One of another size can't go on from a snapshot, and boots.
      const isUsual = memoryMb === options.memoryLimitMb
      const pooled = isUsual ? await pool.take() : undefined
      if (pooled !== undefined) undo('microVM', pooled.remove)
      const waiting =
        pooled ??
        (await makeMachine(
          engine,
          isUsual ? options : { ...options, snapshot: undefined },
          { id, runtimeFolder, memoryMb, labels: request.labels, timeoutMs, signal },
          (action) => undo('microVM', action),
        ))
      if (pooled !== undefined) {
        const createdAtMs = Date.now()
        await writeMachine(runtimeFolder, {
          ...pooled.record(),
          id,
          createdAtMs,
          ...(timeoutMs !== undefined && { expiresAtMs: createdAtMs + timeoutMs }),
          labels: { ...request.labels },
        })
        await pooled.leave()
        await pooled.machine.resume()
      }
      signal?.throwIfAborted()
      waiting.carryTo(path.join(runtimeFolder, 'egress', 'gateway.sock'))
      await ordered(waiting, { ...request, maxProcesses }, signal)
      const { folder } = waiting.record()
      const clock = timeoutMs === undefined ? undefined : afterMs(timeoutMs, () => void stop().catch(() => undefined))
      const stop = (): Promise<void> => {
        clock?.cancel()
        return waiting.remove()
      }
      return {
        rootDir: INSIDE.workspace,
        connect: () => connectVsock(path.join(folder, VSOCK), PORT.worker),
        ...(options.network === 'tap' && { gateway: { host: TAP.host, port: PORT.gateway } }),
        announced: true,
        ended: waiting.ended,
        stop,
      }
    },

    list: async (): Promise<readonly SandboxInfo[]> => {
      await sweepPool(runtimeRoot)
      const machines = await readMachines(runtimeRoot)
      return machines.filter(({ name, record }) => isSandboxId(name) && record.id === name).map(({ record: { id, createdAtMs, expiresAtMs, labels } }) => ({ id, createdAtMs, ...(expiresAtMs !== undefined && { expiresAtMs }), labels })) // prettier-ignore
    },

    attach: async (id): Promise<StartedSandbox | undefined> => {
      if (!isSandboxId(id)) return undefined
      const record = await readMachine(path.join(runtimeRoot, id))
      return record === undefined ? undefined : attachMachine(record, path.join(runtimeRoot, id))
    },

    close: pool.close,
  }
}

async function ordered(
  { call, ended, said }: WaitingMachine,
  order: Parameters<WaitingMachine['call']['give']>[0],
  signal: AbortSignal | undefined,
): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  let onAbort: (() => void) | undefined
  try {
    await Promise.race([
      call.give(order),
      ended.then(() => {
        throw new MicrovmError('machine_ended', `the microVM ended before its worker answered; it said \`${said()}\``)
      }),
      new Promise<never>((_resolve, reject) => {
        timer = setTimeout(() => reject(new MicrovmError('guest_silent', `the guest's worker did not answer within ${WORKER_TIMEOUT_MS / 1000} s`)), WORKER_TIMEOUT_MS) // prettier-ignore
        onAbort = () => reject(signal?.reason as Error)
        signal?.addEventListener('abort', onAbort, { once: true })
        if (signal?.aborted === true) onAbort()
      }),
    ])
  } finally {
    clearTimeout(timer)
    if (onAbort !== undefined) signal?.removeEventListener('abort', onAbort)
    call.close()
  }
}

async function makePooled(engine: Engine, options: ResolvedSelfHostedOptions, name: string, signal: AbortSignal) {
  const runtimeFolder = path.join(options.runtimeRoot, name)
  await mkdir(runtimeFolder, { mode: 0o700 })
  const removals: (() => Promise<void>)[] = [() => rm(runtimeFolder, { recursive: true, force: true })]
  const remove = async (): Promise<void> => {
    for (const action of removals) await action()
  }
  try {
    const waiting = await makeMachine(engine, options, { id: name, runtimeFolder, memoryMb: options.memoryLimitMb, labels: {}, signal }, (action) => removals.unshift(action)) // prettier-ignore
    await waiting.machine.pause()
    return {
      ...waiting,
      // With the folder, in which its own may be.
      record: () => ({ ...waiting.record(), folders: [...waiting.record().folders, runtimeFolder] }),
      remove,
      leave: () => rm(path.join(runtimeFolder, 'machine.json'), { force: true }),
    }
  } catch (error) {
    await remove()
    throw error
  }
}

function capabilitiesOf({ engine, unsafeNoJailer, network }: ResolvedSelfHostedOptions): SandboxCapabilities {
  const isRoot = process.getuid?.() === 0
  const isJailed = engine === 'firecracker' && !unsafeNoJailer
  return {
    enforcement: 'kernel',
    streaming: true,
    spawn: true,
    runtimeEgressChange: true,
    memoryLimit: 'command',
    processLimit: true,
    timeToLive: true,
    attach: true,
    leftOpen: [
      engine === 'firecracker'
        ? 'a fault in KVM, in Firecracker or in the processor is a way out of the guest'
        : 'a fault in QEMU or its vsock device is a way out of the guest, to a program of the host with a seccomp filter and nothing else around it',
      'memory and processors are shared, so that timing tells something of neighbours',
      ...(isJailed ? [] : ['the program of a machine sees the host’s file system, as far as its user may']),
      ...(isRoot
        ? []
        : ['all machines run as the same user, so that one that breaks out of its program has the others']),
      ...(findCgroupPlace() === undefined ? ['the program of a machine is not held to its memory on the host, since no control group is writable here'] : []), // prettier-ignore
      ...(network === 'tap' ? ['the host’s network stack reads the packets of the guest'] : []),
    ],
  }
}
