/** A machine's commands and background processes, as a worker's are. */
import { SandboxError } from '../../sandbox-error.ts'
import type { ExecuteOptions, WorkerBytes, WorkerClient, WorkerCommand, WorkerOutput, WorkerResult } from '../../worker-client.ts' // prettier-ignore
import { bytesOf } from '../../worker-client/call.ts'
import { collect, notRun, outputOf } from '../../worker-client/collect.ts'
import { lost } from '../../worker-client/exchange.ts'
import { DEFAULT_OUTPUT_BYTES, MAX_KEPT_BYTES } from '../../worker/wire.ts'
import { type BackgroundProcess, followProcess } from './background-process.ts'
import { joinCommand, type MachineCommand, startCommand } from './machine-command.ts'
import type { MachineContext } from './machine-context.ts'

type CommandMethods = Pick<
  WorkerClient,
  'execute' | 'spawn' | 'hasProcess' | 'output' | 'wait' | 'writeStdin' | 'closeStdin' | 'signal'
>

/** A request of the platform's own for each; larger ones are split. */
const STDIN_PIECE_BYTES = 64 * 1024
/** How long what was killed may take to be dead. */
const KILLED_MS = 5_000
/** Ended ones that are kept. */
const MAX_ENDED = 64

/** The command methods of a client. */
export function commandMethods(context: MachineContext): CommandMethods & { readonly running: () => number } {
  const { machine, help } = context
  const processes = new Map<string, BackgroundProcess>()
  let running = 0

  const begin = async (command: WorkerCommand, stdin: boolean): Promise<MachineCommand> => {
    const { command: program, args, cwd, env = {}, timeoutMs } = command
    const started = await startCommand(machine, {
      argv: args === undefined ? ['/bin/sh', '-c', program] : [program, ...args],
      folder: cwd === undefined ? context.rootDir : cwd.startsWith('/') ? cwd : `${context.rootDir}/${cwd}`,
      env: { ...(await context.environment()), ...env },
      timeoutMs,
      stdin,
    })
    context.onLoss(started.fail)
    return started
  }
  const killGroup = async (group: number, signal: NodeJS.Signals): Promise<void> => {
    if (group > 1) await help('kill', [signal.replace(/^SIG/, ''), String(group)])
  }

  const execute = async (
    command: WorkerCommand,
    { stdin, onOutput, signal }: ExecuteOptions,
  ): Promise<WorkerResult> => {
    // prettier-ignore
    signal?.throwIfAborted()
    const started = await begin(command, stdin !== undefined)
    let sourceFault: { readonly error: unknown } | undefined
    /** Kills it, and makes sure that it comes to an end. */
    const kill = (): void => {
      const timer = setTimeout(() => started.fail(lost(new Error('what was killed did not end'))), KILLED_MS)
      void started.started
        .then((group) => killGroup(group, 'SIGKILL'))
        .catch(() => undefined)
        .then(() => timer.unref())
    }
    signal?.addEventListener('abort', kill, { once: true })
    if (signal?.aborted === true) kill()
    running++
    try {
      if (stdin !== undefined)
        void feed(started, stdin, true).catch((error: unknown) => {
          sourceFault = { error }
          kill()
        })
      const result = await collect(started.events, command.maxOutputBytes ?? DEFAULT_OUTPUT_BYTES, onOutput)
      // Where the supervisor was killed its command may not be dead.
      if (result.signal === 'SIGKILL') await started.started.then((group) => killGroup(group, 'SIGKILL')).catch(() => undefined) // prettier-ignore
      signal?.throwIfAborted()
      if (sourceFault !== undefined) throw sourceFault.error
      return result
    } catch (error) {
      signal?.throwIfAborted()
      throw sourceFault === undefined ? error : sourceFault.error
    } finally {
      running--
      signal?.removeEventListener('abort', kill)
      context.offLoss(started.fail)
      started.leave()
    }
  }

  /** One that this process started, or another one that still runs. */
  const find = async (id: string): Promise<BackgroundProcess | undefined> => {
    const known = processes.get(id)
    if (known !== undefined) return known
    const [, pid, group, mark] = /^(\d{1,9})-(\d{1,9})-([0-9a-f]{24})$/.exec(id) ?? []
    if (pid === undefined || group === undefined || mark === undefined) return undefined
    const list = await machine.commands.list().catch((error: unknown) => Promise.reject(lost(error)))
    // Numbers are given again: only the mark says that it is the same.
    if (!list.some((each) => each.pid === Number(pid) && each.args.some((word) => word.includes(mark))))
      return undefined
    const joined = await joinCommand(machine, Number(pid), mark)
    return joined === undefined ? undefined : keep(id, joined, Number(group), undefined)
  }
  const found = async (id: string): Promise<BackgroundProcess> => {
    const process = await find(id)
    if (process !== undefined) return process
    throw new SandboxError('SALLYPORT_SANDBOX_NOT_FOUND', 'no such process in this sandbox')
  }
  const keep = (id: string, command: MachineCommand, group: number, limit: number | undefined): BackgroundProcess => {
    running++
    const process = followProcess(command, group, context.outputBudget, limit, () => {
      running--
      context.offLoss(command.fail)
    })
    processes.set(id, process)
    for (const [old, each] of processes) {
      if (processes.size <= MAX_ENDED) break
      if (!each.hasEnded()) continue
      each.forget()
      processes.delete(old)
    }
    return process
  }

  return {
    running: () => running,
    execute: (command, options = {}) => execute(command, options),
    async spawn(command) {
      const started = await begin(command, true)
      const group = await started.started
      const id = `${started.handle.pid}-${group}-${started.mark}`
      keep(id, started, group, command.maxOutputBytes)
      return id
    },
    hasProcess: async (id) => (await find(id)) !== undefined,
    async *output(id, options = {}): AsyncGenerator<WorkerOutput> {
      for await (const event of (await found(id)).events(options.signal)) {
        if (event.type === 'stdout_delta' || event.type === 'stderr_delta') yield outputOf(event)
        else if (event.type === 'lost') yield { stream: event.stream, data: '', lostBytes: event.bytes }
        else if (event.type === 'result') return
      }
    },
    wait: async (id, options = {}) => collect((await found(id)).events(options.signal), MAX_KEPT_BYTES),
    writeStdin: async (id, data) => {
      const process = await found(id)
      if (process.hasEnded()) throw notRun('ended', 'the process has ended')
      await feed(process.command, data, false)
    },
    closeStdin: async (id) => {
      const { command, hasEnded } = await found(id)
      await command.handle.closeStdin().catch((error: unknown) => {
        if (!hasEnded()) throw lost(error)
      })
    },
    signal: async (id, signal) => {
      const process = await found(id)
      if (!process.hasEnded()) await killGroup(process.group, signal)
    },
  }
}

/** Writes to a command as fast as it reads. One that reads no more is no fault; a source that throws is. */
async function feed({ handle }: MachineCommand, data: WorkerBytes, isAll: boolean): Promise<void> {
  for await (const chunk of bytesOf(data)) {
    for (let at = 0; at < chunk.length; at += STDIN_PIECE_BYTES) {
      try {
        await handle.sendStdin(chunk.subarray(at, at + STDIN_PIECE_BYTES), { requestTimeoutMs: 0 })
      } catch {
        return
      }
    }
  }
  if (isAll) await handle.closeStdin().catch(() => undefined)
}
