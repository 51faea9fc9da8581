/** Waiting for a worker that was started as a process of this machine: until it says that it is ready, or what it says instead. */
import type { ChildProcess } from 'node:child_process'
import { SandboxError } from '../sandbox-error.ts'

const KEPT_BYTES = 4096

/** What the started process says: a line `ready` on its output, and complaints. All of it is untrusted and bounded. */
export class Output {
  /** Resolves with the line `ready`, to what stands behind the word. */
  readonly ready: Promise<string>
  #complaints = ''

  constructor(child: ChildProcess) {
    child.stderr?.on(
      'data',
      (chunk: Buffer) => (this.#complaints = (this.#complaints + chunk.toString('latin1')).slice(-KEPT_BYTES)),
    )
    this.ready = new Promise((resolve) => {
      let said = ''
      // Goes on after that: a full pipe would hold up whoever writes to it.
      child.stdout?.on('data', (chunk: Buffer) => {
        said = (said + chunk.toString('latin1')).slice(-KEPT_BYTES)
        const line = /^ready(?: (.*))?\n/m.exec(said)
        if (line !== null) resolve(line[1] ?? '')
      })
    })
  }

  /** The last line, fit to print; empty when nothing was said. */
  lastComplaint(): string {
    const line = this.#complaints.trim().split('\n').at(-1) ?? ''
    return line.replace(/[^\x20-\x7e]/g, '?').slice(0, 300)
  }
}

/**
 * Waits for `ready`.
 *
 * @throws SandboxError `SALLYPORT_SANDBOX_CREATE_FAILED` when the process ends first or takes too long; the signal's reason when that is aborted
 */
export async function startsWithin<T>(
  timeoutMs: number,
  signal: AbortSignal | undefined,
  output: Output,
  exited: Promise<void>,
  ready: Promise<T>,
): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  let onAbort: (() => void) | undefined
  try {
    return await Promise.race([
      ready,
      exited.then(() => {
        throw failed(`the sandbox ended before it was ready: ${output.lastComplaint() || 'it said nothing'}`)
      }),
      new Promise<never>((_resolve, reject) => {
        timer = setTimeout(
          () =>
            reject(
              failed(
                `the sandbox was not ready after ${timeoutMs / 1000} s: ${output.lastComplaint() || 'it said nothing'}`,
              ),
            ),
          timeoutMs,
        )
        onAbort = () => reject(signal?.reason as Error)
        signal?.addEventListener('abort', onAbort, { once: true })
        if (signal?.aborted === true) onAbort()
      }),
    ])
  } finally {
    clearTimeout(timer)
    if (onAbort !== undefined) signal?.removeEventListener('abort', onAbort)
  }
}

/** Runs `action` at the first call; every call has that one's outcome. */
export function onlyOnce(action: () => Promise<void>): () => Promise<void> {
  let outcome: Promise<void> | undefined
  return () => (outcome ??= action())
}

function failed(message: string): SandboxError {
  return new SandboxError('SALLYPORT_SANDBOX_CREATE_FAILED', message)
}
