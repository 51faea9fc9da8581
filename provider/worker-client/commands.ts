/** A worker's commands and background processes, from outside. */
import { randomUUID } from 'node:crypto'
import { setTimeout as wait } from 'node:timers/promises'
import { SandboxError } from '../sandbox-error.ts'
import type {
  ExecuteOptions,
  WorkerBytes,
  WorkerClient,
  WorkerCommand,
  WorkerOutput,
  WorkerResult,
} from '../worker-client.ts'
import { COMMAND_TYPE, DEFAULT_OUTPUT_BYTES, MAX_KEPT_BYTES, type WireEvent } from '../worker/wire.ts'
import { act, bytesOf, call, jsonBody, refuse } from './call.ts'
import { collect, notRun, outputOf } from './collect.ts'
import { exchange, lost, type ExchangeRequest, type Link } from './exchange.ts'
import { jsonLines, malformed, parseEvent } from './lines.ts'

/** How long an aborted command may take to be dead before its connection is cut, which kills it too. */
const ABORT_MS = 2_000

type CommandMethods = Pick<
  WorkerClient,
  'execute' | 'spawn' | 'hasProcess' | 'output' | 'wait' | 'writeStdin' | 'closeStdin' | 'signal'
>

/** The command methods of a client. */
export function commandMethods(link: Link): CommandMethods {
  return {
    execute: (command, options = {}) => execute(link, command, options),

    async spawn(command) {
      const { id } = await call(link, notRun, { method: 'POST', path: '/processes', ...jsonBody(command) })
      if (typeof id !== 'string' || !/^[A-Za-z0-9_-]{1,64}$/.test(id)) throw malformed('a process without an id')
      return id
    },

    async hasProcess(id) {
      try {
        await call(link, processFault, { method: 'GET', path: pathOf(id) })
        return true
      } catch (error) {
        if (error instanceof SandboxError && error.code === 'SALLYPORT_SANDBOX_NOT_FOUND') return false
        throw error
      }
    },

    async *output(id, options = {}): AsyncGenerator<WorkerOutput> {
      for await (const event of events(link, { method: 'GET', path: pathOf(id, '/output'), signal: options.signal })) {
        if (event.type === 'stdout_delta' || event.type === 'stderr_delta') yield outputOf(event)
        else if (event.type === 'lost') yield { stream: event.stream, data: '', lostBytes: event.bytes }
        else if (event.type === 'error') throw processFault(event.code, event.error)
        else if (event.type === 'result') return
      }
      throw lost(new Error('the output has no end'))
    },

    wait: (id, options = {}) =>
      collect(events(link, { method: 'GET', path: pathOf(id, '/wait'), signal: options.signal }), MAX_KEPT_BYTES),
    writeStdin: (id, data) => feed(link, id, data, ''),
    closeStdin: (id) => feed(link, id, '', '?end=1'),
    signal: (id, signal) =>
      act(link, processFault, { method: 'POST', path: pathOf(id, '/signal'), ...jsonBody({ signal }) }),
  }
}

async function execute(link: Link, command: WorkerCommand, options: ExecuteOptions): Promise<WorkerResult> {
  const { stdin, onOutput, signal } = options
  signal?.throwIfAborted()
  const id = randomUUID()
  const limit = command.maxOutputBytes ?? DEFAULT_OUTPUT_BYTES
  // Whoever listens gets everything; otherwise the worker sends no more than is kept.
  const wanted = {
    ...command,
    id,
    stdinFollows: stdin !== undefined,
    maxOutputBytes: onOutput === undefined ? limit : null,
  }
  const cut = new AbortController()
  const over = new AbortController()
  const abort = (): void => {
    // An answer to this says that nothing of the command is left; the event stream then ends by itself.
    call(link, notRun, { method: 'DELETE', path: `/execute/${id}` }).catch(() => cut.abort())
    wait(ABORT_MS, undefined, { signal: over.signal }).then(
      () => cut.abort(),
      () => undefined,
    )
  }
  signal?.addEventListener('abort', abort, { once: true })
  try {
    const request: ExchangeRequest = {
      method: 'POST',
      path: '/execute',
      headers: { 'content-type': COMMAND_TYPE },
      body: commandBody(wanted, stdin),
      answers: 'at-once',
      signal: cut.signal,
    }
    const result = await collect(events(link, request), limit, onOutput)
    signal?.throwIfAborted()
    return result
  } catch (error) {
    signal?.throwIfAborted()
    throw error
  } finally {
    signal?.removeEventListener('abort', abort)
    over.abort()
    cut.abort()
  }
}

async function* commandBody(command: object, stdin: WorkerBytes | undefined): AsyncGenerator<Uint8Array> {
  yield Buffer.from(`${JSON.stringify(command)}\n`)
  if (stdin !== undefined) yield* bytesOf(stdin)
}

async function* events(link: Link, request: ExchangeRequest): AsyncGenerator<WireEvent> {
  const reply = await exchange(link, request)
  if (reply.status !== 200) throw await refuse(reply, request.path === '/execute' ? notRun : processFault)
  for await (const line of jsonLines(reply.chunks())) yield parseEvent(line)
}

async function feed(link: Link, id: string, data: WorkerBytes, query: string): Promise<void> {
  const headers = { 'content-type': 'application/octet-stream' }
  await call(link, processFault, {
    method: 'POST',
    path: pathOf(id, `/stdin${query}`),
    headers,
    body: bytesOf(data),
    answers: 'when-read',
  })
}

function processFault(code: string, message: string): SandboxError {
  return code === 'no_such_process'
    ? new SandboxError('SALLYPORT_SANDBOX_NOT_FOUND', 'no such process in this sandbox')
    : notRun(code, message)
}

function pathOf(id: string, rest = ''): string {
  return `/processes/${encodeURIComponent(id)}${rest}`
}
