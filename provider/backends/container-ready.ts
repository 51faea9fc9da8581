/** Waits until a container's worker can be reached, or says why it never will. */
import { connectControl } from './control-socket.ts'
import type { RunningContainer } from './docker-container.ts'
import { DockerError } from './docker-error.ts'

/** What is waited for. */
export interface ReadyOptions {
  readonly running: RunningContainer
  /** The worker's socket, or the first connection of a sandbox that dials. */
  readonly on: { readonly socketPath: string } | { readonly ready: Promise<void> }
  readonly timeoutMs: number
  readonly signal: AbortSignal | undefined
  /** Name of the backend. */
  readonly name: string
  /** Said when a sandbox does not answer. */
  readonly advice: string
}

const POLL_MS = 10

/** @throws DockerError `sandbox_ended`, `network_unsafe` or `runtime_unusable`; the reason of `signal` */
export async function untilReady(options: ReadyOptions): Promise<void> {
  const { running, on, timeoutMs, signal, name, advice } = options
  const over = new AbortController()
  const timeout = AbortSignal.timeout(timeoutMs)
  const stopped = new Promise<'stopped'>((resolve) => {
    for (const each of [timeout, signal])
      each?.addEventListener('abort', () => resolve('stopped'), { once: true, signal: over.signal })
    if (signal?.aborted === true) resolve('stopped')
  })
  try {
    const ready = 'ready' in on ? on.ready : poll(on.socketPath, over.signal)
    const outcome = await Promise.race([
      ready.then(() => 'ready' as const),
      running.ended.then(() => 'ended' as const),
      stopped,
    ])
    if (outcome === 'ready') return
    signal?.throwIfAborted()
    if (outcome === 'stopped')
      throw new DockerError('sandbox_ended', `the sandbox did not answer within ${timeoutMs} ms${advice}`)
    throw endedTooEarly(running.said(), name)
  } finally {
    over.abort()
  }
}

/** Nothing but our own programs has run in it yet, so that what it said can be relied on. */
function endedTooEarly(said: string, name: string): DockerError {
  if (said.includes('link: from inside these answer'))
    return new DockerError(
      'network_unsafe',
      `the sandbox's network is not closed: ${said.slice(said.indexOf('from inside'))}`,
    )
  if (said.includes('link: the kernel inside'))
    return new DockerError(
      'runtime_unusable',
      `the runtime that is registered as ${name} is not gVisor: ${said.slice(said.indexOf('the kernel'))}`,
    )
  return new DockerError(
    'sandbox_ended',
    `the sandbox ended as it started${said === '' ? '' : `: \`${said.slice(0, 300)}\``}`,
  )
}

async function poll(socketPath: string, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    if (await answers(socketPath)) return
    await new Promise((resolve) => setTimeout(resolve, POLL_MS))
  }
}

function answers(socketPath: string): Promise<boolean> {
  return connectControl(socketPath).then(
    (socket) => {
      socket.destroy()
      return true
    },
    () => false,
  )
}
