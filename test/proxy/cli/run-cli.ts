/** Runs the command line in tests: the real binary in a process of its own, or its `main` in this one. */
import { spawn, type ChildProcess } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { main } from '../../../proxy/cli/main.ts'

const BIN = join(import.meta.dirname, '../../../provider/cli/bin.ts')

/** What came of a command. */
export interface Outcome {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** Surroundings of a command. */
export interface Surroundings {
  readonly cwd?: string
  readonly environment?: Readonly<Record<string, string>>
  readonly input?: string
}

/** Runs the real binary. The environment holds PATH and what is given, nothing else. */
export async function runBinary(
  args: readonly string[],
  { cwd, environment, input = '' }: Surroundings = {},
): Promise<Outcome> {
  const child = spawn(process.execPath, [BIN, ...args], { cwd, env: { PATH: process.env['PATH'], ...environment } })
  child.stdin.end(input)
  const [stdout, stderr] = [collect(child, 'stdout'), collect(child, 'stderr')]
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve))
  return { code, stdout: stdout(), stderr: stderr() }
}

/** Runs `main` here. */
export async function runMain(
  args: readonly string[],
  { environment = {}, input = '' }: Omit<Surroundings, 'cwd'> = {},
): Promise<Outcome> {
  const stdout: string[] = []
  const stderr: string[] = []
  const code = await main(args, {
    out: (text) => void stdout.push(text),
    err: (text) => void stderr.push(text),
    environment,
    readInput: () => Promise.resolve(input),
    signal: new AbortController().signal,
  })
  return { code, stdout: stdout.join('\n'), stderr: stderr.join('\n') }
}

/** A running `sallyport serve`. */
export interface Serving {
  readonly pid: number
  /** Everything printed so far. */
  readonly stdout: () => string
  readonly stderr: () => string
  /** Waits until a stream holds what the pattern says. */
  readonly until: (stream: 'stdout' | 'stderr', pattern: RegExp) => Promise<RegExpExecArray>
  readonly kill: (signal: NodeJS.Signals) => void
  readonly ended: Promise<number | null>
}

/** Starts the real binary and leaves it running; the caller ends it. */
export function startBinary(args: readonly string[], { cwd, environment }: Surroundings): Serving {
  const child = spawn(process.execPath, [BIN, ...args], {
    cwd,
    env: { PATH: process.env['PATH'], ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const streams = { stdout: collect(child, 'stdout'), stderr: collect(child, 'stderr') }
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve))
  return {
    pid: child.pid ?? 0,
    ...streams,
    ended,
    kill: (signal) => void child.kill(signal),
    until: (stream, pattern) =>
      new Promise((resolve, reject) => {
        const look = (): void => {
          const match = pattern.exec(streams[stream]())
          if (match !== null) {
            child[stream].off('data', look)
            resolve(match)
          }
        }
        child[stream].on('data', look)
        look()
        void ended.then(() =>
          reject(new Error(`ended before ${pattern.source}:\n${streams.stdout()}\n${streams.stderr()}`)),
        )
      }),
  }
}

/** A folder that is gone after `close`. */
export function temporaryFolder(): { readonly path: string; readonly close: () => void } {
  const path = mkdtempSync(join(tmpdir(), 'sallyport-cli-'))
  return { path, close: () => rmSync(path, { recursive: true, force: true }) }
}

function collect(child: ChildProcess, stream: 'stdout' | 'stderr'): () => string {
  let text = ''
  child[stream]?.setEncoding('utf8').on('data', (chunk: string) => (text += chunk))
  return () => text
}
