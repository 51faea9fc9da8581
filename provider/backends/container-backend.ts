/** What docker and runsc have in common: a sandbox is a container, with two byte channels to the host and nothing else. */
import { chmod, mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import type { Backend, StartedSandbox, StartRequest } from '../backend.ts'
import { SandboxError } from '../sandbox-error.ts'
import type { SandboxCapabilities, SandboxInfo } from '../sandbox.ts'
import { infoOf, LABEL, labelsOf } from './container-labels.ts'
import { resolveLayout } from './container-layout.ts'
import { type ContainerOptions, resolveContainerOptions } from './container-options.ts'
import { type ContainerChannel, DIAL_SOCKET, LINK_FILE, planSandbox, SETTINGS_FILE } from './container-plan.ts'
import { openRelay, readRelay, type Relay } from './container-relay.ts'
import { openToolbox } from './container-toolbox.ts'
import { connectControl } from './control-socket.ts'
import { ended, removeContainer, type RunningContainer, startContainer } from './docker-container.ts'
import { type DockerEngine, type EngineFacts, openEngine } from './docker-engine.ts'
import { DockerError } from './docker-error.ts'
import { removeNetwork } from './docker-network.ts'
import { type LinkHost, listenUnixLink } from './link-host.ts'

/** What differs between the two. */
export interface ContainerKind {
  readonly name: 'docker' | 'runsc'
  /** Name of the runtime on the engine; undefined for the engine's own. @throws DockerError when there is none */
  readonly runtime: (facts: EngineFacts) => string | undefined
  /** Without a network, how the worker is reached. */
  readonly channel: 'socket' | 'dial-unix'
  readonly foreignKernel: boolean
  readonly leftOpen: readonly string[]
  /** Said when a sandbox does not answer. */
  readonly advice: string
  /** Ends what the engine leaves behind of a container. */
  readonly sweep: (containerId: string) => Promise<void>
}

/** One that no caller's file or process needs to be asked about: uid and gid that no host gives to people. */
const DEFAULT_USER = '10001:10001'
const POLL_MS = 10

/** A backend for one image. @throws TypeError for a caller's mistake */
export function createContainerBackend(kind: ContainerKind, given: ContainerOptions): Backend {
  const options = resolveContainerOptions(given)
  let opening: Promise<DockerEngine> | undefined
  const open = (): Promise<DockerEngine> => {
    opening ??= openEngine(options.engine).catch((error: unknown) => {
      opening = undefined
      throw error
    })
    return opening
  }

  return {
    name: kind.name,
    environment: 'linux-namespace',
    capabilities: capabilitiesOf(kind, options.network),
    check: async () => {
      const engine = await open()
      kind.runtime(await engine.facts())
      await engine.image(options.image)
    },

    start: async (request) => {
      const { id, runtimeFolder, undo, signal } = request
      checkId(id)
      const engine = await open()
      const { docker, attempt } = engine
      const [facts, image] = await Promise.all([engine.facts(), engine.image(options.image)])
      const runtime = kind.runtime(facts)
      const folders = options.layout === undefined ? [] : resolveLayout(options.layout, { runtimeRoot: path.dirname(runtimeFolder) })
      const user = options.user ?? defaultUser(folders.some(({ hostPath, writable }) => hostPath !== undefined && writable))
      const toolbox = await openToolbox(nodePathOf(options.nodePath, image.labels))
      const labels = (part: 'sandbox' | 'relay' | 'network', channel: string): Record<string, string> =>
        labelsOf({ id, backend: kind.name, part, rootDir: folders[0]?.path ?? '', runtimeFolder, channel, labels: request.labels })
      const name = `sallyport-${id}`
      signal?.throwIfAborted()

      // Whatever of this sandbox the engine has by then, found by its label: a name may be somebody else's.
      undo('container', () => removeAll(kind, engine, id))
      let relay: Relay | undefined
      let host: LinkHost | undefined
      let channel: ContainerChannel = { kind: kind.channel }
      if (options.network === 'internal') {
        relay = await openRelay({ engine, facts, image, toolbox, options, user, name, runtimeFolder, timeoutMs: request.timeoutMs, labels: (part) => labels(part, 'dial-tcp') }, undo)
        host = relay.host
        channel = { kind: 'dial-tcp', relay: relay.address }
      }
      await openFolders(runtimeFolder)
      if (channel.kind === 'dial-unix') {
        host = await listenUnixLink(path.join(runtimeFolder, 'egress', DIAL_SOCKET))
        undo('control socket', host.close)
      }
      const plan = planSandbox({
        request, options, facts, image, toolbox, folders, channel, runtime, user,
        networkMode: relay?.network ?? 'none',
        labels: {},
        foreignKernel: kind.foreignKernel,
        unreachable: relay?.unreachable,
      }) // prettier-ignore
      const control = path.join(runtimeFolder, 'control')
      await writeFile(path.join(control, SETTINGS_FILE), JSON.stringify(plan.settings), { mode: 0o644 })
      if (plan.link !== undefined) await writeFile(path.join(control, LINK_FILE), JSON.stringify(plan.link), { mode: 0o644 })
      signal?.throwIfAborted()

      const about = { image: options.image, name, runtime }
      const container = await attempt({ action: 'create the container', ...about }, () =>
        docker.createContainer({ name, ...plan.create, Labels: { ...labels('sandbox', channel.kind), [LABEL.rootDir]: plan.rootDir } }),
      )
      let running: RunningContainer
      try {
        running = await attempt({ action: 'start the container', ...about }, () => startContainer(container))
      } catch (error) {
        await removeContainer(container).catch(() => undefined)
        await kind.sweep(container.id)
        throw error
      }
      try {
        await untilReady(running, host === undefined ? () => answers(path.join(control, 'worker.sock')) : undefined, host, { kind, options, signal })
      } finally {
        running.detach()
      }
      // The socket is there: from now on nobody inside can put another in its place, nor fill the host's disk.
      await chmod(control, 0o755)
      return sandbox({ kind, engine, id, rootDir: plan.rootDir, runtimeFolder, host, ended: running.ended })
    },

    list: async () => {
      const { docker, attempt } = await open()
      const filters = { label: [`${LABEL.backend}=${kind.name}`] }
      const found = new Map<string, SandboxInfo>()
      await attempt({ action: 'list the containers' }, async () => {
        const [containers, networks] = await Promise.all([docker.listContainers({ all: true, filters }), docker.listNetworks({ filters })])
        const infos = [
          ...networks.map(({ Labels, Created }) => infoOf(Labels ?? {}, Date.parse(Created))),
          ...containers.map(({ Labels, Created }) => infoOf(Labels, Created * 1000)),
        ]
        for (const info of infos) if (info !== undefined) found.set(info.id, info)
      })
      return [...found.values()]
    },

    attach: async (id) => {
      checkId(id)
      const engine = await open()
      const { docker, attempt } = engine
      return attempt({ action: 'look for the container' }, async () => {
        const filters = { label: [`${LABEL.sandbox}=${id}`, `${LABEL.backend}=${kind.name}`] }
        const [containers, networks] = await Promise.all([docker.listContainers({ all: true, filters }), docker.listNetworks({ filters })])
        const own = containers.find(({ Labels }) => Labels[LABEL.part] === 'sandbox')
        const labels = own?.Labels ?? containers[0]?.Labels ?? networks[0]?.Labels
        if (labels === undefined) return undefined
        const { [LABEL.runtimeFolder]: runtimeFolder = '', [LABEL.rootDir]: rootDir = '', [LABEL.channel]: channel } = labels
        const isRunning = own?.State === 'running'
        let host: LinkHost | undefined
        if (isRunning && channel === 'dial-unix') host = await listenUnixLink(path.join(runtimeFolder, 'egress', DIAL_SOCKET))
        if (isRunning && channel === 'dial-tcp') host = await readRelay(runtimeFolder)
        return sandbox({ kind, engine, id, rootDir, runtimeFolder, host, ended: own !== undefined && isRunning ? ended(docker.getContainer(own.Id)) : Promise.resolve() })
      })
    },
  }
}

function sandbox(options: {
  readonly kind: ContainerKind
  readonly engine: DockerEngine
  readonly id: string
  readonly rootDir: string
  readonly runtimeFolder: string
  readonly host: LinkHost | undefined
  readonly ended: Promise<void>
}): StartedSandbox {
  const { kind, engine, id, rootDir, runtimeFolder, host } = options
  let stopping: Promise<void> | undefined
  const stop = async (): Promise<void> => {
    await host?.close()
    await removeAll(kind, engine, id)
  }
  return {
    rootDir,
    ended: options.ended,
    connect: host === undefined ? () => connectControl(path.join(runtimeFolder, 'control', 'worker.sock')) : host.pool.take,
    stop: () => {
      stopping ??= stop().catch((error: unknown) => {
        // So that it can be tried again.
        stopping = undefined
        throw error
      })
      return stopping
    },
  }
}

/** Everything that the engine has of a sandbox, and what it leaves behind. */
async function removeAll(kind: ContainerKind, { docker, attempt }: DockerEngine, id: string): Promise<void> {
  const filters = { label: [`${LABEL.sandbox}=${id}`, `${LABEL.backend}=${kind.name}`] }
  await attempt({ action: 'remove the sandbox' }, async () => {
    const containers = await docker.listContainers({ all: true, filters })
    await Promise.all(
      containers.map(async ({ Id }) => {
        await removeContainer(docker.getContainer(Id))
        await kind.sweep(Id)
      }),
    )
    for (const { Id } of await docker.listNetworks({ filters })) await removeNetwork(docker, Id)
  })
}

/** Folders of the host that the container sees. Whoever runs inside is another user there, so the folder above (0700) is what keeps others out. */
async function openFolders(runtimeFolder: string): Promise<void> {
  const [control, egress] = [path.join(runtimeFolder, 'control'), path.join(runtimeFolder, 'egress')]
  await Promise.all([control, egress].map((folder) => mkdir(folder, { recursive: true })))
  await chmod(runtimeFolder, 0o700)
  await chmod(egress, 0o755)
  await chmod(control, 0o777)
  await chmod(path.join(egress, 'gateway.sock'), 0o666).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error
  })
}

async function untilReady(
  running: RunningContainer,
  answers: (() => Promise<boolean>) | undefined,
  host: LinkHost | undefined,
  { kind, options, signal }: { readonly kind: ContainerKind; readonly options: { readonly startTimeoutMs: number }; readonly signal: AbortSignal | undefined },
): Promise<void> {
  const over = new AbortController()
  const timeout = AbortSignal.timeout(options.startTimeoutMs)
  const stopped = new Promise<'stopped'>((resolve) => {
    for (const each of [timeout, signal]) each?.addEventListener('abort', () => resolve('stopped'), { once: true, signal: over.signal })
    if (signal?.aborted === true) resolve('stopped')
  })
  try {
    const ready = answers === undefined ? (host?.pool.ready ?? Promise.resolve()) : poll(answers, over.signal)
    const outcome = await Promise.race([ready.then(() => 'ready' as const), running.ended.then(() => 'ended' as const), stopped])
    if (outcome === 'ready') return
    signal?.throwIfAborted()
    if (outcome === 'stopped') throw new DockerError('sandbox_ended', `the sandbox did not answer within ${options.startTimeoutMs} ms${kind.advice}`)
    throw endedTooEarly(running.said(), kind)
  } finally {
    over.abort()
  }
}

/** Nothing but our own programs has run in it yet, so that what it said can be relied on. */
function endedTooEarly(said: string, kind: ContainerKind): DockerError {
  if (said.includes('link: from inside these answer')) return new DockerError('network_unsafe', `the sandbox's network is not closed: ${said.slice(said.indexOf('from inside'))}`)
  if (said.includes('link: the kernel inside')) return new DockerError('runtime_unusable', `the runtime that is registered as ${kind.name} is not gVisor: ${said.slice(said.indexOf('the kernel'))}`)
  return new DockerError('sandbox_ended', `the sandbox ended as it started${said === '' ? '' : `: \`${said.slice(0, 300)}\``}`)
}

async function poll(answers: () => Promise<boolean>, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    if (await answers()) return
    await new Promise((resolve) => setTimeout(resolve, POLL_MS))
  }
}

function answers(socketPath: string): Promise<boolean> {
  return connectControl(socketPath).then(
    (socket) => {
      socket.destroy()
      return true
    },
    () => false,
  )
}

function capabilitiesOf(kind: ContainerKind, network: 'none' | 'internal'): SandboxCapabilities {
  return {
    enforcement: 'kernel',
    streaming: true,
    spawn: true,
    runtimeEgressChange: true,
    memoryLimit: true,
    processLimit: true,
    timeToLive: true,
    attach: true,
    leftOpen: [...kind.leftOpen, ...(network === 'internal' ? ['the relay beside the sandbox has a way to the host; a fault in its engine or its Node is a way out'] : [])],
  }
}

/** The host's Node goes into any image, unless the image names its own or the host's can not run there. */
function nodePathOf(given: string | undefined, labels: Readonly<Record<string, string>>): string | undefined {
  const nodePath = given ?? labels['sallyport.node']
  if (nodePath === undefined && process.platform !== 'linux') {
    throw new DockerError('image_unusable', `this machine's Node can not run in a container: use an image that has Node, and say where with \`nodePath\` or the image's label \`sallyport.node\``)
  }
  return nodePath
}

function defaultUser(writesToHost: boolean): string {
  const [uid, gid] = [process.getuid?.() ?? 0, process.getgid?.() ?? 0]
  return writesToHost && uid !== 0 && gid !== 0 ? `${uid}:${gid}` : DEFAULT_USER
}

function checkId(id: string): void {
  if (!/^[\w.-]{1,128}$/.test(id)) throw new SandboxError('SALLYPORT_SANDBOX_NOT_FOUND', 'no sandbox has such an id')
}

