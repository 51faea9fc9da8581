/** `POST /execute`: runs a command for as long as its caller stays, and streams what it writes. */
import type http from 'node:http'
import { discardRest, readCommand } from './body.ts'
import { parseCommand, type CommandRequest } from './command.ts'
import { MAX_RUNNING, type WorkerContext } from './context.ts'
import { openEventStream, type EventStream } from './event-stream.ts'
import { Fault, faultOf } from './fault.ts'
import { createOutputEncoder } from './output-encoder.ts'
import { startRun, type Run, type RunEnd } from './run.ts'
import { DEFAULT_OUTPUT_BYTES, type ResultEvent, type StreamName } from './wire.ts'

/** Answers when the command has ended. The caller's going away kills it. */
export async function execute(
  context: WorkerContext,
  request: http.IncomingMessage,
  response: http.ServerResponse,
): Promise<void> {
  const wanted = parseCommand(await readCommand(request), context.defaults)
  const { commands, processes } = context
  if (commands.size + processes.running >= MAX_RUNNING)
    throw new Fault('too_many', `${MAX_RUNNING} commands run already`)
  const mark = context.nextMark()
  const id = wanted.id ?? mark
  if (commands.has(id)) throw new Fault('bad_request', 'a command with this `id` runs already')

  commands.set(id, undefined)
  const stream = openEventStream(response)
  const sender = createSender(
    stream,
    wanted.maxOutputBytes === undefined ? DEFAULT_OUTPUT_BYTES : (wanted.maxOutputBytes ?? Infinity),
  )
  let run: Run | undefined
  try {
    run = await startRun(wanted.run, {
      pipes: context.pipes,
      mark,
      stdin: wanted.stdinFollows || wanted.stdin !== undefined,
      onOutput: (name, bytes) => {
        if (!sender.send(name, bytes)) run?.pause()
      },
    })
  } catch (error) {
    const { code, message } = faultOf(error)
    commands.delete(id)
    stream.end({ type: 'error', code, error: message }, discardRest(request))
    return
  }
  commands.set(id, run)
  stream.onDrain(run.resume)
  const abandon = (): void => {
    run.cancel()
    // What is still in the pipes must be read for the end to come.
    run.resume()
  }
  stream.onAbandoned(abandon)
  if (stream.closed) abandon()
  feed(run, wanted, request)
  const end = await run.ended
  commands.delete(id)
  sender.finish()
  stream.end(resultEvent(end, sender.truncated), discardRest(request))
}

/** `DELETE /execute/{id}`: answers when nothing of it is left. */
export async function cancelCommand(context: WorkerContext, id: string): Promise<void> {
  const run = context.commands.get(id)
  if (run === undefined) throw new Fault('no_such_process', 'no such command runs')
  run.cancel()
  await run.exited
}

/** The event of an end. */
export function resultEvent(end: RunEnd, missing: Readonly<Record<StreamName, number>>): ResultEvent {
  return {
    type: 'result',
    exitCode: end.exitCode,
    ...(end.signal !== undefined && { signal: end.signal }),
    timedOut: end.timedOut,
    ...(end.cancelled && { cancelled: true }),
    durationMs: end.durationMs,
    ...(missing.stdout > 0 && { stdoutTruncated: missing.stdout }),
    ...(missing.stderr > 0 && { stderrTruncated: missing.stderr }),
  }
}

function feed(run: Run, wanted: CommandRequest, request: http.IncomingMessage): void {
  if (run.stdin === undefined || !wanted.stdinFollows) {
    run.stdin?.end(wanted.stdin)
    request.resume()
    return
  }
  request.pipe(run.stdin)
  // What nobody reads any more is thrown away, so that the caller can finish.
  run.stdin.on('close', () => request.unpipe().resume())
}

/** Sends each stream's first `limit` bytes, whole characters only, and counts the rest. */
function createSender(stream: EventStream, limit: number) {
  const encoders = { stdout: createOutputEncoder('stdout'), stderr: createOutputEncoder('stderr') }
  const sent = { stdout: 0, stderr: 0 }
  const truncated = { stdout: 0, stderr: 0 }
  return {
    truncated: truncated as Readonly<Record<StreamName, number>>,
    send(name: StreamName, bytes: Buffer): boolean {
      const room = truncated[name] > 0 ? 0 : limit - sent[name]
      if (bytes.length <= room) {
        sent[name] += bytes.length
        return stream.write(encoders[name].push(bytes))
      }
      truncated[name] += bytes.length
      if (room === 0) {
        truncated[name] += encoders[name].drop()
        return true
      }
      const head = bytes.subarray(0, room)
      const going = stream.write(encoders[name].push(head))
      sent[name] = limit
      truncated[name] -= head.length - encoders[name].drop()
      return going
    },
    finish(): void {
      for (const name of ['stdout', 'stderr'] as const) stream.write(encoders[name].end())
    },
  }
}
