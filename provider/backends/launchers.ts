/**
 * Where the processes of sandboxes come from. To fork takes this process the longer the more memory it has, and everything in it waits meanwhile; so the
 * next sandbox begins in a shell that was forked before, when nobody waited, and that is told only then what to become.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import path from 'node:path'
import type { Socket } from 'node:net'
import type { WorkerPipes } from '../worker/settings.ts'
import { throughGroups, waitForWords, wordLines } from './through-groups.ts'

/** Makes processes. */
export interface Launchers {
  /** Makes one that enters the groups and gives way to the command, see {@link throughGroups}. */
  readonly launch: (joinFiles: readonly string[], command: readonly string[]) => Launched
  /** Sees to it that the next one need not be forked, a moment from now: what a sandbox does first comes before. */
  readonly prepare: () => void
  /** Ends what waits; idempotent. */
  readonly close: () => void
}

/** One process. */
export interface Launched {
  readonly child: ChildProcess
  /** What it has open besides the streams of {@link DESCRIPTORS}, under numbers above theirs. */
  readonly pipes: WorkerPipes
}

/** What each has open besides: 0 to 5, as streams. */
export const DESCRIPTORS = 6
/** As many as a shell knows. */
const PIPE_DESCRIPTORS = [0, 1, 2, 3].map((index) => DESCRIPTORS + index)
const PREPARE_AFTER_MS = 100
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/** Forks nothing before it is asked to. One at most waits. */
export function createLaunchers(): Launchers {
  let waiting: Launched | undefined
  let timer: NodeJS.Timeout | undefined
  let closed = false
  const take = (): Launched | undefined => {
    const taken = waiting
    waiting = undefined
    // Somebody else may have ended it.
    return taken?.child.exitCode === null && taken.child.signalCode === null ? taken : undefined
  }
  return {
    launch: (joinFiles, command) => {
      const lines = wordLines(joinFiles, command)
      const launched = lines === undefined ? undefined : take()
      if (launched === undefined) {
        const pipes = newPipes()
        return { child: spawnShell(throughGroups(joinFiles, command, pipes)), pipes }
      }
      keepHost(launched.child, true)
      launched.child.stdin?.write(lines)
      return launched
    },
    prepare: () => {
      if (closed || waiting !== undefined) return
      timer ??= setTimeout(() => {
        timer = undefined
        waiting = startWaiting()
      }, PREPARE_AFTER_MS).unref()
    },
    close: () => {
      closed = true
      clearTimeout(timer)
      if (waiting !== undefined) end(waiting.child)
      waiting = undefined
    },
  }
}

function startWaiting(): Launched {
  const pipes = newPipes()
  const child = spawnShell(waitForWords(pipes))
  keepHost(child, false)
  return { child, pipes }
}

function newPipes(): WorkerPipes {
  return { descriptors: PIPE_DESCRIPTORS, mark: randomBytes(16).toString('hex') }
}

function spawnShell([shell = '', ...args]: readonly string[]): ChildProcess {
  const child = spawn(shell, args, {
    cwd: path.parse(process.execPath).root,
    // Nothing of the host's environment.
    env: { PATH },
    stdio: Array<'pipe'>(DESCRIPTORS).fill('pipe'),
    // A Ctrl-C in the terminal is for the host, which then ends its sandboxes in its own way.
    detached: true,
  })
  // That it could not be started, or takes nothing any more, shows by its end.
  child.on('error', () => undefined)
  child.stdin.on('error', () => undefined)
  return child
}

/** One that waits is no reason for this process to go on. */
function keepHost(child: ChildProcess, on: boolean): void {
  const streams = child.stdio as readonly (Socket | null | undefined)[]
  for (const each of [child, ...streams]) {
    if (on) each?.ref()
    else each?.unref()
  }
}

/** Its input ends, and so does it. */
function end(child: ChildProcess): void {
  for (const stream of child.stdio as readonly (Socket | null | undefined)[]) stream?.destroy()
}
