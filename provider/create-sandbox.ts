/** Makes one sandbox, as a transaction: folder → way out and start → link → probe → ready. A fault anywhere leaves nothing behind. */
import { randomBytes } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import type { EgressPolicy } from '../policies/index.ts'
import { type Backend, credentialOf, INSIDE_GATEWAY, type StartedSandbox } from './backend.ts'
import { afterMs } from './backends/time-to-live.ts'
import { messageOf, Transaction } from './create-transaction.ts'
import type { Egress, EgressGrant, EgressLink, TakeToken } from './egress/egress.ts'
import { childEnvironment } from './environment.ts'
import { labelsOf } from './labels.ts'
import { ownerOfThisProcess } from './owner.ts'
import { probeEgress, probeFor } from './probe.ts'
import {
  dataOf,
  makeRuntimeFolder,
  newSandboxId,
  pathsOf,
  removeRuntimeFolder,
  type SandboxMeta,
  writeMeta,
} from './runtime-folder.ts'
import type { CreateSandboxOptions } from './sandbox.ts'
import { SandboxError } from './sandbox-error.ts'
import { createWorkerClient, type WorkerClient, type WorkerProbe } from './worker-client.ts'

/** What sandboxes are made with. */
export interface Workshop {
  readonly backend: Backend
  readonly egress: Egress
  readonly runtimeRoot: string
  /** Opens a client for a worker; `createWorkerClient` by default. */
  readonly connectWorker?: typeof createWorkerClient
  /** Takes one that was started ahead, if there is one. */
  readonly takeSpare?: () => SpareSandbox | undefined
}

/** A sandbox that passed its probe. */
export interface MadeSandbox {
  readonly meta: SandboxMeta
  readonly started: StartedSandbox
  readonly link: EgressLink
  readonly client: WorkerClient
}

/** A sandbox that was started ahead: nobody's yet, without a way out, and with the defaults of its backend. */
export interface SpareSandbox extends Omit<MadeSandbox, 'link'> {
  /** What takes it away again. */
  readonly transaction: Transaction
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
  options.signal?.throwIfAborted()
  const spare = hasLimits(options) ? undefined : workshop.takeSpare?.()
  if (spare === undefined) return makeAnew(workshop, policy, options)
  try {
    return await takeOver(workshop, spare, policy, options)
  } catch (error) {
    // It ended while it waited, and nobody has noticed yet.
    if (error instanceof SandboxError && error.code === 'SALLYPORT_SANDBOX_CONNECTION_LOST')
      return makeAnew(workshop, policy, options)
    throw error
  }
}

async function makeAnew(workshop: Workshop, policy: EgressPolicy, options: CreateSandboxOptions): Promise<MadeSandbox> {
  const transaction = new Transaction(workshop.backend.undoBudgetMs)
  const meta = newMeta(workshop.backend, options, policy)
  const failed = new AbortController()
  const signal = options.signal === undefined ? failed.signal : AbortSignal.any([options.signal, failed.signal])
  try {
    const workerToken = makeFolder(workshop, meta, transaction)
    const order = { ...options, workerToken, signal, transaction, probe: probeFor(workshop.backend.capabilities) }
    // On this machine neither needs the other: the sandbox sees the folder of the socket.
    const [link, { started, client }] =
      credentialOf(workshop.backend) !== undefined
        ? await startElsewhere(workshop, meta, policy, order)
        : await both(...startHere(workshop, meta, policy, order), (fault) => failed.abort(fault))
    if (started.gateway !== undefined) await client.configure({ env: childEnvironment(started.gateway, options.env) })
    await probeEgress(client, started, workshop.backend.capabilities)
    options.signal?.throwIfAborted()
    return { meta, started, link, client }
  } catch (error) {
    throw await transaction.rollBack(named(error, options.signal))
  }
}

/** Makes a spare somebody's. */
async function takeOver(
  workshop: Workshop,
  { meta: { id }, started, client, transaction }: SpareSandbox,
  policy: EgressPolicy,
  options: CreateSandboxOptions,
): Promise<MadeSandbox> {
  const meta = { ...newMeta(workshop.backend, options, policy), id }
  try {
    await writeMeta(workshop.runtimeRoot, meta)
    const link = await openLink(workshop, meta, policy, transaction)
    const env = childEnvironment(started.gateway ?? INSIDE_GATEWAY, options.env)
    await client.configure({ env, timeToLiveMs: options.timeoutMs })
    if (options.timeoutMs !== undefined) limitLife(started, options.timeoutMs)
    await probeEgress(client, started, workshop.backend.capabilities)
    options.signal?.throwIfAborted()
    return { meta, started, link, client }
  } catch (error) {
    throw await transaction.rollBack(named(error, options.signal))
  }
}

/**
 * Starts one ahead, whoever will want it.
 * @throws as {@link createSandbox}
 */
export async function startSpare(workshop: Workshop, signal: AbortSignal): Promise<SpareSandbox> {
  const meta = { ...newMeta(workshop.backend, {}, { kind: 'deny-all' }), spare: true } as const
  const transaction = new Transaction()
  try {
    const workerToken = makeFolder(workshop, meta, transaction)
    return { meta, transaction, ...(await start(workshop, meta, { workerToken, signal, transaction })) }
  } catch (error) {
    throw await transaction.rollBack(named(error, signal))
  }
}

/** What a sandbox that is running already can't be given. */
function hasLimits({ memoryLimitMb, maxProcesses }: CreateSandboxOptions): boolean {
  return memoryLimitMb !== undefined || maxProcesses !== undefined
}

/** The worker keeps to its time, also when this process is gone; but a command may have stopped the worker. */
function limitLife({ ended, stop }: StartedSandbox, timeoutMs: number): void {
  const timeToLive = afterMs(timeoutMs, () => void stop())
  void ended.then(timeToLive.cancel)
}

function newMeta({ name }: Backend, options: CreateSandboxOptions, policy: EgressPolicy): SandboxMeta {
  const createdAtMs = Date.now()
  return {
    version: 1,
    id: newSandboxId(),
    backend: name,
    owner: ownerOfThisProcess(),
    createdAtMs,
    ...(options.timeoutMs !== undefined && { expiresAtMs: createdAtMs + options.timeoutMs }),
    labels: options.labels ?? {},
    tenant: options.tenant,
    egress: dataOf(policy),
  }
}

/** Makes the runtime folder; gives the bearer of the worker to be. */
function makeFolder({ runtimeRoot }: Workshop, meta: SandboxMeta, transaction: Transaction): string {
  const workerToken = randomBytes(32).toString('base64url')
  transaction.undo('folder', () => removeRuntimeFolder(runtimeRoot, meta.id))
  makeRuntimeFolder(runtimeRoot, meta, workerToken)
  return workerToken
}

interface StartOptions extends Pick<CreateSandboxOptions, 'env' | 'timeoutMs' | 'memoryLimitMb' | 'maxProcesses'> {
  readonly workerToken: string
  readonly signal: AbortSignal
  readonly transaction: Transaction
  readonly grant?: EgressGrant
  readonly probe?: WorkerProbe
  readonly launched?: () => void
}

/**
 * Opens the way out and starts the sandbox. Opening it is work of this process, the first time all that a gateway is; so it is done while the sandbox is
 * waited for, if the backend says when that is.
 */
function startHere(
  workshop: Workshop,
  meta: SandboxMeta,
  policy: EgressPolicy,
  options: StartOptions,
): [Promise<EgressLink>, Promise<Started>] {
  const { promise, resolve: launched } = Promise.withResolvers<undefined>()
  const starting = start(workshop, meta, { ...options, launched: () => launched(undefined) })
  const turn = workshop.backend.startsAtOnce === true ? Promise.race([promise, starting]) : Promise.resolve()
  return [turn.then(() => openLink(workshop, meta, policy, options.transaction)), starting]
}

/** Starts a sandbox that reaches the gateway over the network: it needs to know the gateway first. */
async function startElsewhere(
  workshop: Workshop,
  meta: SandboxMeta,
  policy: EgressPolicy,
  options: StartOptions,
): Promise<[EgressGrant, Started]> {
  const grant = await openGrant(workshop, meta, policy)
  options.transaction.undo('way out', grant.close)
  const { started, client } = await start(workshop, meta, { ...options, grant })
  await grant.begin(takerOf(started, client))
  return [grant, { started, client }]
}

/**
 * The way out of a sandbox elsewhere; it goes nowhere yet.
 * @throws what makes it impossible; a resolver that throws too
 */
export async function openGrant(
  { egress, backend }: Workshop,
  { id, tenant }: SandboxMeta,
  policy: EgressPolicy,
): Promise<EgressGrant> {
  const grant = await egress.grant?.({ sandbox: id, tenant, policy, credential: credentialOf(backend) ?? 'token' })
  // Said earlier to whoever made the provider.
  if (grant === undefined) throw new TypeError(`sandboxes of \`${backend.name}\` do not reach this gateway`)
  return grant
}

/** What becomes of further tokens for it. */
export function takerOf(started: StartedSandbox, client: WorkerClient): TakeToken {
  return started.takeToken ?? ((token, why) => client.configure({ gatewayToken: token, cutTunnels: why === 'policy' }))
}

/** A client for its worker, or the one that stands for a worker. */
export function clientOf(
  { connectWorker = createWorkerClient }: Workshop,
  { client, connect }: StartedSandbox,
  token: string,
): WorkerClient {
  return client ?? connectWorker({ connect, token })
}

interface Started {
  readonly started: StartedSandbox
  readonly client: WorkerClient
}

/** Starts the sandbox and waits for its worker. */
async function start(
  workshop: Workshop,
  meta: SandboxMeta,
  {
    workerToken,
    signal,
    transaction,
    grant,
    probe,
    launched,
    env,
    timeoutMs,
    memoryLimitMb,
    maxProcesses,
  }: StartOptions,
): Promise<Started> {
  const { backend, runtimeRoot } = workshop
  const started = await backend.start({
    id: meta.id,
    grant,
    runtimeFolder: pathsOf(runtimeRoot, meta.id).folder,
    workerToken,
    env: childEnvironment(INSIDE_GATEWAY, env),
    timeoutMs,
    memoryLimitMb,
    maxProcesses,
    labels: labelsOf(meta),
    probe,
    launched,
    signal,
    undo: transaction.undo,
  })
  transaction.undo('start', started.stop)
  const client = clientOf(workshop, started, workerToken)
  if (started.announced !== true) await untilReady(client, started, signal)
  await started.answered?.()
  return { started, client }
}

async function openLink(
  { egress, runtimeRoot }: Workshop,
  { id, tenant }: SandboxMeta,
  policy: EgressPolicy,
  transaction: Transaction,
): Promise<EgressLink> {
  const link = await egress.open({ sandbox: id, tenant, policy, socketPath: pathsOf(runtimeRoot, id).gatewaySocket })
  transaction.undo('way out', link.close)
  return link
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
