/** What an agent sees of a sandbox. Types alone: the specification that every backend fulfils and the conformance suite checks. */
import type { EgressPolicy } from '../policies/index.ts'

/** Where a sandbox is in its life. `destroyed` is final. */
export type SandboxStatus = 'creating' | 'ready' | 'busy' | 'destroyed'

/** What keeps the sandbox apart from its host. */
export type SandboxEnvironment = 'linux-namespace' | 'macos-seatbelt' | 'basic'

/** How one command is run. */
export interface SandboxExecOptions {
  /** Working folder; `rootDir` by default. */
  readonly cwd?: string
  /** Laid over the sandbox's environment. */
  readonly env?: Readonly<Record<string, string>>
  /** Milliseconds until the whole process group is killed; none by default. */
  readonly timeout?: number
  /** What the command reads; empty by default, never the host's own. Streamed, of any size. */
  readonly stdin?: string | Uint8Array | AsyncIterable<Uint8Array>
  /** Kills the whole process group. */
  readonly signal?: AbortSignal
  /** Called with output as it comes, decoded as UTF-8 across chunk boundaries. */
  readonly onOutput?: (chunk: SandboxOutput) => void
  /** Bytes kept of each stream in the result; 10 MiB by default. What is beyond is counted and marked, never dropped in silence. */
  readonly maxOutputBytes?: number
}

/** A piece of output. */
export interface SandboxOutput {
  readonly stream: 'stdout' | 'stderr'
  readonly data: string
  /** The very bytes where they are not UTF-8; `data` then has U+FFFD in their place. */
  readonly bytes?: Uint8Array
}

/** How a command ended. There is none for a command whose end is not known: that is an error with `outcome: 'unknown'`. */
export interface SandboxExecResult {
  /** 128 and the signal's number where a signal ended it. */
  readonly exitCode: number
  readonly stdout: string
  readonly stderr: string
  readonly signal?: string
  readonly timedOut: boolean
  readonly durationMs: number
  /** Bytes that `stdout` lacks; absent when it is whole. */
  readonly stdoutTruncated?: number
  readonly stderrTruncated?: number
}

/** A process that goes on while the caller does other things. */
export interface SandboxProcess {
  /** For `attachProcess`. */
  readonly id: string
  /** What it wrote since the beginning (bounded, the end is kept) and writes, until it ends. */
  output(): AsyncIterable<SandboxOutput>
  write(data: string | Uint8Array | AsyncIterable<Uint8Array>): Promise<void>
  closeStdin(): Promise<void>
  wait(options?: { readonly signal?: AbortSignal }): Promise<SandboxExecResult>
  /** Sends a signal to the whole process group; `SIGKILL` by default. */
  kill(signal?: NodeJS.Signals): Promise<void>
}

/** A regular file. */
export interface SandboxFileEntry {
  /** Absolute, inside the sandbox. */
  readonly path: string
  /** Bytes. */
  readonly size: number
}

/** What is at a path. */
export interface SandboxFileStat extends SandboxFileEntry {
  readonly kind: 'file' | 'directory' | 'other'
  readonly mode: number
  readonly modifiedMs: number
}

/** One sandbox. Every method throws {@link SandboxError} with a stable code. */
export interface Sandbox extends AsyncDisposable {
  /** `sbx_…` */
  readonly id: string
  readonly status: SandboxStatus
  /** The writable folder, inside the sandbox. */
  readonly rootDir: string
  readonly environment: SandboxEnvironment
  /** Runs a program with arguments (no shell, no quoting), and waits for its end. Without `argv` the command is a line for `sh -c`. */
  exec(command: string, argv?: readonly string[], options?: SandboxExecOptions): Promise<SandboxExecResult>
  spawn(
    command: string,
    argv?: readonly string[],
    options?: Omit<SandboxExecOptions, 'signal' | 'onOutput'>,
  ): Promise<SandboxProcess>
  attachProcess(id: string): Promise<SandboxProcess>
  writeFile(path: string, content: string | Uint8Array | AsyncIterable<Uint8Array>): Promise<void>
  readFile(path: string): Promise<Uint8Array>
  readFileStream(path: string): AsyncIterable<Uint8Array>
  /** Regular files below `path` (`rootDir` by default), recursively; none for a folder that isn't there. */
  listFiles(path?: string): Promise<readonly SandboxFileEntry[]>
  stat(path: string): Promise<SandboxFileStat | undefined>
  mkdir(path: string): Promise<void>
  remove(path: string): Promise<void>
  move(from: string, to: string): Promise<void>
  /** Copies a host file or folder in. */
  copyIn(hostPath: string, path: string): Promise<void>
  /** Copies a file or folder out; what leaves its folder through a link is left out. */
  copyOut(path: string, hostPath: string): Promise<void>
  /** The next connection obeys; open ones that are no longer allowed are cut within a second. */
  setEgress(policy: EgressPolicy): Promise<void>
  /** Ends everything and waits for the platform; idempotent. Its way out is dead from the first moment on. */
  destroy(): Promise<void>
}

/** What a sandbox is made with. */
export interface CreateSandboxOptions {
  /** `defaultEgress` of the provider by default. */
  readonly egress?: EgressPolicy
  /** For the tenant layer of the gateway. */
  readonly tenant?: string
  readonly env?: Readonly<Record<string, string>>
  /** Milliseconds after which the sandbox ends by itself, also when the host is gone. */
  readonly timeoutMs?: number
  readonly memoryLimitMb?: number
  readonly maxProcesses?: number
  /** For people: shown by `list()`. */
  readonly labels?: Readonly<Record<string, string>>
  readonly signal?: AbortSignal
}

/** A sandbox as `list()` sees it. */
export interface SandboxInfo {
  readonly id: string
  readonly createdAtMs: number
  readonly expiresAtMs?: number
  readonly labels: Readonly<Record<string, string>>
  /** What the platform itself says of it, by names that the backend's page lists; absent where there is nothing to say. */
  readonly platform?: Readonly<Record<string, string>>
}

/** What a backend can do and what it enforces, as data. */
export interface SandboxCapabilities {
  /** Who stops a packet that ignores the proxy. `platform-port+guest`: the platform what goes to other ports, rules inside what goes to other addresses. */
  readonly enforcement: 'kernel' | 'operator' | 'platform' | 'platform-port+guest' | 'none'
  readonly streaming: boolean
  readonly spawn: boolean
  readonly runtimeEgressChange: boolean
  /** What ends when more memory is asked for than was given; `false` where memory is not limited. */
  readonly memoryLimit: 'command' | 'sandbox' | false
  readonly processLimit: boolean
  readonly timeToLive: boolean
  readonly attach: boolean
  /** Commands have the token of their sandbox in their environment, fresh for each: nothing inside could add it for them. */
  readonly tokenInEnvironment?: true
  /**
   * Commands are told of no gateway, and need none: what they open to ports 80 and 443 is carried there by the platform, under the name that its head says.
   * A refusal is a connection that is closed without an answer.
   */
  readonly transparentEgress?: true
  /** A connection that the platform stops seems to open first, and is closed then: only an answer says that somebody was reached. */
  readonly opensBeforeDecision?: true
  /** Commands may make sockets of any kind: the sandbox has a kernel of its own, and what is walled in is its one network device. */
  readonly anySocket?: true
  /** What stays open all the same, for people. */
  readonly leftOpen: readonly string[]
}

/** Makes sandboxes of one kind. */
export interface SandboxProvider extends AsyncDisposable {
  readonly id: string
  readonly name: string
  readonly environment: SandboxEnvironment
  readonly capabilities: SandboxCapabilities
  /** A transaction: a failure at any step leaves nothing behind. */
  create(options?: CreateSandboxOptions): Promise<Sandbox>
  /** A sandbox that this or another process made. */
  attach(id: string): Promise<Sandbox>
  list(): Promise<readonly SandboxInfo[]>
  /** Destroys what is older, or whose host is gone; returns the ids. */
  reap(options: { readonly olderThanMs: number }): Promise<readonly string[]>
}
