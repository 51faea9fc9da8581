/** Starts a worker behind bubblewrap, and ends it. What is shut in there is in the arguments and in the filter; here is only their life. */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdir } from 'node:fs/promises'
import path from 'node:path'
import type { Readable, Writable } from 'node:stream'
import type { StartedSandbox, StartRequest } from '../backend.ts'
import type { WorkerSettings } from '../worker/settings.ts'
import { workerFile } from '../worker-file.ts'
import { bubblewrapOptions, insideCommand, type SandboxMount } from './bubblewrap-args.ts'
import type { Bubblewrap } from './bubblewrap-check.ts'
import { connectControl } from './control-socket.ts'
import { INSIDE, INSIDE_PROXY, INSIDE_USER, writeOwnFiles } from './inside.ts'
import { type LimitSupport, openLimits, type OpenLimits } from './limits.ts'
import { isChildOf, startTimeOf, writeRecord } from './process-record.ts'
import { onlyOnce, Output, startsWithin } from './process-start.ts'
import { seccompFilter } from './seccomp-filter.ts'
import type { SystemView } from './system-view.ts'
import { afterMs } from './time-to-live.ts'

/** What all sandboxes of a backend have in common. */
export interface BubblewrapEngine {
  readonly bubblewrap: Bubblewrap
  readonly system: SystemView
  readonly limits: LimitSupport
  /** Shown inside, besides the working folder. */
  readonly mounts: readonly SandboxMount[]
  /** A folder of the caller's; by default each sandbox has its own, which ends with it. */
  readonly workingFolder: SandboxMount | undefined
}

const SECCOMP_DESCRIPTOR = 3
const STATUS_DESCRIPTOR = 4
const OPTIONS_DESCRIPTOR = 5
const TEMP_BYTES = 1024 ** 3
const START_TIMEOUT_MS = 60_000
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/** No core files: they are written by the host's own handler, with the host's rights. Then into the groups, and only from in there on. */
const LAUNCHER =
  'ulimit -c 0\ngroups=$1\nshift\nwhile [ "$groups" -gt 0 ]; do echo 0 > "$1" || exit 125; shift; groups=$((groups - 1)); done\nexec "$@"'

/** @throws SandboxError `SALLYPORT_SANDBOX_CREATE_FAILED` with the last line that was said */
export async function startBubblewrap(engine: BubblewrapEngine, request: StartRequest): Promise<StartedSandbox> {
  const { runtimeFolder } = request
  const folders = {
    control: path.join(runtimeFolder, 'control'),
    egress: path.join(runtimeFolder, 'egress'),
    own: path.join(runtimeFolder, 'etc'),
    work: path.join(runtimeFolder, 'work'),
  }
  const working = engine.workingFolder ?? { hostPath: folders.work, path: INSIDE.workspace, writable: true }
  const [worker, names] = await Promise.all([
    workerFile(),
    writeOwnFiles(folders.own, working.path),
    ...[folders.control, folders.egress, folders.work].map((folder) => mkdir(folder, { recursive: true, mode: 0o700 })),
  ])
  const limits = await openLimits(engine.limits, request.id, request)
  const closeLimits = onlyOnce(limits.close)
  request.undo('limits', closeLimits)
  request.signal?.throwIfAborted()

  const options = bubblewrapOptions({
    system: engine.system,
    ownFiles: { folder: folders.own, names },
    mounts: [...engine.mounts, working],
    node: process.execPath,
    worker,
    controlFolder: folders.control,
    egressFolder: folders.egress,
    workingFolder: working.path,
    tempBytes: engine.bubblewrap.hasSize ? TEMP_BYTES : undefined,
    seccompDescriptor: SECCOMP_DESCRIPTOR,
    statusDescriptor: STATUS_DESCRIPTOR,
  })
  const child = launch(engine.bubblewrap, limits)
  const exited = new Promise<void>((resolve) => {
    child.once('close', () => resolve())
    child.once('error', () => resolve())
  })
  // Typed for five descriptors at most.
  const stdio: readonly unknown[] = child.stdio
  const status = readStatus(stdio[STATUS_DESCRIPTOR] as Readable)
  const stop = onlyOnce(async () => {
    timeToLive?.cancel()
    await end(child, status.latest(), exited)
    await closeLimits()
  })
  let timeToLive: { readonly cancel: () => void } | undefined
  request.undo('sandbox', stop)

  const output = new Output(child)
  feed(stdio[OPTIONS_DESCRIPTOR] as Writable, options.join('\0') + '\0')
  feed(stdio[SECCOMP_DESCRIPTOR] as Writable, seccompFilter(engine.bubblewrap.architecture))
  feed(child.stdin, `${JSON.stringify(settingsFor(request, engine, working))}\n`, 'keep open')
  const [pid] = await startsWithin(
    START_TIMEOUT_MS,
    request.signal,
    output,
    exited,
    Promise.all([status.pid, output.ready]),
  )

  const createdAtMs = Date.now()
  await writeRecord(runtimeFolder, {
    version: 1,
    backend: 'process',
    id: request.id,
    rootDir: working.path,
    pid,
    startTime: (await startTimeOf(pid)) ?? '',
    cgroups: [...limits.folders],
    createdAtMs,
    ...(request.timeoutMs !== undefined && { expiresAtMs: createdAtMs + request.timeoutMs }),
    labels: { ...request.labels },
  })
  if (request.timeoutMs !== undefined) timeToLive = afterMs(request.timeoutMs, () => void stop())
  void exited.then(() => timeToLive?.cancel())
  return {
    rootDir: working.path,
    connect: () => connectControl(path.join(folders.control, 'worker.sock')),
    ended: exited,
    stop,
  }
}

function launch(bubblewrap: Bubblewrap, limits: OpenLimits): ChildProcess {
  const groups = [String(limits.joinFiles.length), ...limits.joinFiles]
  const command = [bubblewrap.path, '--args', String(OPTIONS_DESCRIPTOR), '--', ...insideCommand(limits.resourceLimits)]
  return spawn('/bin/sh', ['-c', LAUNCHER, 'sallyport', ...groups, ...command], {
    // Nothing of the host's environment.
    env: { PATH },
    stdio: Array<'pipe'>(OPTIONS_DESCRIPTOR + 1).fill('pipe'),
    // A Ctrl-C in the terminal is for the host, which then ends its sandboxes in its own way.
    detached: true,
  })
}

function settingsFor(request: StartRequest, engine: BubblewrapEngine, working: SandboxMount): WorkerSettings {
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
    forward: [{ ...INSIDE_PROXY, path: INSIDE.gatewaySocket }],
    ...(request.timeoutMs !== undefined && { timeToLiveMs: request.timeoutMs }),
    announce: true,
    endWithStdin: true,
  }
}

/** Bytes for a descriptor of the child. That it is gone shows elsewhere. */
function feed(stream: Writable | null, bytes: string | Uint8Array, then: 'end' | 'keep open' = 'end'): void {
  stream?.on('error', () => undefined)
  stream?.write(bytes)
  if (then === 'end') stream?.end()
}

interface Status {
  /** Number, on the host, of the process with number 1 inside: when it ends, the kernel ends everything in there. */
  readonly pid: Promise<number>
  readonly latest: () => number | undefined
}

/** bubblewrap writes JSON objects; the first says which process it made. */
function readStatus(stream: Readable): Status {
  let text = ''
  let latest: number | undefined
  const pid = new Promise<number>((resolve) => {
    stream.on('data', (chunk: Buffer) => {
      if (latest !== undefined) return
      text = (text + chunk.toString('latin1')).slice(0, 4096)
      const found = /"child-pid"\s*:\s*(\d+)\D/.exec(text)?.[1]
      if (found === undefined) return
      latest = Number(found)
      resolve(latest)
    })
    stream.on('error', () => undefined)
  })
  return { pid, latest: () => latest }
}

/** Ends the first process inside, with it all others, and waits for bubblewrap, which waits for that. */
async function end(child: ChildProcess, pid: number | undefined, exited: Promise<void>): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) {
    // Not bubblewrap itself, which would be gone before what is inside.
    if (pid !== undefined && (await isChildOf(pid, child.pid))) kill(pid)
    else child.kill('SIGKILL')
  }
  await exited
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It ended by itself.
  }
}
