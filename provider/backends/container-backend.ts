/** What docker and runsc have in common: a sandbox is a container, with two byte channels to the host and nothing else. */
import { chmod, mkdir, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import type { Backend, StartedSandbox } from '../backend.ts'
import { SandboxError } from '../sandbox-error.ts'
import type { SandboxCapabilities, SandboxInfo } from '../sandbox.ts'
import { infoOf, LABEL, labelsOf } from './container-labels.ts'
import { resolveLayout } from './container-layout.ts'
import { type ContainerOptions, resolveContainerOptions } from './container-options.ts'
import { type ContainerChannel, DIAL_SOCKET, LINK_FILE, planSandbox, SETTINGS_FILE } from './container-plan.ts'
import { untilReady } from './container-ready.ts'
import { openRelay, readRelay, type Relay } from './container-relay.ts'
import { openToolbox } from './container-toolbox.ts'
import { connectControl } from './control-socket.ts'
import { createContainer, ended, removeContainer, type RunningContainer, startContainer } from './docker-container.ts'
import { type DockerEngine, openEngine } from './docker-engine.ts'
import type { EngineFacts } from './engine-facts.ts'
import { DockerError } from './docker-error.ts'
import { removeNetwork } from './docker-network.ts'
import { type LinkHost, listenUnixLink } from './link-host.ts'
import { reachLink, shareLink, type SharedLink } from './link-share.ts'

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
      const folders =
        options.layout === undefined ? [] : resolveLayout(options.layout, { runtimeRoot: path.dirname(runtimeFolder) })
      const user =
        options.user ?? defaultUser(folders.some(({ hostPath, writable }) => hostPath !== undefined && writable))
      const toolbox = await openToolbox(nodePathOf(options.nodePath, image.labels))
      const labels = (part: 'sandbox' | 'relay' | 'network', channel: string): Record<string, string> =>
        labelsOf({
          id,
          backend: kind.name,
          part,
          rootDir: folders[0]?.path ?? '',
          runtimeFolder,
          channel,
          labels: request.labels,
        })
      const name = `sallyport-${id}`
      signal?.throwIfAborted()

      // Whatever of this sandbox the engine has by then, found by its label: a name may be somebody else's.
      undo('container', () => removeAll(kind, engine, id))
      let relay: Relay | undefined
      let host: LinkHost | undefined
      let channel: ContainerChannel = { kind: kind.channel }
      if (options.network === 'internal') {
        relay = await openRelay(
          {
            engine,
            facts,
            image,
            toolbox,
            options,
            user,
            name,
            runtimeFolder,
            timeoutMs: request.timeoutMs,
            labels: (part) => labels(part, 'dial-tcp'),
          },
          undo,
        )
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
      if (plan.link !== undefined)
        await writeFile(path.join(control, LINK_FILE), JSON.stringify(plan.link), { mode: 0o644 })
      signal?.throwIfAborted()

      const about = { image: options.image, name, runtime }
      const container = await attempt({ action: 'create the container', ...about }, () =>
        createContainer(docker, name, {
          ...plan.create,
          Labels: { ...labels('sandbox', channel.kind), [LABEL.rootDir]: plan.rootDir },
        }),
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
        await untilReady({
          running,
          on: host === undefined ? { socketPath: path.join(control, 'worker.sock') } : { ready: host.pool.ready },
          timeoutMs: options.startTimeoutMs,
          signal,
          name: kind.name,
          advice: kind.advice,
        })
      } finally {
        running.detach()
      }
      // The socket is there: from now on nobody inside can put another in its place, nor fill the host's disk.
      await chmod(control, 0o755)
      const link = host === undefined ? undefined : await shareLink(runtimeFolder, host)
      return {
        ...sandbox({ kind, engine, id, rootDir: plan.rootDir, runtimeFolder, link, ended: running.ended }),
        ...(relay !== undefined && { directTargets: relay.unreachable }),
        // The worker can't always: behind a link it reads them when the folder is closed to it already.
        answered: async () => {
          await Promise.all([SETTINGS_FILE, LINK_FILE].map((file) => rm(path.join(control, file), { force: true })))
        },
      }
    },

    list: async () => {
      const { docker, ask } = await open()
      const filters = { label: [`${LABEL.backend}=${kind.name}`] }
      const found = new Map<string, SandboxInfo>()
      await ask({ action: 'list the containers' }, async () => {
        const [containers, networks] = await Promise.all([
          docker.listContainers({ all: true, filters }),
          docker.listNetworks({ filters }),
        ])
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
        const [containers, networks] = await Promise.all([
          docker.listContainers({ all: true, filters }),
          docker.listNetworks({ filters }),
        ])
        const own = containers.find(({ Labels }) => Labels[LABEL.part] === 'sandbox')
        const labels = own?.Labels ?? containers[0]?.Labels ?? networks[0]?.Labels
        if (labels === undefined) return undefined
        const {
          [LABEL.runtimeFolder]: runtimeFolder = '',
          [LABEL.rootDir]: rootDir = '',
          [LABEL.channel]: channel,
        } = labels
        const isRunning = own?.State === 'running'
        const takeOver = (): Promise<LinkHost> =>
          channel === 'dial-tcp'
            ? readRelay(runtimeFolder)
            : listenUnixLink(path.join(runtimeFolder, 'egress', DIAL_SOCKET))
        const link = channel === 'socket' ? undefined : reachLink(runtimeFolder, takeOver)
        const isOver = own === undefined || !isRunning ? Promise.resolve() : ended(docker.getContainer(own.Id))
        return sandbox({ kind, engine, id, rootDir, runtimeFolder, link, ended: isOver })
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
  /** Where the sandbox dials. */
  readonly link: SharedLink | undefined
  readonly ended: Promise<void>
}): StartedSandbox {
  const { kind, engine, id, rootDir, runtimeFolder, link } = options
  let stopping: Promise<void> | undefined
  const stop = async (): Promise<void> => {
    await link?.close()
    await removeAll(kind, engine, id)
  }
  return {
    rootDir,
    ended: options.ended,
    connect: link?.connect ?? (() => connectControl(path.join(runtimeFolder, 'control', 'worker.sock'))),
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
}

function capabilitiesOf(kind: ContainerKind, network: 'none' | 'internal'): SandboxCapabilities {
  return {
    enforcement: 'kernel',
    streaming: true,
    spawn: true,
    runtimeEgressChange: true,
    // The memory of a kernel of its own is one process's to the host.
    memoryLimit: kind.foreignKernel ? 'sandbox' : 'command',
    processLimit: true,
    timeToLive: true,
    attach: true,
    leftOpen: [
      ...kind.leftOpen,
      ...(network === 'internal'
        ? ['the relay beside the sandbox has a way to the host; a fault in its engine or its Node is a way out']
        : []),
    ],
  }
}

/** The host's Node goes into any image, unless the image names its own or the host's can not run there. */
function nodePathOf(given: string | undefined, labels: Readonly<Record<string, string>>): string | undefined {
  const nodePath = given ?? labels['sallyport.node']
  if (nodePath === undefined && process.platform !== 'linux') {
    throw new DockerError(
      'image_unusable',
      `this machine's Node can not run in a container: use an image that has Node, and say where with \`nodePath\` or the image's label \`sallyport.node\``,
    )
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
