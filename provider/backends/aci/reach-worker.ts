/** Waits until the worker of a group that runs answers, and says why when it does not. */
import { setTimeout as delay } from 'node:timers/promises'
import { SandboxError } from '../../sandbox-error.ts'
import type { WorkerClient } from '../../worker-client.ts'
import { MalformedReply } from '../../worker-client/lines.ts'
import { PROTOCOL } from '../../worker/wire.ts'
import { cleanText } from '../platform/clean-text.ts'
import { PlatformError } from '../platform/platform-error.ts'
import type { ResolvedAciOptions } from './aci-options.ts'
import type { Arm, Group } from './arm.ts'

interface Reached {
  readonly arm: Arm
  readonly name: string
  readonly address: string
  /** With the bearer of the settings. */
  readonly client: Pick<WorkerClient, 'health'>
  readonly signal?: AbortSignal | undefined
}

const HEALTH_TIMEOUT_MS = 5_000
/** Azure is asked less often than the worker. */
const GROUP_EVERY_MS = 5_000
const PAUSE_MS = 100

/** @throws PlatformError; the reason of the signal */
export async function untilWorkerAnswers(
  { arm, name, address, client, signal }: Reached,
  { workerTimeoutMs, workerPort }: Pick<ResolvedAciOptions, 'workerTimeoutMs' | 'workerPort'>,
): Promise<void> {
  const endMs = performance.now() + workerTimeoutMs
  let lookedMs = performance.now()
  for (;;) {
    signal?.throwIfAborted()
    const isKnown = await answers(
      client,
      Math.max(1, Math.ceil(Math.min(HEALTH_TIMEOUT_MS, endMs - performance.now()))),
      signal,
    )
    if (isKnown) return
    const isOver = performance.now() >= endMs
    if (isOver || performance.now() - lookedMs > GROUP_EVERY_MS) {
      lookedMs = performance.now()
      const end = whyEnded((await arm.getGroup(name, signal))?.group)
      if (end !== undefined) throw new PlatformError('image_unusable', `the container group \`${name}\` ended before its worker answered (${end}): is its image the one of deploy/azure?`) // prettier-ignore
    }
    if (isOver) throw new PlatformError('worker_silent', `the container group \`${name}\` runs, and nobody answers at ${address} port ${workerPort} after ${workerTimeoutMs / 1000} s: is there a route from here into its subnet, does the network security group let it in, and is its image the one of deploy/azure?`) // prettier-ignore
    await delay(PAUSE_MS)
  }
}

/** @throws PlatformError for whoever answers, and is not this version's worker */
async function answers(
  client: Reached['client'],
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Promise<boolean> {
  const deadline = AbortSignal.timeout(timeoutMs)
  try {
    const { protocol } = await client.health({ signal: signal === undefined ? deadline : AbortSignal.any([signal, deadline]) }) // prettier-ignore
    if (protocol === PROTOCOL) return true
    throw new PlatformError('worker_version', `the worker in the image speaks version ${protocol}, and this is version ${PROTOCOL}: build and push the image of deploy/azure again`) // prettier-ignore
  } catch (error) {
    signal?.throwIfAborted()
    if (error instanceof PlatformError) throw error
    if (error instanceof SandboxError && (error.cause instanceof MalformedReply || error.code === 'SALLYPORT_SANDBOX_BACKEND_FAILED'))
      throw new PlatformError('image_unusable', `what answers in the container is not a worker of this version: is its image the one of deploy/azure?`) // prettier-ignore
    return false
  }
}

/** Undefined for one that may yet answer. */
export function whyEnded(group: Group | undefined): string | undefined {
  if (group === undefined) return 'it is gone'
  const { instanceView, containers, provisioningState } = group.properties
  for (const { name, properties } of containers ?? []) {
    const { state, exitCode, detailStatus = '' } = properties.instanceView?.currentState ?? {}
    if (state === 'Terminated') return `container \`${cleanText(name)}\` ended${exitCode === undefined ? '' : ` with ${exitCode}`}${detailStatus === '' ? '' : `, ${cleanText(detailStatus)}`}` // prettier-ignore
  }
  const state = instanceView?.state ?? ''
  if (['Stopped', 'Failed', 'Succeeded', 'Terminated'].includes(state)) return `its state is \`${state}\``
  return provisioningState === 'Failed' || provisioningState === 'Deleting'
    ? `it is \`${provisioningState}\``
    : undefined
}
