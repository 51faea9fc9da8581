/** Sandboxes behind a wall of our own: an empty file system with what is needed put in, no network, and the filter. */
import { mkdirSync } from 'node:fs'
import path from 'node:path'
import type { StartedSandbox, StartRequest } from '../backend.ts'
import type { WorkerPipes, WorkerSettings } from '../worker/settings.ts'
import { workerFile } from '../worker-file.ts'
import { bubblewrapOptions, type SandboxMount } from './bubblewrap-args.ts'
import type { Bubblewrap } from './bubblewrap-check.ts'
import { INSIDE, INSIDE_PROXY, INSIDE_USER, writeOwnFiles } from './inside.ts'
import type { Launchers } from './launchers.ts'
import { type LimitSupport, memoryFolderMb } from './limits.ts'
import { seccompFilter } from './seccomp-filter.ts'
import type { SystemView } from './system-view.ts'
import { startWalled } from './walled-process.ts'

/** What all sandboxes of a backend have in common. */
export interface BubblewrapEngine {
  readonly bubblewrap: Bubblewrap
  readonly system: SystemView
  readonly launchers: Launchers
  readonly limits: LimitSupport
  /** Shown inside, besides the working folder. */
  readonly mounts: readonly SandboxMount[]
  /** A folder of the caller's; by default each sandbox has its own, which ends with it. */
  readonly workingFolder: SandboxMount | undefined
}

/** One thread for V8 instead of four, and no settings of OpenSSL, of which the worker needs nothing: a start waits for both. */
const NODE_OPTIONS = ['--v8-pool-size=1', '--openssl-config=/dev/null']
/** `/tmp` and `/dev/shm`, each. */
const TEMP_MB = 1024
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/** @throws SandboxError `SALLYPORT_SANDBOX_CREATE_FAILED` */
export async function startBubblewrap(engine: BubblewrapEngine, request: StartRequest): Promise<StartedSandbox> {
  const [control, egress, own, work] = ['control', 'egress', 'etc', 'work'].map((name) =>
    path.join(request.runtimeFolder, name),
  ) as [string, string, string, string]
  const working = engine.workingFolder ?? { hostPath: work, path: INSIDE.workspace, writable: true }
  const worker = await workerFile()
  for (const folder of [control, egress, work]) mkdirSync(folder, { recursive: true, mode: 0o700 })
  const names = writeOwnFiles(own, working.path)
  const options = bubblewrapOptions({
    system: engine.system,
    ownFiles: { folder: own, names },
    mounts: [...engine.mounts, working],
    node: process.execPath,
    worker,
    controlFolder: control,
    egressFolder: egress,
    workingFolder: working.path,
    tempBytes: engine.bubblewrap.hasSize ? memoryFolderMb(TEMP_MB, 2, request.memoryLimitMb) * 1024 ** 2 : undefined,
  })
  return startWalled(
    {
      launchers: engine.launchers,
      bubblewrap: engine.bubblewrap,
      limits: engine.limits,
      options,
      filter: seccompFilter(engine.bubblewrap.architecture),
      command: [INSIDE.node, ...NODE_OPTIONS, INSIDE.worker, '-'],
      order: (pipes) => settingsFor(request, engine, working, pipes),
      rootDir: working.path,
      socketPath: path.join(control, 'worker.sock'),
    },
    request,
  )
}

function settingsFor(
  request: StartRequest,
  engine: BubblewrapEngine,
  working: SandboxMount,
  pipes: WorkerPipes,
): WorkerSettings {
  return {
    token: request.workerToken,
    listen: { path: INSIDE.workerSocket },
    roots: [
      { path: working.path, writable: true },
      { path: '/tmp', writable: true },
      ...engine.mounts.map(({ path, writable }) => ({ path, writable })),
    ],
    env: {
      PATH,
      HOME: working.path,
      USER: INSIDE_USER.name,
      LOGNAME: INSIDE_USER.name,
      LANG: 'C.UTF-8',
      TMPDIR: '/tmp',
      ...request.env,
    },
    pipes,
    forward: [{ ...INSIDE_PROXY, path: INSIDE.gatewaySocket }],
    ...(request.timeoutMs !== undefined && { timeToLiveMs: request.timeoutMs }),
    ...(request.probe !== undefined && { probe: request.probe }),
    announce: true,
    endWithStdin: true,
  }
}
