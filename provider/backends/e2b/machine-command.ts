/** One command in a machine, under the supervisor: its events as those of a worker's command, with the process group to send signals to. */
import { randomBytes } from 'node:crypto'
import os from 'node:os'
import type { CommandHandle } from 'e2b'
import { WorkerFault } from '../../worker-client.ts'
import { notRun } from '../../worker-client/collect.ts'
import { lost } from '../../worker-client/exchange.ts'
import type { StreamName, WireEvent } from '../../worker/wire.ts'
import type { Machine } from './e2b-api.ts'
import { createEventQueue, type EventQueue } from './event-queue.ts'
import { forgetOutput } from './forget-output.ts'
import { createMarkedText } from './marked-text.ts'
import { shellLine } from './shell-words.ts'
import { SUPERVISOR_SCRIPT } from './supervisor-script.ts'

/** What to start. */
export interface CommandOrder {
  readonly argv: readonly string[]
  /** Absolute. */
  readonly folder: string
  readonly env: Readonly<Record<string, string>>
  readonly timeoutMs?: number | undefined
  /** Whether it can be written to; it reads nothing otherwise. */
  readonly stdin: boolean
}

/** One that runs. */
export interface MachineCommand {
  readonly handle: CommandHandle
  /** Of the supervisor; with the mark it names the command to another process. */
  readonly mark: string
  /** Resolves to the process group once the program runs. @throws SandboxError when it could not be started */
  readonly started: Promise<number>
  /** To be read by one; ends with the result, or throws. */
  readonly events: AsyncIterable<WireEvent>
  /** Nothing of it matters any more. */
  readonly leave: () => void
  /** Whoever reads the events gets this instead of more. */
  readonly fail: (error: Error) => void
}

const START_TIMEOUT_MS = 60_000
/** What can't be done to start it, for people. */
const FAILURES: Readonly<Record<string, string>> = { program: 'the program can’t be run', folder: 'the working folder can’t be entered', fork: 'there is no room for another process' } // prettier-ignore
const SIGNALS = new Map(Object.entries(os.constants.signals).map(([name, number]) => [number, name]))

/** @throws SandboxError when it could not be started, or it is not known whether it was */
export async function startCommand(machine: Machine, order: CommandOrder): Promise<MachineCommand> {
  const mark = randomBytes(12).toString('hex')
  const { argv, folder, env, timeoutMs = 0, stdin } = order
  if (argv.some((word) => word.includes('\0')) || folder.includes('\0')) throw notRun('bad_request', 'an argument holds NUL, which none can') // prettier-ignore
  const line = shellLine(['perl', '-e', SUPERVISOR_SCRIPT, '--', mark, String(timeoutMs), folder, ...argv])
  if (line === undefined) throw notRun('E2BIG', 'arguments are too long: E2B takes about 100 KiB; write them to a file')
  const listener = listenTo(mark)
  let handle: CommandHandle
  try {
    handle = await machine.commands.run(line, { background: true, timeoutMs: 0, requestTimeoutMs: START_TIMEOUT_MS, envs: { ...env }, stdin, ...listener.callbacks }) // prettier-ignore
  } catch (error) {
    throw lost(error)
  }
  return { handle, mark, ...listener.follow(handle) }
}

/** Goes on with one that another process started; what it wrote until now is not to be had. */
export async function joinCommand(machine: Machine, pid: number, mark: string): Promise<MachineCommand | undefined> {
  const listener = listenTo(mark, true)
  try {
    const handle = await machine.commands.connect(pid, { timeoutMs: 0, requestTimeoutMs: START_TIMEOUT_MS, ...listener.callbacks }) // prettier-ignore
    return { handle, mark, ...listener.follow(handle) }
  } catch (error) {
    if (error instanceof Error && error.name === 'NotFoundError') return undefined
    throw lost(error)
  }
}

function listenTo(mark: string, isJoined = false) {
  const queue: EventQueue<WireEvent> = createEventQueue()
  const begunAtMs = Date.now()
  const started = Promise.withResolvers<number>()
  started.promise.catch(() => undefined)
  const streams = {
    stdout: { marked: createMarkedText(mark), hasBegun: isJoined, end: undefined as readonly string[] | undefined },
    stderr: { marked: createMarkedText(mark), hasBegun: isJoined, end: undefined as readonly string[] | undefined },
  }
  let group = 0
  let finished = false
  let leave = (): void => undefined

  const finish = (event: WireEvent | undefined, error?: Error): void => {
    if (finished) return
    finished = true
    if (error !== undefined) started.reject(error)
    queue.end(event, error)
    leave()
  }
  const result = (code: number, signal: number, timedOut: boolean): WireEvent => {
    const name = SIGNALS.get(signal)
    return { type: 'result', exitCode: signal > 0 ? 128 + signal : code, ...(signal > 0 && { signal: name ?? `SIG${signal}` }), timedOut, durationMs: Date.now() - begunAtMs } // prettier-ignore
  }
  const onWords = (stream: StreamName, [what, first = '', second = '', third = '']: readonly string[]): void => {
    const state = streams[stream]
    if (what === 'begin') {
      state.hasBegun = true
      group = numberOf(first)
    } else if (what === 'up') {
      started.resolve(group)
    } else if (what === 'fail') {
      const code = /^E[A-Z0-9]{1,30}$/.test(second) ? second : 'failed'
      finish(undefined, notRun(code, `${FAILURES[first] ?? 'it could not be started'} (${code})`))
    } else if (what === 'end') {
      state.end = [first, second, third]
      if (streams.stdout.end !== undefined && streams.stderr.end !== undefined)
        finish(result(numberOf(first), numberOf(second), third === '1'))
    }
  }
  const onText = async (stream: StreamName, text: string): Promise<void> => {
    const state = streams[stream]
    for (const piece of state.marked.push(text)) {
      if ('words' in piece) onWords(stream, piece.words)
      // What a profile of the image says comes before the command, and what is left behind may speak after it.
      else if (state.hasBegun && state.end === undefined && !finished)
        await queue.push({ type: `${stream}_delta`, data: piece.text })
    }
  }

  return {
    callbacks: {
      onStdout: (text: string) => onText('stdout', text),
      onStderr: (text: string) => onText('stderr', text),
    },
    follow: (handle: CommandHandle) => {
      forgetOutput(handle)
      leave = () => void handle.disconnect().catch(() => undefined)
      if (finished) leave()
      handle.wait().then(
        () => finish(undefined, lost(new Error('the command ended without a word of its supervisor'))),
        (error: unknown) => {
          const { exitCode, error: said = '' } = error as { readonly exitCode?: unknown; readonly error?: string }
          // The supervisor itself was killed by something inside; what it started may live on, and is killed by whoever reads this.
          if (exitCode === -1 && /signal: killed/.test(said)) finish(result(0, os.constants.signals.SIGKILL, false))
          else if (typeof exitCode === 'number')
            finish(undefined, lost(new Error(`its supervisor ended with ${exitCode}`)))
          else finish(undefined, lost(error))
        },
      )
      return {
        started: started.promise,
        events: queue.events(),
        leave: () => finish(undefined, new WorkerFault('left', 'nobody reads on')),
        fail: (error: Error) => finish(undefined, error),
      }
    },
  }
}

function numberOf(text: string): number {
  return /^\d{1,9}$/.test(text) ? Number(text) : 0
}
