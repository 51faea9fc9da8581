/**
 * Commands as plain processes of this machine, with nothing around them. They are told where the gateway is, and may ignore it: for development, and for
 * machines that are a sandbox already.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdir } from 'node:fs/promises'
import path from 'node:path'
import type { Backend, StartedSandbox, StartRequest } from '../backend.ts'
import { SandboxError } from '../sandbox-error.ts'
import { killTree } from '../worker/process-tree.ts'
import type { WorkerSettings } from '../worker/settings.ts'
import { workerFile } from '../worker-file.ts'
import { connectControl } from './control-socket.ts'
import { type LoopbackRelay, startLoopbackRelay } from './loopback-relay.ts'
import { startTimeOf, writeRecord } from './process-record.ts'
import { onlyOnce, Output, startsWithin } from './process-start.ts'
import { attachRecorded, listRecorded } from './recorded-sandboxes.ts'
import { afterMs } from './time-to-live.ts'

/** How they are made. */
export interface PassthroughBackendOptions {
  /** Folder of the runtime folders: that of a sandbox is `<runtimeRoot>/<id>`. */
  readonly runtimeRoot: string
  /** Where commands start, and the `rootDir`; by default each sandbox has a folder of its own, which ends with it. */
  readonly workingFolder?: string
}

const START_TIMEOUT_MS = 60_000
/** For the worker to end what it started, before it is ended itself. */
const STOP_TIMEOUT_MS = 5_000
/** What a command needs of the host's environment; the rest may hold keys and tokens. */
const PASSED_ON = ['PATH', 'HOME', 'USER', 'LOGNAME', 'SHELL', 'LANG', 'LC_ALL', 'TZ', 'TMPDIR']

/** Makes the backend. It refuses limits, which it can't hold. Policies are the provider's to refuse, by `capabilities.enforcement`. */
export function createPassthroughBackend(options: PassthroughBackendOptions): Backend {
  return {
    name: 'passthrough',
    environment: 'basic',
    capabilities: {
      enforcement: 'none',
      streaming: true,
      spawn: true,
      runtimeEgressChange: true,
      memoryLimit: false,
      processLimit: false,
      timeToLive: true,
      attach: true,
      leftOpen: ['everything: commands run as the host’s own user, and obey the gateway only if they want to'],
    },
    canBeSpare: true,
    check: () => Promise.resolve(),
    start: (request) => start(options, request),
    list: () => listRecorded(options.runtimeRoot, 'passthrough'),
    attach: (id) => attachRecorded(path.join(options.runtimeRoot, id), 'passthrough'),
  }
}

async function start(options: PassthroughBackendOptions, request: StartRequest): Promise<StartedSandbox> {
  for (const limit of ['memoryLimitMb', 'maxProcesses'] as const) {
    if (request[limit] !== undefined)
      throw new SandboxError(
        'SALLYPORT_SANDBOX_NOT_SUPPORTED',
        `${limit} can not be enforced by the passthrough backend`,
      )
  }
  const control = path.join(request.runtimeFolder, 'control')
  const rootDir =
    options.workingFolder === undefined ? path.join(request.runtimeFolder, 'work') : path.resolve(options.workingFolder)
  const [worker, relay] = await Promise.all([
    workerFile(),
    startLoopbackRelay(path.join(request.runtimeFolder, 'egress', 'gateway.sock')),
    ...[control, rootDir].map((folder) => mkdir(folder, { recursive: true, mode: 0o700 })),
  ])
  request.undo('relay', relay.close)
  request.signal?.throwIfAborted()

  const child = spawn(process.execPath, [worker, '-'], {
    cwd: rootDir,
    env: hostEnvironment(),
    stdio: ['pipe', 'pipe', 'pipe'],
    detached: true,
  })
  const exited = new Promise<void>((resolve) => {
    child.once('close', () => resolve())
    child.once('error', () => resolve())
  })
  let timeToLive: { readonly cancel: () => void } | undefined
  const stop = onlyOnce(async () => {
    timeToLive?.cancel()
    await Promise.all([end(child, exited), relay.close()])
  })
  request.undo('sandbox', stop)

  const output = new Output(child)
  child.stdin.on('error', () => undefined).write(`${JSON.stringify(settingsFor(request, rootDir, control))}\n`)
  await startsWithin(START_TIMEOUT_MS, request.signal, output, exited, output.ready)
  const { pid = 0 } = child
  const createdAtMs = Date.now()
  await writeRecord(request.runtimeFolder, {
    version: 1,
    backend: 'passthrough',
    id: request.id,
    rootDir,
    pid,
    startTime: (await startTimeOf(pid)) ?? '',
    gatewayPort: relay.port,
    cgroups: [],
    createdAtMs,
    ...(request.timeoutMs !== undefined && { expiresAtMs: createdAtMs + request.timeoutMs }),
    labels: { ...request.labels },
  })
  if (request.timeoutMs !== undefined) timeToLive = afterMs(request.timeoutMs, () => void stop())
  void exited.then(stop)
  return {
    rootDir,
    gateway: addressOf(relay),
    connect: () => connectControl(path.join(control, 'worker.sock')),
    ended: exited,
    stop,
  }
}

function addressOf({ host, port }: LoopbackRelay): { readonly host: string; readonly port: number } {
  return { host, port }
}

function settingsFor(request: StartRequest, rootDir: string, control: string): WorkerSettings {
  return {
    token: request.workerToken,
    listen: { path: path.join(control, 'worker.sock') },
    roots: [{ path: rootDir, writable: true }],
    env: { ...hostEnvironment(), ...request.env },
    ...(request.timeoutMs !== undefined && { timeToLiveMs: request.timeoutMs }),
    announce: true,
    endWithStdin: true,
  }
}

function hostEnvironment(): Record<string, string> {
  return Object.fromEntries(
    PASSED_ON.flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name]]])),
  )
}

/** The worker ends what it started. If something in there ended the worker instead, what it left is found by the variable that it carries. */
async function end(child: ChildProcess, exited: Promise<void>): Promise<void> {
  child.kill('SIGTERM')
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS)
  await exited
  clearTimeout(timer)
  if (child.pid !== undefined) killTree(undefined, `${child.pid}-`)
}
