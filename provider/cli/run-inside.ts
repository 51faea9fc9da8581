/** Runs one command in a sandbox as if it ran here: its streams, signals and terminal are those of this process. */
import { constants } from 'node:os'
import type { Sandbox, SandboxExecResult } from '../sandbox.ts'
import {
  createLeaderReader,
  hasTerminals,
  resizeTerminal,
  signalLeader,
  type TerminalSize,
  underLeader,
  underTerminal,
} from './leader.ts'

/** How it is run. */
export interface RunInsideOptions {
  readonly command: readonly string[]
  /** Working folder, inside. */
  readonly folder: string
  readonly timeoutMs: number | undefined
  /** False: it reads nothing. */
  readonly stdin: boolean
  /** Whether it may have a terminal. */
  readonly tty: boolean
}

/** Passed on. The rest is either fatal, or about the terminal of this process. */
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'] as const

/** So often the same signal is asked for nicely; then everything is killed. */
const PATIENCE = 3

/** Whoever read the output has gone; as a shell would report it. */
const BROKEN_PIPE_EXIT_CODE = 128 + constants.signals.SIGPIPE

/** Waits for its end. @throws SandboxError */
export async function runInside(
  sandbox: Sandbox,
  options: RunInsideOptions,
): Promise<Pick<SandboxExecResult, 'exitCode' | 'timedOut'>> {
  const isTerminal = options.tty && process.stdin.isTTY && process.stdout.isTTY && (await hasTerminals(sandbox))
  const { command, args } = isTerminal ? underTerminal(options.command, sizeHere()) : underLeader(options.command)
  const reader = createLeaderReader()
  const broken = new AbortController()
  const undo = [
    onBrokenPipe(() => broken.abort()),
    onSignals(async (signal, count) => {
      if (count > PATIENCE) await sandbox.destroy()
      else await signalLeader(sandbox, await reader.leader, signal)
    }),
    ...(isTerminal ? [takeTerminal(async (size) => resizeTerminal(sandbox, await reader.leader, size))] : []),
  ]
  const { TERM } = process.env
  try {
    return await sandbox.exec(command, args, {
      cwd: options.folder,
      signal: broken.signal,
      maxOutputBytes: 0,
      ...(options.timeoutMs !== undefined && { timeout: options.timeoutMs }),
      ...(options.stdin && { stdin: process.stdin }),
      ...(TERM !== undefined && process.stdout.isTTY && { env: { TERM } }),
      // Writing to a pipe or terminal waits for whoever reads it, and with it the command.
      onOutput: ({ stream, data, bytes = Buffer.from(data) }) => {
        if (stream === 'stdout') {
          if (!broken.signal.aborted) process.stdout.write(bytes)
        } else process.stderr.write(reader.push(bytes))
      },
    })
  } catch (error) {
    if (broken.signal.aborted) return { exitCode: BROKEN_PIPE_EXIT_CODE, timedOut: false }
    throw error
  } finally {
    for (const each of undo) each()
    // Nobody reads on; an open one would keep this process.
    if (options.stdin) process.stdin.destroy()
  }
}

function onSignals(pass: (signal: NodeJS.Signals, count: number) => Promise<void>): () => void {
  const counts = new Map<NodeJS.Signals, number>()
  const listener = (signal: NodeJS.Signals): void => {
    const count = (counts.get(signal) ?? 0) + 1
    counts.set(signal, count)
    // The command may have ended meanwhile.
    pass(signal, count).catch(() => undefined)
  }
  for (const signal of SIGNALS) process.on(signal, listener)
  return () => {
    for (const signal of SIGNALS) process.off(signal, listener)
  }
}

function onBrokenPipe(callback: () => void): () => void {
  // The command line's own listener ends the process at once, and nothing would be taken away.
  const others = process.stdout.listeners('error') as ((error: Error) => void)[]
  process.stdout.removeAllListeners('error')
  let isBroken = false
  const listener = (): void => {
    isBroken = true
    callback()
  }
  process.stdout.on('error', listener)
  return () => {
    // Further faults of the same kind may still be on their way.
    if (isBroken) return
    process.stdout.off('error', listener)
    for (const other of others) process.stdout.on('error', other)
  }
}

/** Every key goes to the terminal inside, Ctrl-C too. */
function takeTerminal(resize: (size: TerminalSize) => Promise<void>): () => void {
  const tell = (): void => {
    resize(sizeHere()).catch(() => undefined)
  }
  process.stdin.setRawMode(true)
  process.stdout.on('resize', tell)
  return () => {
    process.stdout.off('resize', tell)
    process.stdin.setRawMode(false)
  }
}

function sizeHere(): TerminalSize {
  return { rows: process.stdout.rows, columns: process.stdout.columns }
}
