/** The host's side of a worker: typed requests over any byte stream. Every reply is untrusted, so it is checked and bounded. */
import type net from 'node:net'
import type { SandboxExecResult, SandboxFileEntry, SandboxFileStat, SandboxOutput } from './sandbox.ts'
import { SandboxError } from './sandbox-error.ts'
import { call, jsonBody } from './worker-client/call.ts'
import { commandMethods } from './worker-client/commands.ts'
import type { Link } from './worker-client/exchange.ts'
import { fileMethods } from './worker-client/files.ts'
import { count, malformed } from './worker-client/lines.ts'
import { probeMethod } from './worker-client/probe.ts'
import { WorkerFault } from './worker-client/worker-fault.ts'

export { WorkerFault }

/** How a worker is reached. */
export interface WorkerClientOptions {
  /** Opens a byte stream to the worker; each request has its own. */
  readonly connect: () => Promise<net.Socket>
  /** Bearer of this worker. */
  readonly token: string
  /** Milliseconds without a sign of life from the worker (it sends one every 10 s) until it counts as lost; 45 s by default. */
  readonly silenceMs?: number
}

/** What to run. */
export interface WorkerCommand {
  readonly command: string
  /** Arguments, as they are. Without them `command` is a line for `sh -c`. */
  readonly args?: readonly string[] | undefined
  /** Working folder; the worker's first root by default. */
  readonly cwd?: string | undefined
  /** Laid over the worker's environment for children. */
  readonly env?: Readonly<Record<string, string>> | undefined
  /** Milliseconds until the whole process group is killed, 1 or more; none by default. */
  readonly timeoutMs?: number | undefined
  /** Bytes kept of each stream; 10 MiB by default, 1 MiB (the end) for a background process. */
  readonly maxOutputBytes?: number | undefined
}

/** Bytes for a command or a file. */
export type WorkerBytes = string | Uint8Array | AsyncIterable<Uint8Array>

/** A piece of output. */
export interface WorkerOutput extends SandboxOutput {
  /** The very bytes where they are not UTF-8; `data` then has U+FFFD in their place. */
  readonly bytes?: Uint8Array
  /** Bytes lost before this piece, since a background process wrote more than is kept. */
  readonly lostBytes?: number
}

/** How a command ended. */
export interface WorkerResult extends SandboxExecResult {
  /** The very bytes of `stdout` where they are not UTF-8. */
  readonly stdoutBytes?: Uint8Array
  /** The very bytes of `stderr` where they are not UTF-8. */
  readonly stderrBytes?: Uint8Array
}

/** How {@link WorkerClient.execute} goes. */
export interface ExecuteOptions {
  /** What the command reads; empty by default. Streamed, of any size. */
  readonly stdin?: WorkerBytes | undefined
  /** Gets all output as it comes, also what the result has no room for. */
  readonly onOutput?: ((chunk: WorkerOutput) => void) | undefined
  /** Kills the process group; the call rejects with the signal's reason when it is dead. */
  readonly signal?: AbortSignal | undefined
}

/** For whatever only waits. */
export interface WaitOptions {
  readonly signal?: AbortSignal | undefined
}

/** What a worker says of itself. */
export interface WorkerHealth {
  readonly protocol: number
  readonly pid: number
  readonly node: string
  readonly rootDir: string
  /** Commands and background processes that run. */
  readonly running: number
  readonly uptimeMs: number
}

/** Where to look for a way out. */
export interface WorkerProbe {
  /** Connected to. */
  readonly tcp: readonly WorkerProbeTarget[]
  /** Looked for a route to; nothing is sent. */
  readonly udp: readonly WorkerProbeTarget[]
  /** Asked for a tunnel to `destination`. */
  readonly gateway: WorkerProbeTarget
  /** `host:port`, as in a CONNECT. */
  readonly destination: string
  /** For each connection, at most 10 s; 1 s by default. */
  readonly timeoutMs?: number
}

/** An address (a literal) and a port. */
export interface WorkerProbeTarget {
  readonly host: string
  readonly port: number
}

/** What came of it, in the order of the targets: `connected`, `timeout` or the name of an errno. */
export interface WorkerProbeReport {
  readonly tcp: readonly string[]
  readonly udp: readonly string[]
  readonly gateway: { readonly status: number; readonly reason?: string } | { readonly error: string }
}

/** What may be changed in a running worker. */
export interface WorkerConfiguration {
  /** Takes the place of the children's environment. */
  readonly env?: Readonly<Record<string, string>> | undefined
  /** Takes the place of the bearer, from the next request on; 32 visible ASCII characters or more. */
  readonly token?: string | undefined
  /** Counted from now. */
  readonly timeToLiveMs?: number | undefined
  /** For the way to a gateway elsewhere; takes the place of the one before. */
  readonly gatewayToken?: string | undefined
  /** With it: ends what is open under the one before. */
  readonly cutTunnels?: boolean | undefined
}

/**
 * A worker, from outside. Every method throws `SandboxError`:
 * `SALLYPORT_SANDBOX_CONNECTION_LOST` (outcome `unknown` once the request was sent), `SALLYPORT_SANDBOX_EXEC_FAILED` (it could not be started),
 * `SALLYPORT_SANDBOX_FILE_FAILED` (`cause` is a {@link WorkerFault}) or `SALLYPORT_SANDBOX_NOT_FOUND` (no such process).
 *
 * Paths are absolute or relative to the first root. A name that is not UTF-8 has a lone surrogate U+DC80…U+DCFF in place of each byte
 * that does not belong (as PEP 383 does it), and such a path may be passed back as it came.
 */
export interface WorkerClient {
  health(options?: WaitOptions): Promise<WorkerHealth>
  configure(configuration: WorkerConfiguration): Promise<void>
  /** Tries, from inside, what commands there could try. */
  probe(probe: WorkerProbe): Promise<WorkerProbeReport>
  /** Runs a command and waits for its end. */
  execute(command: WorkerCommand, options?: ExecuteOptions): Promise<WorkerResult>
  /** Starts a background process, with a stdin that stays open until `closeStdin`; resolves to its id. */
  spawn(command: WorkerCommand): Promise<string>
  /** Whether there is such a process, running or ended (ended ones are kept for a while). */
  hasProcess(id: string): Promise<boolean>
  /** What it wrote since the beginning (bounded: the end is kept) and writes, until it ends. Leaving the loop leaves the process alone. */
  output(id: string, options?: WaitOptions): AsyncIterable<WorkerOutput>
  /** Its end, with what is kept of its output. */
  wait(id: string, options?: WaitOptions): Promise<WorkerResult>
  writeStdin(id: string, data: WorkerBytes): Promise<void>
  closeStdin(id: string): Promise<void>
  /** To the whole process group. Of a process that has ended: nothing happens. */
  signal(id: string, signal: NodeJS.Signals): Promise<void>
  /** Writes a file whole or not at all; makes the folders above it. `mode` is that of the present file, or `0o644`. */
  writeFile(
    path: string,
    content: WorkerBytes,
    options?: WaitOptions & { readonly mode?: number | undefined },
  ): Promise<void>
  /** A regular file, of at most 1 GiB. */
  readFile(path: string, options?: WaitOptions): Promise<Uint8Array>
  /** A regular file of any size, as it is at the time of the request. */
  readFileStream(path: string, options?: WaitOptions): AsyncIterable<Uint8Array>
  /** Regular files below a folder (the first root by default), sorted by path; links are not followed. None for a folder that isn't there. */
  listFiles(path?: string, options?: WaitOptions): Promise<readonly SandboxFileEntry[]>
  /** What is there, links followed; undefined when nothing is. */
  stat(path: string): Promise<SandboxFileStat | undefined>
  /** Makes a folder and those above it; one that is there already is fine. */
  mkdir(path: string): Promise<void>
  /** Removes a file, a link or a whole folder; nothing there is fine. */
  remove(path: string): Promise<void>
  move(from: string, to: string): Promise<void>
}

const DEFAULT_SILENCE_MS = 45_000
const MAX_TEXT_LENGTH = 4_096

/** Makes a client. It holds no connection open, so there is nothing to close. */
export function createWorkerClient({
  connect,
  token,
  silenceMs = DEFAULT_SILENCE_MS,
}: WorkerClientOptions): WorkerClient {
  const link: Link = { connect, token, silenceMs }
  return {
    async health(options = {}) {
      return parseHealth(await call(link, backendFault, { method: 'GET', path: '/healthz', signal: options.signal }))
    },
    async configure(configuration) {
      await call(link, backendFault, { method: 'POST', path: '/configure', ...jsonBody(configuration) })
    },
    probe: probeMethod(link, backendFault),
    ...commandMethods(link),
    ...fileMethods(link),
  }
}

function parseHealth(fields: Record<string, unknown>): WorkerHealth {
  const { node, rootDir } = fields
  if (typeof node !== 'string' || node.length > MAX_TEXT_LENGTH) throw malformed('`node` is no version')
  if (typeof rootDir !== 'string' || !rootDir.startsWith('/') || rootDir.length > MAX_TEXT_LENGTH)
    throw malformed('`rootDir` is no path')
  const protocol = count(fields, 'protocol')
  return {
    protocol,
    pid: count(fields, 'pid'),
    node,
    rootDir,
    running: count(fields, 'running'),
    uptimeMs: count(fields, 'uptimeMs'),
  }
}

function backendFault(code: string, message: string): SandboxError {
  return new SandboxError('SALLYPORT_SANDBOX_BACKEND_FAILED', message, { cause: new WorkerFault(code, message) })
}
