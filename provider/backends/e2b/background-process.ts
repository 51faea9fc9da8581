/** A background process of a machine: its output is kept here, on the host, as far as there is room, for whoever asks from the beginning. */
import { createKeptOutput, type OutputBudget, startCursor } from '../../worker/kept-output.ts'
import type { StreamName, WireEvent } from '../../worker/wire.ts'
import type { MachineCommand } from './machine-command.ts'

/** One of them. */
export interface BackgroundProcess {
  readonly command: MachineCommand
  readonly group: number
  readonly hasEnded: () => boolean
  /** From the beginning of what is kept to the result. @throws what ended it without one */
  readonly events: (signal?: AbortSignal) => AsyncGenerator<WireEvent>
  /** Gives its room back. */
  readonly forget: () => void
}

/** Bytes of each stream, unless the caller says otherwise. */
const DEFAULT_KEPT_BYTES = 1024 * 1024

/** Reads it to its end, whoever listens. */
export function followProcess(
  command: MachineCommand,
  group: number,
  budget: OutputBudget,
  limit: number = DEFAULT_KEPT_BYTES,
  onEnd: () => void = () => undefined,
): BackgroundProcess {
  const kept = createKeptOutput(limit, budget)
  let end: { readonly event?: WireEvent; readonly error?: unknown } | undefined
  void (async () => {
    try {
      for await (const event of command.events) {
        if (event.type === 'stdout_delta') kept.push('stdout', Buffer.from(event.data))
        else if (event.type === 'stderr_delta') kept.push('stderr', Buffer.from(event.data))
        else if (event.type === 'result') end = { event }
      }
    } catch (error) {
      end = { error }
    }
    kept.end()
    onEnd()
  })()

  const changed = (signal: AbortSignal | undefined): Promise<void> =>
    new Promise((resolve, reject) => {
      const off = kept.onChange(() => {
        signal?.removeEventListener('abort', abort)
        resolve()
      })
      const abort = (): void => {
        off()
        reject(signal?.reason as Error)
      }
      signal?.addEventListener('abort', abort, { once: true })
    })

  return {
    command,
    group,
    hasEnded: () => end !== undefined,
    forget: () => kept.forget(),
    async *events(signal) {
      const cursor = startCursor()
      const lostBytes: Record<StreamName, number> = { stdout: 0, stderr: 0 }
      for (;;) {
        signal?.throwIfAborted()
        const piece = kept.read(cursor)
        if (piece !== undefined) {
          lostBytes[piece.stream] += piece.lostBytes
          if (piece.lostBytes > 0) yield { type: 'lost', stream: piece.stream, bytes: piece.lostBytes }
          yield { type: `${piece.stream}_delta`, data: piece.bytes.toString('utf8') }
        } else if (end === undefined) {
          await changed(signal)
        } else if (end.event?.type === 'result') {
          const { stdout, stderr } = lostBytes
          yield { ...end.event, ...(stdout > 0 && { stdoutTruncated: stdout }), ...(stderr > 0 && { stderrTruncated: stderr }) } // prettier-ignore
          return
        } else throw end.error
      }
    },
  }
}
