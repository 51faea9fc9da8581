/** What a backend is to the provider: it starts a worker behind a wall, with a way to it and a way out of it, and takes it away again. */
import type net from 'node:net'
import type { EgressCredential, EgressGrant, TakeToken } from './egress/egress.ts'
import type { SandboxCapabilities, SandboxEnvironment, SandboxInfo } from './sandbox.ts'
import type { WorkerClient, WorkerProbe, WorkerProbeReport } from './worker-client.ts'

/** An address as the inside of a sandbox sees it. */
export interface InsideAddress {
  /** A literal. */
  readonly host: string
  readonly port: number
}

/** Where the worker listens for clients of the gateway, unless a backend says otherwise. */
export const INSIDE_GATEWAY: InsideAddress = { host: '127.0.0.1', port: 3128 }

/** What a backend is asked to start. */
export interface StartRequest {
  readonly id: string
  /** The way out of a sandbox that is elsewhere: there for backends whose `egress` is not `socket`. */
  readonly grant?: EgressGrant | undefined
  /** Folder of this sandbox on the host (mode 0700): `control/` for the worker's socket, `egress/` for the gateway's. */
  readonly runtimeFolder: string
  /** Bearer of the worker, for this sandbox alone. Reaches the worker by file or descriptor, never by argv. */
  readonly workerToken: string
  /** For the children, proxy variables included; laid over what the backend itself gives them. The worker's own environment has none of it. */
  readonly env: Readonly<Record<string, string>>
  readonly timeoutMs?: number | undefined
  readonly memoryLimitMb?: number | undefined
  readonly maxProcesses?: number | undefined
  /** `owner`, `created-at` and `expires-at` (ISO 8601), and the caller's own; backends that can keep labels keep these, and `list` gives them all back. */
  readonly labels: Readonly<Record<string, string>>
  /** For the worker to look for at its start, if the backend has a way to hear of it. */
  readonly probe?: WorkerProbe | undefined
  readonly signal?: AbortSignal | undefined
  /** To be called by a backend that {@link Backend.startsAtOnce} when all that is left of the start is to wait. */
  readonly launched?: (() => void) | undefined
  /** Registers what undoes a step, last first, when a later one fails. */
  readonly undo: (step: string, action: () => Promise<void>) => void
}

/** A started sandbox. */
export type StartedSandbox = (ReachedByStream | ReachedByClient) & {
  /** The writable folder, inside. */
  readonly rootDir: string
  /** Where clients inside find the gateway; {@link INSIDE_GATEWAY} by default. Any other is told to the children once the sandbox runs. */
  readonly gateway?: InsideAddress
  /**
   * What a direct connection must not reach: addresses that answer whoever is not stopped. Without them the sandbox has no route at all, and the provider
   * checks just that.
   */
  readonly directTargets?: readonly InsideAddress[]
  /** The worker has said that it listens: it need not be asked again and again until it answers. */
  readonly announced?: true
  /** What the worker found at its start of what the request asked it to look for. */
  readonly probed?: WorkerProbeReport | undefined
  /** Called once the worker has answered: takes away what only its start needed, such as the file that told it its bearer. */
  readonly answered?: () => Promise<void>
  /** Of a sandbox elsewhere: what is done with each further token or handle. By default the worker is told. */
  readonly takeToken?: TakeToken
  /** Resolves when the sandbox is gone by itself. */
  readonly ended: Promise<void>
  /** Ends it and waits for the platform; idempotent. */
  readonly stop: () => Promise<void>
}

/** Our worker is in it. */
interface ReachedByStream {
  /** Opens a byte stream to the worker. */
  readonly connect: () => Promise<net.Socket>
  readonly client?: undefined
}

/** The platform's own means do what a worker does. */
interface ReachedByClient {
  readonly client: WorkerClient
  readonly connect?: undefined
}

/** One way of making sandboxes. */
export interface Backend {
  readonly name: string
  readonly environment: SandboxEnvironment
  readonly capabilities: SandboxCapabilities
  /**
   * How its sandboxes reach the gateway: `socket`, the default, by one in the runtime folder of this host; otherwise they are elsewhere, reach it over the
   * network, and show it a token or a handle.
   */
  readonly egress?: 'socket' | EgressCredential
  /** Milliseconds that taking away what one step of a start made may take; 10 s by default. */
  readonly undoBudgetMs?: number
  /** Whether a sandbox can be started before it is known for whom: its labels are kept by the host alone. */
  readonly canBeSpare?: true
  /**
   * Its start finds out by itself whether anything is missing, and says so in the words of {@link Backend.check}: that need not be asked before. And it says
   * when it only waits, see {@link StartRequest.launched}: the gateway is opened during that.
   */
  readonly startsAtOnce?: true
  /** @throws SandboxError that says what is missing and the command that installs it */
  readonly check: () => Promise<void>
  readonly start: (request: StartRequest) => Promise<StartedSandbox>
  /** Of sandboxes that any process made, from what the platform and the runtime folder know. */
  readonly list: () => Promise<readonly SandboxInfo[]>
  readonly attach: (id: string) => Promise<StartedSandbox | undefined>
  /** Ends what it keeps ready for sandboxes to come; idempotent. Called when the provider is closed. */
  readonly close?: () => Promise<void>
}

/** What sandboxes of a backend show the gateway; undefined for those of this host. */
export function credentialOf({ egress = 'socket' }: Backend): EgressCredential | undefined {
  return egress === 'socket' ? undefined : egress
}
