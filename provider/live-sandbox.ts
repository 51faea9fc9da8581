/** A sandbox that runs: what the caller holds. Passes on to the worker, and keeps the state of its life. */
import type { EgressPolicy } from '../policies/index.ts'
import type { StartedSandbox } from './backend.ts'
import { copyIn, copyOut } from './copy-files.ts'
import type { EgressLink } from './egress/egress.ts'
import { checkKnown, type KnownOptions } from './known-options.ts'
import { liveProcess } from './live-process.ts'
import type { Sandbox, SandboxEnvironment, SandboxExecOptions, SandboxStatus } from './sandbox.ts'
import { SandboxError } from './sandbox-error.ts'
import type { WorkerClient, WorkerCommand } from './worker-client.ts'

/** What a running sandbox consists of. */
export interface LiveParts {
  readonly id: string
  readonly environment: SandboxEnvironment
  readonly client: WorkerClient
  readonly started: StartedSandbox
  readonly link: EgressLink
  /** @throws SandboxError for a policy that is not enforced here */
  readonly checkPolicy: (policy: EgressPolicy) => void
  /** Keeps another policy where another process finds it. */
  readonly keepPolicy: (policy: EgressPolicy) => Promise<void>
  /** Takes away what the host keeps of it. Called once the sandbox is gone. */
  readonly forget: () => Promise<void>
}

/** Makes it. When the sandbox ends by itself, everything is taken away as by `destroy`. */
export function liveSandbox(parts: LiveParts): Sandbox {
  const { id, client, started, link } = parts
  let running = 0
  let destroying: Promise<void> | undefined
  let retry: (() => Promise<void>) | undefined

  /** Fails a call on a sandbox that is gone, also one that was under way when it went. */
  const alive = async <T>(action: () => Promise<T>): Promise<T> => {
    if (destroying !== undefined) throw destroyed(id)
    try {
      return await action()
    } catch (error) {
      const isOfEnd =
        error instanceof SandboxError
          ? error.code === 'SALLYPORT_SANDBOX_CONNECTION_LOST'
          : error instanceof Error && 'syscall' in error
      // It changed meanwhile.
      if ((destroying as unknown) !== undefined && isOfEnd) throw destroyed(id, error)
      throw error
    }
  }
  const busy = async <T>(action: () => Promise<T>): Promise<T> => {
    running++
    try {
      return await alive(action)
    } finally {
      running--
    }
  }

  const about = <T>(path: string | undefined, action: () => Promise<T>): Promise<T> =>
    alive(() =>
      action().catch((error: unknown) => {
        throw naming(path, error)
      }),
    )

  const takeAway = async (): Promise<void> => {
    // First of all, and not behind anything that may hang: from here on nothing gets out.
    const closed = link.close()
    try {
      await Promise.all([closed, started.stop()])
      await parts.forget()
    } catch (error) {
      // It stays destroyed for the caller, but the next call tries again.
      retry = takeAway
      throw error
    }
  }
  const destroy = (): Promise<void> => {
    const action = destroying === undefined ? takeAway : retry
    retry = undefined
    return (destroying = action?.() ?? destroying ?? Promise.resolve())
  }

  void started.ended.then(() => {
    // Whoever calls `destroy` hears of a failure; until then it is not lost, since the folder stays and `reap` finds it.
    if (destroying === undefined) destroy().catch(() => undefined)
  })

  return {
    id,
    get status(): SandboxStatus {
      if (destroying !== undefined) return 'destroyed'
      return running > 0 ? 'busy' : 'ready'
    },
    rootDir: started.rootDir,
    environment: parts.environment,
    exec: async (command, argv, options = {}) => {
      checkKnown('a command', options, EXEC_OPTIONS)
      const { stdin, onOutput, signal } = options
      const asked = commandOf(command, argv, options)
      return busy(() => client.execute(asked, { stdin, onOutput, signal }))
    },
    spawn: async (command, argv, options = {}) => {
      checkKnown('a background process', options, SPAWN_OPTIONS)
      const asked = commandOf(command, argv, options)
      return alive(async () => {
        const process = liveProcess(client, await client.spawn(asked), alive)
        if (options.stdin === undefined) return process
        await process.write(options.stdin)
        await process.closeStdin()
        return process
      })
    },
    attachProcess: (processId) =>
      alive(async () => {
        if (await client.hasProcess(processId)) return liveProcess(client, processId, alive)
        throw new SandboxError('SALLYPORT_SANDBOX_NOT_FOUND', `there is no process \`${processId}\` in \`${id}\``)
      }),
    writeFile: (path, content) => about(path, () => client.writeFile(path, content)),
    readFile: (path) => about(path, () => client.readFile(path)),
    readFileStream: async function* (path) {
      if (destroying !== undefined) throw destroyed(id)
      try {
        yield* client.readFileStream(path)
      } catch (error) {
        throw naming(path, error)
      }
    },
    listFiles: (path) => about(path, () => client.listFiles(path)),
    stat: (path) => about(path, () => client.stat(path)),
    mkdir: (path) => about(path, () => client.mkdir(path)),
    remove: (path) => about(path, () => client.remove(path)),
    move: (from, to) => about(from, () => client.move(from, to)),
    copyIn: (hostPath, path) => alive(() => copyIn(client, hostPath, path)),
    copyOut: (path, hostPath) => alive(() => copyOut(client, path, hostPath)),
    setEgress: (policy) =>
      alive(async () => {
        parts.checkPolicy(policy)
        await link.setPolicy(policy)
        await parts.keepPolicy(policy)
      }),
    destroy,
    [Symbol.asyncDispose]: destroy,
  }
}

const FILE_FAILED = 'SALLYPORT_SANDBOX_FILE_FAILED'
const MAX_SHOWN_PATH = 200

type SpawnOptions = Omit<SandboxExecOptions, 'signal' | 'onOutput'>

const SPAWN_OPTIONS: KnownOptions<SpawnOptions> = {
  cwd: true,
  env: true,
  timeout: true,
  stdin: true,
  maxOutputBytes: true,
}
const EXEC_OPTIONS: KnownOptions<SandboxExecOptions> = { ...SPAWN_OPTIONS, signal: true, onOutput: true }

/** @throws TypeError for what can't be asked for */
function commandOf(command: string, args: readonly string[] | undefined, options: SpawnOptions): WorkerCommand {
  if (args !== undefined && !Array.isArray(args))
    throw new TypeError('the second argument is the list of the command’s own arguments; options come third')
  const { cwd, env, timeout, maxOutputBytes } = options
  if (timeout !== undefined && !(Number.isSafeInteger(timeout) && timeout >= 1)) {
    throw new TypeError('`timeout` is a whole number of milliseconds, 1 or more; leave it out for none')
  }
  if (maxOutputBytes !== undefined && !(Number.isSafeInteger(maxOutputBytes) && maxOutputBytes >= 0)) {
    throw new TypeError('`maxOutputBytes` is a whole number, 0 or more')
  }
  return { command, args, cwd, env, timeoutMs: timeout, maxOutputBytes }
}

/** A fault of a file says which. */
function naming(path: string | undefined, error: unknown): unknown {
  const isOfFile = error instanceof SandboxError && error.code === FILE_FAILED
  if (!isOfFile || typeof path !== 'string') return error
  const shown = path.slice(0, MAX_SHOWN_PATH).replaceAll(/[\p{C}`]/gu, '?')
  const { message, cause, outcome } = error
  return new SandboxError(FILE_FAILED, `\`${shown}\`: ${message}`, { cause, outcome })
}

function destroyed(id: string, cause?: unknown): SandboxError {
  return new SandboxError('SALLYPORT_SANDBOX_DESTROYED', `the sandbox \`${id}\` is destroyed`, {
    cause,
    outcome: cause === undefined ? 'known' : 'unknown',
  })
}
