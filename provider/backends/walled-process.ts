/** The life of a worker that bubblewrap shuts in: started under its limits, waited for, on record, ended. What the wall is made of is its caller's. */
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import type { Readable, Writable } from 'node:stream'
import type { StartedSandbox, StartRequest } from '../backend.ts'
import type { WorkerPipes } from '../worker/settings.ts'
import type { WorkerProbeReport } from '../worker-client.ts'
import { parseProbeReport } from '../worker-client/probe.ts'
import type { Bubblewrap } from './bubblewrap-check.ts'
import { connectControl } from './control-socket.ts'
import type { Launched, Launchers } from './launchers.ts'
import { type LimitSupport, openLimits, type OpenLimits, type ResourceLimits } from './limits.ts'
import { isChildOf, startTimeOf, writeRecord } from './process-record.ts'
import { onlyOnce, Output, startsWithin } from './process-start.ts'
import { afterMs } from './time-to-live.ts'

/** What to start. */
export interface WalledProcess {
  readonly launchers: Launchers
  readonly bubblewrap: Bubblewrap
  readonly limits: LimitSupport
  /** Options of bubblewrap. They name paths of the host, which the sandbox need not know: so they go by descriptor (`--args`), not by argument list. */
  readonly options: readonly string[]
  readonly filter: Buffer
  /** What runs inside. It prints a line `ready`, with the report of a probe if it was asked for one, when the worker answers, and ends with its input. */
  readonly command: readonly string[]
  /** Its first line of input. The pipes are those that it has open. */
  readonly order: (pipes: WorkerPipes) => object
  /** The writable folder, inside. */
  readonly rootDir: string
  /** The worker's, on the host. */
  readonly socketPath: string
}

const FILTER_DESCRIPTOR = 3
const STATUS_DESCRIPTOR = 4
const OPTIONS_DESCRIPTOR = 5
const START_TIMEOUT_MS = 60_000

/** @throws SandboxError `SALLYPORT_SANDBOX_CREATE_FAILED` with the last line that was said */
export async function startWalled(walled: WalledProcess, request: StartRequest): Promise<StartedSandbox> {
  const limits = await openLimits(walled.limits, request.id, request)
  const closeLimits = onlyOnce(limits.close)
  request.undo('limits', closeLimits)
  request.signal?.throwIfAborted()

  const { child, pipes } = launch(walled, limits)
  const exited = new Promise<void>((resolve) => {
    child.once('close', () => resolve())
    child.once('error', () => resolve())
  })
  // Typed for five descriptors at most.
  const stdio: readonly unknown[] = child.stdio
  const status = readStatus(stdio[STATUS_DESCRIPTOR] as Readable)
  let timeToLive: { readonly cancel: () => void } | undefined
  let recording: Promise<void> | undefined
  const stop = onlyOnce(async () => {
    timeToLive?.cancel()
    await end(child, status.latest())
    // Takes what outlived that with it, which would hold the pipes open.
    await closeLimits()
    await Promise.all([exited, recording?.catch(() => undefined)])
  })
  request.undo('sandbox', stop)

  const output = new Output(child)
  const options = [
    ...walled.options,
    '--die-with-parent',
    '--seccomp',
    String(FILTER_DESCRIPTOR),
    '--json-status-fd',
    String(STATUS_DESCRIPTOR),
  ]
  feed(stdio[OPTIONS_DESCRIPTOR] as Writable, `${options.join('\0')}\0`)
  feed(stdio[FILTER_DESCRIPTOR] as Writable, walled.filter)
  // Stays open: its end is the host's end.
  feed(child.stdin, `${JSON.stringify(walled.order(pipes))}\n`, 'keep open')
  request.launched?.()
  // While the worker starts, so that nobody waits for it.
  const recorded = status.pid.then((pid) => (recording = record(pid, walled, limits, request)))
  const [, report] = await startsWithin(
    START_TIMEOUT_MS,
    request.signal,
    output,
    exited,
    Promise.all([recorded, output.ready]),
  )

  walled.launchers.prepare()
  // The worker has this clock too, but a command may have stopped the worker.
  if (request.timeoutMs !== undefined) timeToLive = afterMs(request.timeoutMs, () => void stop())
  void exited.then(() => timeToLive?.cancel())
  return {
    rootDir: walled.rootDir,
    connect: () => connectControl(walled.socketPath),
    announced: true,
    probed: probedOf(report, request),
    ended: exited,
    stop,
  }
}

async function record(
  pid: number,
  { rootDir }: WalledProcess,
  limits: OpenLimits,
  request: StartRequest,
): Promise<void> {
  const createdAtMs = Date.now()
  await writeRecord(request.runtimeFolder, {
    version: 1,
    backend: 'process',
    id: request.id,
    rootDir,
    pid,
    startTime: (await startTimeOf(pid)) ?? '',
    cgroups: [...limits.folders],
    createdAtMs,
    ...(request.timeoutMs !== undefined && { expiresAtMs: createdAtMs + request.timeoutMs }),
    labels: { ...request.labels },
  })
}

/** Undefined for one that makes no sense: the worker is then asked again. */
function probedOf(report: string, { probe }: StartRequest): WorkerProbeReport | undefined {
  if (probe === undefined || report === '') return undefined
  try {
    return parseProbeReport(probe, JSON.parse(report) as Record<string, unknown>)
  } catch {
    return undefined
  }
}

function launch({ launchers, bubblewrap, command }: WalledProcess, limits: OpenLimits): Launched {
  const walled = [bubblewrap.path, '--args', String(OPTIONS_DESCRIPTOR), '--']
  return launchers.launch(limits.joinFiles, [...walled, ...underLimits(limits.resourceLimits), ...command])
}

/**
 * A shell that takes the limit on and gives way to what follows. Shells differ in the letter for processes; one that can't set it ends with 125, unless
 * the limit that it has is lower.
 */
export function underLimits({ tasks }: ResourceLimits): string[] {
  if (tasks === undefined) return []
  const set = `ulimit -u ${tasks} 2>/dev/null || ulimit -p ${tasks} 2>/dev/null`
  const isLower = `[ "$(ulimit -H -u 2>/dev/null || ulimit -H -p)" -le ${tasks} ]`
  return ['/bin/sh', '-c', `${set} || ${isLower} || exit 125; exec "$@"`, 'sallyport']
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
async function end(child: ChildProcess, pid: number | undefined): Promise<void> {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return
  const gone = once(child, 'exit')
  // Not bubblewrap itself, which would be gone before what is inside. Until it has said what it made, that is still in its process group, and may not
  // yet be bound to die with it.
  if (pid !== undefined && (await isChildOf(pid, child.pid))) kill(pid)
  else kill(-child.pid)
  await gone
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It ended by itself.
  }
}
