/** What is put into a container and started there. Data alone: nothing is asked and nothing is made. */
import type { ContainerCreateOptions } from 'dockerode'
import type { StartRequest } from '../backend.ts'
import type { WorkerSettings } from '../worker/settings.ts'
import { type ContainerFolder, DEFAULT_ROOT } from './container-layout.ts'
import type { LinkSettings } from './container-link.ts'
import { checkLimits, OWN_PROCESSES, type ResolvedContainerOptions } from './container-options.ts'
import { LINK, NODE, type Toolbox, TOOLS } from './container-toolbox.ts'
import type { EngineFacts, ImageFacts } from './engine-facts.ts'
import { hardenedHostConfig } from './docker-hardening.ts'
import { INSIDE, INSIDE_PROXY } from './inside.ts'

/**
 * How the host and the sandbox reach each other. `socket`: both sockets are files in mounted folders. `dial-unix`: the sandbox connects to sockets of the host,
 * but can not make one that the host sees. `dial-tcp`: through a relay on a network of their own.
 */
export type ContainerChannel =
  { readonly kind: 'socket' } | { readonly kind: 'dial-unix' } | { readonly kind: 'dial-tcp'; readonly relay: string }

/** All that a container's shape depends on. */
export interface ContainerPlanInput {
  readonly request: Pick<
    StartRequest,
    'workerToken' | 'env' | 'timeoutMs' | 'memoryLimitMb' | 'maxProcesses' | 'runtimeFolder'
  >
  readonly options: ResolvedContainerOptions
  readonly facts: EngineFacts
  readonly image: ImageFacts
  readonly toolbox: Toolbox
  /** The first is `rootDir`; none: folders in memory. */
  readonly folders: readonly ContainerFolder[]
  readonly channel: ContainerChannel
  readonly runtime: string | undefined
  readonly networkMode: string
  readonly user: string
  readonly labels: Readonly<Record<string, string>>
  /** The kernel inside must be another than the engine's. */
  readonly foreignKernel: boolean
  readonly unreachable: LinkSettings['unreachable']
}

/** What to write into the control folder, and what to ask of the engine. */
export interface ContainerPlan {
  readonly rootDir: string
  readonly settings: WorkerSettings
  readonly link: LinkSettings | undefined
  readonly create: ContainerCreateOptions
}

/** Names of the files in the control folder. */
export const SETTINGS_FILE = 'settings.json'
/** See {@link SETTINGS_FILE}. */
export const LINK_FILE = 'link.json'
/** The host's socket for connections of a sandbox that dials. */
export const DIAL_SOCKET = 'control.sock'
/** Ports of a relay. */
export const RELAY_PORTS = { egress: 3128, control: 3129 } as const

const WORKER_PORT = 2024
/** Connections that a dialling sandbox keeps open. */
const IDLE_CONNECTIONS = 4
/** Worker's time to end by itself, before the engine ends it. */
const GRACE_MS = 5_000
/** What a nanosecond count may be in JSON that passes through JavaScript. */
const MAX_INTERVAL_MS = Math.floor(Number.MAX_SAFE_INTEGER / 1e6)
/** Variables of an image that would reach into the worker itself. */
const UNWANTED = /^(LD_|NODE_|GLIBC_|OPENSSL_|UV_|MALLOC_)/

/** The sandbox's own container. */
export function planSandbox(input: ContainerPlanInput): ContainerPlan {
  const { request, options, image, toolbox, folders, channel } = input
  const memoryMb = request.memoryLimitMb ?? options.memoryLimitMb
  const maxProcesses = request.maxProcesses ?? options.maxProcesses
  checkLimits({ memoryLimitMb: memoryMb, maxProcesses })
  const rootDir = folders[0]?.path ?? DEFAULT_ROOT
  const link = linkOf(input)
  return {
    rootDir,
    link,
    settings: {
      token: request.workerToken,
      listen:
        channel.kind === 'socket'
          ? { path: INSIDE.workerSocket, mode: 0o666 }
          : { host: '127.0.0.1', port: WORKER_PORT },
      roots: [
        ...(folders.length === 0
          ? [{ path: rootDir, writable: true }]
          : folders.map(({ path, writable }) => ({ path, writable }))),
        { path: '/tmp', writable: true },
      ],
      // What the image sets is for the programs that it brings; the worker itself starts without.
      env: { HOME: rootDir, ...image.env, ...request.env },
      ...(channel.kind !== 'dial-tcp' && { forward: [{ ...INSIDE_PROXY, path: INSIDE.gatewaySocket }] }),
      ...(request.timeoutMs !== undefined && { timeToLiveMs: request.timeoutMs }),
    },
    create: {
      Image: options.image,
      User: input.user,
      Hostname: 'sandbox',
      WorkingDir: '/',
      Env: withoutUnwanted(image.env),
      Entrypoint: [...toolbox.command],
      Cmd:
        link === undefined
          ? [INSIDE.worker, `${INSIDE.control}/${SETTINGS_FILE}`]
          : [LINK, `${INSIDE.control}/${LINK_FILE}`],
      ...(request.timeoutMs !== undefined && { Healthcheck: endOf(request.timeoutMs) }),
      AttachStdin: false,
      AttachStdout: true,
      AttachStderr: true,
      Labels: { ...input.labels },
      HostConfig: hardenedHostConfig({
        architecture: input.facts.architecture,
        runtime: input.runtime,
        networkMode: input.networkMode,
        memoryMb,
        processes: maxProcesses + OWN_PROCESSES,
        foreignKernel: input.foreignKernel,
        cpus: Math.min(options.cpus, input.facts.processors),
        memoryFolderMb: options.memoryFolderMb,
        memoryFolders: folders.length === 0 ? [rootDir] : [],
        folders,
        binds: [
          ...toolbinds(toolbox),
          { from: `${request.runtimeFolder}/control`, to: INSIDE.control, writable: true },
          ...(channel.kind === 'dial-tcp'
            ? []
            : [{ from: `${request.runtimeFolder}/egress`, to: INSIDE.egress, writable: false }]),
        ],
        imageVolumes: image.volumes,
      }),
    },
  }
}

/** The neighbour of a sandbox on a network of its own; it has a way to the host. */
export function planRelay(
  input: Pick<ContainerPlanInput, 'options' | 'image' | 'toolbox' | 'facts' | 'user' | 'labels'> & {
    /** Host folder with the link's settings. */
    readonly folder: string
    readonly runtime: string | undefined
    readonly relayHost: string
  },
): ContainerCreateOptions {
  const { options, image, toolbox, folder, relayHost } = input
  const config = hardenedHostConfig({
    architecture: input.facts.architecture,
    runtime: input.runtime,
    networkMode: 'bridge',
    memoryMb: 128,
    processes: 64,
    foreignKernel: false,
    cpus: Math.min(1, input.facts.processors),
    memoryFolderMb: 1,
    memoryFolders: [],
    folders: [],
    binds: [...toolbinds(toolbox), { from: folder, to: RELAY_FOLDER, writable: false }],
    imageVolumes: image.volumes,
  })
  return {
    Image: options.image,
    User: input.user,
    Hostname: 'relay',
    WorkingDir: '/',
    Env: withoutUnwanted(image.env),
    Entrypoint: [...toolbox.command],
    Cmd: [LINK, `${RELAY_FOLDER}/${LINK_FILE}`],
    AttachStdin: false,
    AttachStdout: true,
    AttachStderr: true,
    Labels: { ...input.labels },
    HostConfig:
      relayHost === 'host.docker.internal'
        ? { ...config, Dns: [], DnsSearch: [], DnsOptions: [], ExtraHosts: [`${relayHost}:host-gateway`] }
        : config,
  }
}

const RELAY_FOLDER = '/run/sallyport/relay'

function linkOf({ channel, foreignKernel, facts, unreachable }: ContainerPlanInput): LinkSettings | undefined {
  if (channel.kind === 'socket') return undefined
  const { dial, listeners } =
    channel.kind === 'dial-unix'
      ? { dial: { path: `${INSIDE.egress}/${DIAL_SOCKET}` }, listeners: [] }
      : {
          dial: { host: channel.relay, port: RELAY_PORTS.control },
          listeners: [{ listen: INSIDE_PROXY, connect: { host: channel.relay, port: RELAY_PORTS.egress } }],
        }
  return {
    ...(foreignKernel && { foreignKernel: facts.kernel }),
    ...(unreachable !== undefined && { unreachable }),
    listeners,
    dialers: [{ dial, connect: { host: '127.0.0.1', port: WORKER_PORT }, idle: IDLE_CONNECTIONS }],
    run: { script: INSIDE.worker, argument: `${INSIDE.control}/${SETTINGS_FILE}` },
  }
}

function toolbinds({ folder, nodeFile }: Toolbox): { from: string; to: string; writable: boolean }[] {
  return [
    { from: folder, to: TOOLS, writable: false },
    ...(nodeFile === undefined ? [] : [{ from: nodeFile, to: NODE, writable: false }]),
  ]
}

/** A name without a value takes the image's variable away. */
function withoutUnwanted(env: Readonly<Record<string, string>>): string[] {
  return Object.keys(env).filter((name) => UNWANTED.test(name))
}

/**
 * The engine itself ends what outlives its time: the first check of a container's health comes after the interval, and this one kills all that runs in it.
 * A worker that was stopped, or tampered with, does not matter.
 */
function endOf(timeoutMs: number): ContainerCreateOptions['Healthcheck'] {
  return {
    Test: ['CMD-SHELL', 'kill -9 -1'],
    Interval: Math.min(timeoutMs + GRACE_MS, MAX_INTERVAL_MS) * 1e6,
    Timeout: 10_000 * 1e6,
    Retries: 1,
  }
}
