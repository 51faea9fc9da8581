/** Makes a result of a command's events: only a `result` event gives an exit code. */
import { isUtf8 } from 'node:buffer'
import { SandboxError } from '../sandbox-error.ts'
import type { WorkerOutput, WorkerResult } from '../worker-client.ts'
import { unfinishedBytes } from '../worker/output-encoder.ts'
import type { OutputEvent, StreamName, WireEvent } from '../worker/wire.ts'
import { lost } from './exchange.ts'
import { WorkerFault } from './worker-fault.ts'

/** Reads events to the `result`, hands output on, and keeps the first `limit` bytes of each stream. @throws SandboxError */
export async function collect(
  events: AsyncIterable<WireEvent>,
  limit: number,
  onOutput?: (chunk: WorkerOutput) => void,
): Promise<WorkerResult> {
  const kept = { stdout: createKept(limit), stderr: createKept(limit) }
  for await (const event of events) {
    if (event.type === 'stdout_delta' || event.type === 'stderr_delta') {
      const output = outputOf(event)
      kept[output.stream].push(output)
      onOutput?.(output)
    } else if (event.type === 'error') {
      throw notRun(event.code, event.error)
    } else if (event.type === 'result') {
      const stdout = kept.stdout.finish()
      const stderr = kept.stderr.finish()
      const stdoutTruncated = (event.stdoutTruncated ?? 0) + stdout.left
      const stderrTruncated = (event.stderrTruncated ?? 0) + stderr.left
      return {
        exitCode: event.exitCode,
        stdout: stdout.text,
        stderr: stderr.text,
        ...(event.signal !== undefined && { signal: event.signal }),
        timedOut: event.timedOut,
        durationMs: event.durationMs,
        ...(stdoutTruncated > 0 && { stdoutTruncated }),
        ...(stderrTruncated > 0 && { stderrTruncated }),
        ...(stdout.bytes !== undefined && { stdoutBytes: stdout.bytes }),
        ...(stderr.bytes !== undefined && { stderrBytes: stderr.bytes }),
      }
    }
  }
  throw lost(new Error('the stream ended without a result'))
}

/** Output as callers see it. */
export function outputOf(event: OutputEvent): WorkerOutput {
  const stream: StreamName = event.type === 'stdout_delta' ? 'stdout' : 'stderr'
  if (event.encoding === undefined) return { stream, data: event.data }
  const bytes = Buffer.from(event.data, 'base64')
  return { stream, data: bytes.toString('utf8'), bytes }
}

/** The command was not started: nothing has happened. */
export function notRun(code: string, message: string): SandboxError {
  return new SandboxError('SALLYPORT_SANDBOX_EXEC_FAILED', message, { cause: new WorkerFault(code, message) })
}

/** One growing buffer: kept piece by piece, single bytes would cost a hundred times as much as they are. */
function createKept(limit: number) {
  let kept = Buffer.alloc(0)
  let size = 0
  let left = 0
  const add = (bytes: Uint8Array): void => {
    if (size + bytes.length > kept.length) {
      const grown = Buffer.alloc(Math.min(limit, Math.max(2 * kept.length, size + bytes.length)))
      kept.copy(grown, 0, 0, size)
      kept = grown
    }
    kept.set(bytes, size)
    size += bytes.length
  }
  return {
    push({ data, bytes }: WorkerOutput): void {
      if (left > 0 || size === limit) {
        left += bytes?.length ?? Buffer.byteLength(data)
        return
      }
      const whole = bytes ?? Buffer.from(data)
      let head = whole.subarray(0, limit - size)
      if (head.length < whole.length) head = head.subarray(0, head.length - unfinishedBytes(head))
      add(head)
      left += whole.length - head.length
    },
    finish() {
      const all = kept.subarray(0, size)
      return { text: all.toString('utf8'), bytes: isUtf8(all) ? undefined : new Uint8Array(all), left }
    },
  }
}
