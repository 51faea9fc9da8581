/** One command from its start to its end: a process group of its own, its three streams, its deadline. Knows nothing of HTTP. */
import childProcess, { type ChildProcess } from 'node:child_process'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import type { Readable, Writable } from 'node:stream'
import type { ChildPipe, ChildPipes } from './child-pipes.ts'
import { Fault } from './fault.ts'
import { killTree, MARK, signalGroup } from './process-tree.ts'
import type { StreamName } from './wire.ts'

/** What to run, checked. */
export interface RunCommand {
  readonly file: string
  readonly args: readonly string[]
  readonly cwd: string
  readonly env: Readonly<Record<string, string>>
  readonly timeoutMs: number | undefined
}

/** How a command ended. */
export interface RunEnd {
  readonly exitCode: number
  readonly signal: string | undefined
  readonly timedOut: boolean
  readonly cancelled: boolean
  readonly durationMs: number
}

/** A command that runs. */
export interface Run {
  /** Undefined when it reads nothing. */
  readonly stdin: Writable | undefined
  /** When no process of the group is left, whether its output was read or not. */
  readonly exited: Promise<void>
  /** After its last output. */
  readonly ended: Promise<RunEnd>
  readonly pause: () => void
  readonly resume: () => void
  /** To the process group; nothing once it has ended. */
  readonly signal: (signal: NodeJS.Signals) => void
  /** Kills all of it. */
  readonly cancel: () => void
}

/** Where a run gets what it needs. */
export interface RunOptions {
  readonly pipes: ChildPipes
  /** Unique on the machine, for {@link MARK}. */
  readonly mark: string
  readonly stdin: boolean
  readonly onOutput: (stream: StreamName, bytes: Buffer) => void
}

// After the command's end its streams may stay open, held by a process that it left behind. What the command itself wrote is read when
// nothing has come for 100 ms; or else after a second of reading, or as much as no pipe holds. Time in which the reader waits does not count.
const TICK_MS = 50
const QUIET_TICKS = 2
const MAX_TICKS = 20
const MAX_LATE_BYTES = 2 * 1024 * 1024

// Output of processes that were left behind is read and thrown away, so that they do not die of it; the oldest lose that.
const MAX_LEFT_BEHIND = 64
const leftBehind = new Set<Readable>()

/**
 * Starts a command.
 *
 * @throws Fault with the errno when it cannot be started
 */
export async function startRun(command: RunCommand, options: RunOptions): Promise<Run> {
  const pipes = await takePipes(options)
  const started = process.hrtime.bigint()
  let child: ChildProcess
  try {
    child = await spawnChild(command, options, pipes)
  } catch (error) {
    for (const pipe of [pipes?.stdout, pipes?.stderr]) if (pipe) fs.closeSync(pipe.readFd)
    if (pipes?.stdin) fs.closeSync(pipes.stdin.writeFd)
    throw error
  } finally {
    for (const pipe of [pipes?.stdout, pipes?.stderr]) if (pipe) fs.closeSync(pipe.writeFd)
    if (pipes?.stdin) fs.closeSync(pipes.stdin.readFd)
  }
  return follow(child, command, options, streamsOf(child, pipes), started)
}

interface RunPipes {
  readonly stdin: ChildPipe | undefined
  readonly stdout: ChildPipe
  readonly stderr: ChildPipe
}

interface RunStreams {
  readonly stdin: Writable | undefined
  readonly outputs: readonly (readonly [StreamName, Readable])[]
}

async function takePipes({ pipes, stdin }: RunOptions): Promise<RunPipes | undefined> {
  const taken: ChildPipe[] = []
  for (let index = 0; index < (stdin ? 3 : 2); index++) {
    const pipe = await pipes.take()
    if (pipe !== undefined) taken.push(pipe)
  }
  const [stdout, stderr, input] = taken
  if (stdout !== undefined && stderr !== undefined && (input !== undefined || !stdin))
    return { stdout, stderr, stdin: input }
  for (const { readFd, writeFd } of taken) [readFd, writeFd].forEach((fd) => fs.closeSync(fd))
  return undefined
}

async function spawnChild(
  command: RunCommand,
  options: RunOptions,
  pipes: RunPipes | undefined,
): Promise<ChildProcess> {
  if (!fs.statSync(command.cwd, { throwIfNoEntry: false })?.isDirectory())
    throw new Fault('ENOENT', 'the working folder does not exist')
  let child: ChildProcess
  try {
    child = childProcess.spawn(command.file, command.args, {
      cwd: command.cwd,
      env: { ...command.env, [MARK]: options.mark },
      // A session and process group of its own: a signal to the group reaches all of it and nothing else.
      detached: true,
      stdio: [
        options.stdin ? (pipes?.stdin?.readFd ?? 'pipe') : 'ignore',
        pipes?.stdout.writeFd ?? 'pipe',
        pipes?.stderr.writeFd ?? 'pipe',
      ],
    })
  } catch (error) {
    // Node reports some failures by an event and throws others.
    throw startFault(error as NodeJS.ErrnoException, command.file)
  }
  return new Promise((resolve, reject) => {
    child.once('error', (error: NodeJS.ErrnoException) => reject(startFault(error, command.file)))
    child.once('spawn', () => resolve(child))
  })
}

function startFault(error: NodeJS.ErrnoException, file: string): Fault {
  const reasons: Readonly<Record<string, string>> = {
    ENOENT: 'no such program',
    EACCES: 'may not be executed',
    ENOEXEC: 'not a program',
    E2BIG: 'arguments and environment are too long',
    EAGAIN: 'no room for another process',
  }
  const code = error.code ?? 'EINVAL'
  return new Fault(code, `cannot run \`${file.slice(0, 200)}\`: ${reasons[code] ?? code}`)
}

function streamsOf(child: ChildProcess, pipes: RunPipes | undefined): RunStreams {
  // The out-of-memory killer should meet the command before the worker.
  try {
    fs.writeFileSync(`/proc/${child.pid ?? 0}/oom_score_adj`, '500')
  } catch {
    // Gone already, or no such thing here.
  }
  if (pipes === undefined) {
    const outputs = [['stdout', child.stdout] as const, ['stderr', child.stderr] as const]
    return {
      stdin: child.stdin ?? undefined,
      outputs: outputs.flatMap(([name, stream]) => (stream === null ? [] : [[name, stream] as const])),
    }
  }
  const reader = (fd: number): Readable => new net.Socket({ fd, readable: true, writable: false })
  return {
    stdin: pipes.stdin && new net.Socket({ fd: pipes.stdin.writeFd, readable: false, writable: true }),
    outputs: [
      ['stdout', reader(pipes.stdout.readFd)],
      ['stderr', reader(pipes.stderr.readFd)],
    ],
  }
}

function follow(
  child: ChildProcess,
  command: RunCommand,
  options: RunOptions,
  streams: RunStreams,
  started: bigint,
): Run {
  const leader = child.pid ?? 0
  let exited = false
  let timedOut = false
  let cancelled = false
  let paused = false
  let bytes = 0

  const killAll = (): void => {
    if (!exited) killTree(leader, options.mark)
  }
  const deadline =
    command.timeoutMs === undefined
      ? undefined
      : setTimeout(() => {
          timedOut = true
          killAll()
        }, command.timeoutMs)

  // A command that does not read its stdin, or ends before, is no fault.
  streams.stdin?.on('error', () => undefined)
  const open = new Set<Readable>()
  for (const [name, stream] of streams.outputs) {
    open.add(stream)
    stream.on('data', (chunk: Buffer) => {
      bytes += chunk.length
      if (open.has(stream)) options.onOutput(name, chunk)
    })
    stream.on('error', () => undefined)
    stream.on('close', () => open.delete(stream))
  }

  let setGone: () => void = () => undefined
  const gone = new Promise<void>((resolve) => (setGone = resolve))
  const ended = new Promise<RunEnd>((resolve) => {
    child.once('exit', (exitCode, signal) => {
      exited = true
      clearTimeout(deadline)
      // What slipped out of the group while it was killed.
      if (timedOut || cancelled) killTree(undefined, options.mark)
      setGone()
      streams.stdin?.destroy()
      const durationMs = Math.round(Number(process.hrtime.bigint() - started) / 1e6)
      const number = signal === null ? 0 : os.constants.signals[signal]
      const end: RunEnd = {
        exitCode: exitCode ?? 128 + number,
        signal: signal ?? undefined,
        timedOut,
        cancelled,
        durationMs,
      }
      lastOutput(
        open,
        () => ({ bytes, paused }),
        () => resolve(end),
      )
    })
  })

  return {
    stdin: streams.stdin,
    exited: gone,
    ended,
    pause() {
      paused = true
      for (const stream of open) stream.pause()
    },
    resume() {
      paused = false
      for (const stream of open) stream.resume()
    },
    signal(signal) {
      if (!exited) signalGroup(leader, signal)
    },
    cancel() {
      if (exited) return
      cancelled = true
      killAll()
    },
  }
}

/** Calls back when both streams are at their end, or when only a process left behind can still be writing. */
function lastOutput(open: Set<Readable>, progress: () => { bytes: number; paused: boolean }, done: () => void): void {
  const atExit = progress().bytes
  let seen = atExit
  let quiet = 0
  let ticks = 0
  const finish = (): void => {
    clearInterval(timer)
    for (const stream of open) leaveBehind(stream)
    open.clear()
    done()
  }
  const timer = setInterval(() => {
    const { bytes, paused } = progress()
    quiet = paused || bytes !== seen ? 0 : quiet + 1
    ticks += paused ? 0 : 1
    seen = bytes
    if (quiet >= QUIET_TICKS || ticks >= MAX_TICKS || bytes - atExit > MAX_LATE_BYTES) finish()
  }, TICK_MS)
  if (open.size === 0) {
    finish()
    return
  }
  for (const stream of open)
    stream.once('close', () => {
      if (open.size === 0) finish()
    })
}

function leaveBehind(stream: Readable): void {
  leftBehind.add(stream)
  stream.once('close', () => leftBehind.delete(stream))
  stream.resume()
  const [oldest] = leftBehind
  if (leftBehind.size > MAX_LEFT_BEHIND) oldest?.destroy()
}
