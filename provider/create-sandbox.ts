/** Makes one sandbox, as a transaction: folder → way out and start → link → probe → ready. A fault anywhere leaves nothing behind. */
import { randomBytes } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import type { EgressPolicy } from '../policies/index.ts'
import { type Backend, INSIDE_GATEWAY, type StartedSandbox } from './backend.ts'
import { messageOf, Transaction } from './create-transaction.ts'
import type { Egress, EgressLink } from './egress/egress.ts'
import { childEnvironment } from './environment.ts'
import { labelsOf } from './labels.ts'
import { ownerOfThisProcess } from './owner.ts'
import { probeEgress } from './probe.ts'
import {
  dataOf,
  makeRuntimeFolder,
  newSandboxId,
  pathsOf,
  removeRuntimeFolder,
  type SandboxMeta,
} from './runtime-folder.ts'
import type { CreateSandboxOptions } from './sandbox.ts'
import { SandboxError } from './sandbox-error.ts'
import { createWorkerClient, type WorkerClient } from './worker-client.ts'

/** What sandboxes are made with. */
export interface Workshop {
  readonly backend: Backend
  readonly egress: Egress
  readonly runtimeRoot: string
  /** Opens a client for a worker; `createWorkerClient` by default. */
  readonly connectWorker?: typeof createWorkerClient
}

/** A sandbox that passed its probe. */
export interface MadeSandbox {
  readonly meta: SandboxMeta
  readonly started: StartedSandbox
  readonly link: EgressLink
  readonly client: WorkerClient
}

/** For a worker that was started to answer. */
const READY_TIMEOUT_MS = 10_000
const READY_PAUSE_MS = 20

/**
 * Makes it.
 * @throws the fault of the step that failed: SandboxError, SallyportError of the policy, what a resolver threw, or the reason of `options.signal`
 */
export async function createSandbox(
  workshop: Workshop,
  policy: EgressPolicy,
  options: CreateSandboxOptions,
): Promise<MadeSandbox> {
  const { backend, egress, runtimeRoot, connectWorker = createWorkerClient } = workshop
  options.signal?.throwIfAborted()
  const createdAtMs = Date.now()
  const meta: SandboxMeta = {
    version: 1,
    id: newSandboxId(),
    backend: backend.name,
    owner: ownerOfThisProcess(),
    createdAtMs,
    ...(options.timeoutMs !== undefined && { expiresAtMs: createdAtMs + options.timeoutMs }),
    labels: options.labels ?? {},
    tenant: options.tenant,
    egress: dataOf(policy),
  }
  const { id } = meta
  const env = childEnvironment(INSIDE_GATEWAY, options.env)
  const workerToken = randomBytes(32).toString('base64url')
  const transaction = new Transaction()
  const failed = new AbortController()
  const signal = options.signal === undefined ? failed.signal : AbortSignal.any([options.signal, failed.signal])
  try {
    const paths = pathsOf(runtimeRoot, id)
    transaction.undo('folder', () => removeRuntimeFolder(runtimeRoot, id))
    await makeRuntimeFolder(runtimeRoot, meta, workerToken)

    // Neither needs the other: the sandbox sees the folder of the socket.
    const [link, started] = await both(
      opened(
        transaction,
        egress.open({ sandbox: id, tenant: options.tenant, policy, socketPath: paths.gatewaySocket }),
      ),
      begun(
        transaction,
        backend.start({
          id,
          runtimeFolder: paths.folder,
          workerToken,
          env,
          timeoutMs: options.timeoutMs,
          memoryLimitMb: options.memoryLimitMb,
          maxProcesses: options.maxProcesses,
          labels: labelsOf(meta),
          signal,
          undo: transaction.undo,
        }),
      ),
      (fault) => failed.abort(fault),
    )
    const client = connectWorker({ connect: started.connect, token: workerToken })
    if (started.announced !== true) await untilReady(client, started, signal)
    await started.answered?.()
    if (started.gateway !== undefined) await client.configure({ env: childEnvironment(started.gateway, options.env) })
    await probeEgress(client, started, backend.capabilities)
    options.signal?.throwIfAborted()
    return { meta, started, link, client }
  } catch (error) {
    throw await transaction.rollBack(named(error, options.signal))
  }
}

async function opened(transaction: Transaction, opening: Promise<EgressLink>): Promise<EgressLink> {
  const link = await opening
  transaction.undo('way out', link.close)
  return link
}

async function begun(transaction: Transaction, starting: Promise<StartedSandbox>): Promise<StartedSandbox> {
  const started = await starting
  transaction.undo('start', started.stop)
  return started
}

/** Both results, or the first fault once both have come to an end. */
async function both<A, B>(first: Promise<A>, second: Promise<B>, onFault: (fault: unknown) => void): Promise<[A, B]> {
  let fault: { readonly error: unknown } | undefined
  const noted = (error: unknown): void => {
    if (fault === undefined) onFault(error)
    fault ??= { error }
  }
  first.catch(noted)
  second.catch(noted)
  const [a, b] = await Promise.allSettled([first, second])
  if (a.status === 'fulfilled' && b.status === 'fulfilled') return [a.value, b.value]
  // The other one may have failed because it was told to stop.
  throw (fault as { readonly error: unknown } | undefined)?.error
}

/** The worker may need a moment from its start to its first answer. */
async function untilReady(client: WorkerClient, started: StartedSandbox, signal: AbortSignal): Promise<void> {
  const deadline = AbortSignal.timeout(READY_TIMEOUT_MS)
  const ended = started.ended.then((): never => {
    throw new SandboxError('SALLYPORT_SANDBOX_CREATE_FAILED', 'the sandbox ended before its worker answered')
  })
  ended.catch(() => undefined)
  for (;;) {
    try {
      await Promise.race([client.health({ signal: AbortSignal.any([signal, deadline]) }), ended])
      return
    } catch (error) {
      signal.throwIfAborted()
      const isTooEarly = error instanceof SandboxError && error.code === 'SALLYPORT_SANDBOX_CONNECTION_LOST'
      if (!isTooEarly && !deadline.aborted) throw error
      if (deadline.aborted) {
        throw new SandboxError(
          'SALLYPORT_SANDBOX_CREATE_FAILED',
          `the sandbox's worker did not answer within ${READY_TIMEOUT_MS / 1000} s`,
          { cause: error },
        )
      }
    }
    await delay(READY_PAUSE_MS)
  }
}

/** A fault with a code stays as it is, and so does what the caller's own code or signal threw. What the system threw gets a name. */
function named(error: unknown, signal: AbortSignal | undefined): unknown {
  if (signal?.aborted === true) return signal.reason
  const isOfSystem = error instanceof Error && 'syscall' in error
  return isOfSystem
    ? new SandboxError('SALLYPORT_SANDBOX_CREATE_FAILED', `the sandbox could not be made: ${messageOf(error)}`, {
        cause: error,
      })
    : error
}
