/** `/processes`: what `execute` does, without a caller that waits. */
import type http from 'node:http'
import os from 'node:os'
import { readJson } from './body.ts'
import { parseCommand, parseObject } from './command.ts'
import { MAX_RUNNING, type WorkerContext } from './context.ts'
import { openEventStream, type EventStream } from './event-stream.ts'
import { resultEvent } from './execute.ts'
import { Fault } from './fault.ts'
import { startCursor, type Cursor } from './kept-output.ts'
import { createOutputEncoder } from './output-encoder.ts'
import type { BackgroundProcess } from './processes.ts'

/** `POST /processes` */
export async function startProcess(context: WorkerContext, request: http.IncomingMessage): Promise<object> {
  const wanted = parseCommand(await readJson(request), context.defaults)
  const { commands, processes } = context
  if (commands.size + processes.running >= MAX_RUNNING)
    throw new Fault('too_many', `${MAX_RUNNING} commands run already`)
  const started = await processes.start(wanted.run, context.nextMark(), wanted.maxOutputBytes ?? undefined)
  if (wanted.stdin !== undefined) started.stdin?.write(wanted.stdin)
  return { id: started.id }
}

/** `GET /processes/{id}/output`: from the beginning, as far as it is kept, until the end. */
export async function streamOutput(background: BackgroundProcess, response: http.ServerResponse): Promise<void> {
  const stream = openEventStream(response)
  const writer = createWriter(background, stream)
  const nextChange = createWaiter(background, stream)
  for (;;) {
    await writer.catchUp()
    if (stream.closed) return
    if (background.end !== undefined) {
      stream.end(resultEvent(background.end, writer.finish()))
      return
    }
    await nextChange()
  }
}

/** `GET /processes/{id}/wait`: signs of life, and at the end what is kept of the output and the result. */
export async function streamEnd(background: BackgroundProcess, response: http.ServerResponse): Promise<void> {
  const stream = openEventStream(response)
  const nextChange = createWaiter(background, stream)
  while (background.end === undefined) {
    await nextChange()
    if (stream.closed) return
  }
  const writer = createWriter(background, stream)
  await writer.catchUp()
  stream.end(resultEvent(background.end, writer.finish()))
}

/** `POST /processes/{id}/stdin`: raw bytes; answers when the process can take more. */
export async function feedProcess(
  background: BackgroundProcess,
  request: http.IncomingMessage,
  end: boolean,
): Promise<void> {
  const { stdin } = background
  const gone = (): Fault => new Fault('ended', 'the process reads no more')
  if (stdin === undefined || !stdin.writable) throw gone()
  for await (const piece of request as AsyncIterable<Buffer>) {
    await new Promise<void>((resolve, reject) => {
      const closed = (): void => reject(gone())
      stdin.once('close', closed)
      stdin.write(piece, (error) => {
        stdin.off('close', closed)
        if (error) reject(gone())
        else resolve()
      })
    })
  }
  if (end) stdin.end()
}

/** `POST /processes/{id}/signal` */
export async function signalProcess(background: BackgroundProcess, request: http.IncomingMessage): Promise<void> {
  const { signal = 'SIGKILL' } = parseObject(await readJson(request))
  if (typeof signal !== 'string' || !Object.hasOwn(os.constants.signals, signal))
    throw new Fault('bad_request', '`signal` is no signal')
  if (signal === 'SIGKILL') background.run.cancel()
  else background.run.signal(signal as NodeJS.Signals)
}

function createWriter(background: BackgroundProcess, stream: EventStream) {
  const encoders = { stdout: createOutputEncoder('stdout'), stderr: createOutputEncoder('stderr') }
  const lost = { stdout: 0, stderr: 0 }
  const cursor: Cursor = startCursor()
  return {
    async catchUp(): Promise<void> {
      for (let piece = background.output.read(cursor); piece !== undefined; piece = background.output.read(cursor)) {
        const encoder = encoders[piece.stream]
        lost[piece.stream] += piece.lostBytes
        const gap =
          piece.lostBytes === 0
            ? ''
            : `${encoder.end()}{"type":"lost","stream":"${piece.stream}","bytes":${piece.lostBytes}}\n`
        if (!stream.write(gap + encoder.push(piece.bytes))) await stream.drained()
        if (stream.closed) return
      }
    },
    /** The last characters, and how many bytes this reader did not get. */
    finish() {
      stream.write(encoders.stdout.end() + encoders.stderr.end())
      for (const name of ['stdout', 'stderr'] as const)
        lost[name] += background.output.written(name) - cursor.offsets[name]
      return lost
    },
  }
}

/** Resolves, each time, at the next output or at the end of the process, or when the reader is gone. */
function createWaiter(background: BackgroundProcess, stream: EventStream): () => Promise<void> {
  let wake: () => void = () => undefined
  let stop: () => void = () => undefined
  stream.onAbandoned(() => {
    stop()
    wake()
  })
  return () =>
    new Promise((resolve) => {
      wake = resolve
      stop = background.output.onChange(resolve)
    })
}
