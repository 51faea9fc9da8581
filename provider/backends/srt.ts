/**
 * Sandboxes of `@anthropic-ai/sandbox-runtime` (an optional peer), with the filter around them on Linux: the runtime itself closes unix sockets alone.
 *
 * Tried on Linux. On macOS, where it uses Seatbelt, this has been typed and never run: the project has no such machine to test on.
 */
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import type { StartedSandbox, StartRequest } from '../backend.ts'
import { SandboxError } from '../sandbox-error.ts'
import type { WorkerSettings } from '../worker/settings.ts'
import { workerFile } from '../worker-file.ts'
import type { SandboxMount } from './bubblewrap-args.ts'
import type { Bubblewrap } from './bubblewrap-check.ts'
import { connectControl } from './control-socket.ts'
import type { Launchers } from './launchers.ts'
import type { LimitSupport } from './limits.ts'
import { startTimeOf, writeRecord } from './process-record.ts'
import { onlyOnce, Output, startsWithin } from './process-start.ts'
import { seccompFilter } from './seccomp-filter.ts'
import { type SrtOrder, WORKER_DESCRIPTOR } from './srt-order.ts'
import { afterMs } from './time-to-live.ts'
import { startWalled } from './walled-process.ts'

/** What all sandboxes of a backend have in common. */
export interface SrtEngine {
  /** For the filter; undefined on macOS. */
  readonly bubblewrap: Bubblewrap | undefined
  readonly launchers: Launchers
  readonly limits: LimitSupport
  readonly runtimeRoot: string
  readonly mounts: readonly SandboxMount[]
  readonly workingFolder: SandboxMount | undefined
}

/** What is left open besides what every sandbox of the process tier leaves open. */
export const SRT_GAPS = [
  'the host’s files can be read, except home folders, the runtime folders and a list of known secrets',
  'any program of the host can use the loopback port that leads to the sandbox’s gateway, and so pass for the sandbox',
  'commands can make namespaces of their own',
] as const
/** Of macOS. */
export const SEATBELT_GAPS = [
  'this engine has been typed and never run: no macOS machine was there to test it on',
] as const

const START_TIMEOUT_MS = 60_000
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
/** What holds passwords, keys or other programs' sockets, on either system. */
const SECRETS = [
  '/root',
  '/home',
  '/Users',
  '/etc/shadow',
  '/etc/gshadow',
  '/etc/ssh',
  '/etc/ssl/private',
  '/etc/sudoers',
  '/etc/sudoers.d',
  '/var/lib',
  '/var/log',
  '/run',
  '/boot',
]

/** @throws SandboxError `SALLYPORT_SANDBOX_BACKEND_MISSING` that says which command installs it; `…_NOT_SUPPORTED` for root */
export function checkSrt(): void {
  try {
    import.meta.resolve('@anthropic-ai/sandbox-runtime')
  } catch (cause) {
    throw new SandboxError(
      'SALLYPORT_SANDBOX_BACKEND_MISSING',
      'the sandbox runtime is not installed: `npm install @anthropic-ai/sandbox-runtime`',
      { cause },
    )
  }
  if (os.platform() !== 'linux') return
  // It leaves /proc/sys writable, and the kernel lets the host's user 0 write there without a capability: `core_pattern` is a way out, tried and open.
  if (process.getuid?.() === 0)
    throw new SandboxError(
      'SALLYPORT_SANDBOX_NOT_SUPPORTED',
      'the engine `srt` does not hold for root: use `bubblewrap`, or run as another user',
    )
  const missing = ['socat', 'rg', 'bash'].filter((program) => !isInPath(program))
  if (missing.length > 0)
    throw new SandboxError(
      'SALLYPORT_SANDBOX_BACKEND_MISSING',
      `the sandbox runtime needs ${missing.join(', ')}: \`apt-get install socat ripgrep bash\``,
    )
}

/** @throws SandboxError `SALLYPORT_SANDBOX_CREATE_FAILED` */
export async function startSrt(engine: SrtEngine, request: StartRequest): Promise<StartedSandbox> {
  const [control, egress, work, temporary] = ['control', 'egress', 'work', 'tmp'].map((name) =>
    path.join(request.runtimeFolder, name),
  ) as [string, string, string, string]
  const rootDir = engine.workingFolder?.hostPath ?? work
  const [worker] = await Promise.all([
    workerFile(),
    ...[control, egress, work, temporary].map((folder) => mkdir(folder, { recursive: true, mode: 0o700 })),
  ])
  const writable = [
    rootDir,
    temporary,
    ...engine.mounts.filter((mount) => mount.writable).map(({ hostPath }) => hostPath),
  ]
  const readable = engine.mounts.filter((mount) => !mount.writable).map(({ hostPath }) => hostPath)
  const settings: WorkerSettings = {
    token: request.workerToken,
    listen: { fd: WORKER_DESCRIPTOR },
    roots: [
      ...writable.map((folder) => ({ path: folder, writable: true })),
      ...readable.map((each) => ({ path: each, writable: false })),
    ],
    // The runtime carries 127.0.0.1:3128 to the gateway, so the worker need not.
    env: { PATH, HOME: rootDir, LANG: 'C.UTF-8', TMPDIR: temporary, ...request.env },
    ...(request.timeoutMs !== undefined && { timeToLiveMs: request.timeoutMs }),
    announce: true,
    endWithStdin: true,
  }
  const order: SrtOrder = {
    socketPath: path.join(control, 'worker.sock'),
    gatewaySocket: path.join(egress, 'gateway.sock'),
    node: process.execPath,
    worker,
    filesystem: {
      denyRead: [...new Set([os.homedir(), engine.runtimeRoot, ...SECRETS])].filter((each) => existsSync(each)),
      allowRead: [...new Set([...writable, ...readable, process.execPath, worker])],
      allowWrite: writable,
      denyWrite: [],
    },
    settings,
  }
  const launcher = path.join(import.meta.dirname, `srt-launcher${path.extname(import.meta.filename)}`)
  const command = [process.execPath, launcher]
  if (engine.bubblewrap === undefined) return startUnwalled(command, order, rootDir, request)
  return startWalled(
    {
      launchers: engine.launchers,
      bubblewrap: engine.bubblewrap,
      limits: engine.limits,
      // No wall, which is the runtime's: a process tree that ends as one, and the filter.
      options: [
        '--unshare-user',
        '--unshare-pid',
        '--new-session',
        '--dev-bind',
        '/',
        '/',
        '--proc',
        '/proc',
        '--chdir',
        rootDir,
      ],
      filter: seccompFilter(engine.bubblewrap.architecture, { walls: 'open' }),
      command,
      order: () => order,
      rootDir,
      socketPath: order.socketPath,
    },
    request,
  )
}

/** macOS: a process group without bubblewrap. */
async function startUnwalled(
  command: readonly string[],
  order: SrtOrder,
  rootDir: string,
  request: StartRequest,
): Promise<StartedSandbox> {
  const [program = '', ...args] = command
  const child = spawn(program, args, {
    cwd: rootDir,
    env: { PATH: process.env['PATH'] ?? PATH },
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
    // The end of its input is the end of the worker, which ends what it started.
    child.stdin.end()
    child.kill('SIGTERM')
    await exited
  })
  request.undo('sandbox', stop)
  const output = new Output(child)
  child.stdin.on('error', () => undefined).write(`${JSON.stringify(order)}\n`)
  await startsWithin(START_TIMEOUT_MS, request.signal, output, exited, output.ready)
  const createdAtMs = Date.now()
  const { pid = 0 } = child
  await writeRecord(request.runtimeFolder, {
    version: 1,
    backend: 'process',
    id: request.id,
    rootDir,
    pid,
    startTime: (await startTimeOf(pid)) ?? '',
    cgroups: [],
    createdAtMs,
    ...(request.timeoutMs !== undefined && { expiresAtMs: createdAtMs + request.timeoutMs }),
    labels: { ...request.labels },
  })
  if (request.timeoutMs !== undefined) timeToLive = afterMs(request.timeoutMs, () => void stop())
  return { rootDir, connect: () => connectControl(order.socketPath), ended: exited, stop }
}

function isInPath(program: string): boolean {
  return PATH.split(':').some((folder) => existsSync(path.join(folder, program)))
}
