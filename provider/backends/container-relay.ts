/** A sandbox's neighbour on a network of its own: it has one foot outside, and carries bytes between the sandbox and the host. */
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import type { StartRequest } from '../backend.ts'
import { SandboxError } from '../sandbox-error.ts'
import type { LinkSettings } from './container-link.ts'
import type { ResolvedContainerOptions } from './container-options.ts'
import { LINK_FILE, planRelay, RELAY_PORTS } from './container-plan.ts'
import type { Toolbox } from './container-toolbox.ts'
import { createContainer, startContainer } from './docker-container.ts'
import type { DockerEngine } from './docker-engine.ts'
import type { EngineFacts, ImageFacts } from './engine-facts.ts'
import { createNetwork, findOuterNetworks, type OuterNetwork } from './docker-network.ts'
import { createSecret, helloOf, type LinkHost, listenTcpLink } from './link-host.ts'

/** A relay that runs. */
export interface Relay {
  /** Name of the network. */
  readonly network: string
  /** On that network. */
  readonly address: string
  readonly host: LinkHost
  /** For the sandbox to try before anything else runs in it. */
  readonly unreachable: NonNullable<LinkSettings['unreachable']>
}

/** Kept in the sandbox's folder, for a process that attaches: the relay knows one place on the host, and it has to be that. */
interface RelayRecord {
  readonly host: string
  readonly port: number
  readonly secret: string
}

const RECORD_FILE = 'relay.json'
/** Besides the host's own listener: what most hosts have. Being refused counts as well, so that any port would do. */
const PROBED_PORTS = [53]

/** Makes network, listener and relay. What it made is found and removed by its labels; `undo` closes the listener. */
export async function openRelay(
  options: {
    readonly engine: DockerEngine
    readonly facts: EngineFacts
    readonly image: ImageFacts
    readonly toolbox: Toolbox
    readonly options: ResolvedContainerOptions
    readonly user: string
    readonly name: string
    readonly runtimeFolder: string
    readonly timeoutMs: number | undefined
    readonly labels: (part: 'relay' | 'network') => Readonly<Record<string, string>>
  },
  undo: StartRequest['undo'],
): Promise<Relay> {
  const { engine, facts, name, runtimeFolder, labels, timeoutMs } = options
  const { docker, attempt } = engine
  const about = { image: options.options.image, name: `${name}-relay` }
  const network = await attempt({ action: 'create the network', name }, () =>
    createNetwork(docker, facts, { name, labels: labels('network') }),
  )
  const secret = createSecret()
  const outers = await attempt({ action: 'look for the way to the host' }, () => findOuterNetworks(docker))
  const { outer, host } = await listenAtFirst(outers, { secret, gatewaySocket: gatewaySocketOf(runtimeFolder) })
  undo('relay listener', host.close)

  const folder = path.join(runtimeFolder, 'relay')
  await mkdir(folder, { recursive: true })
  await chmod(folder, 0o755)
  const target = { host: outer.relayHost, port: host.port }
  const settings: LinkSettings = {
    listeners: (['egress', 'control'] as const).map((purpose) => ({
      listen: { subnet: network.subnet, port: RELAY_PORTS[purpose] },
      connect: target,
      hello: helloOf(secret, purpose),
    })),
    ...(timeoutMs !== undefined && { timeToLiveMs: timeoutMs }),
  }
  await writeFile(path.join(folder, LINK_FILE), JSON.stringify(settings), { mode: 0o644 })
  const record: RelayRecord = { host: outer.listenHost, port: host.port, secret }
  await writeFile(path.join(runtimeFolder, RECORD_FILE), JSON.stringify(record), { mode: 0o600 })

  // Never under another kernel: it is ours, and a network of gVisor's would be one more thing between.
  const container = await attempt({ action: 'create the relay', ...about }, async () => {
    const made = await createContainer(
      docker,
      `${name}-relay`,
      planRelay({ ...options, folder, runtime: undefined, labels: labels('relay'), relayHost: outer.relayHost }),
    )
    await docker.getNetwork(network.id).connect({ Container: made.id })
    return made
  })
  const running = await attempt({ action: 'start the relay', ...about }, () => startContainer(container))
  running.detach()
  const { NetworkSettings } = await attempt({ action: 'look at the relay', ...about }, () => container.inspect())
  const address = NetworkSettings.Networks[network.name]?.IPAddress
  if (address === undefined || address === '')
    throw new SandboxError('SALLYPORT_SANDBOX_BACKEND_FAILED', 'the relay ended as it started')
  return {
    network: network.name,
    address,
    host,
    unreachable: network.hostAddresses
      .filter((each) => each !== address)
      .flatMap((each) => [host.port, ...PROBED_PORTS].map((port) => ({ host: each, port }))),
  }
}

async function listenAtFirst(
  outers: readonly OuterNetwork[],
  options: { readonly secret: string; readonly gatewaySocket: string },
): Promise<{ readonly outer: OuterNetwork; readonly host: LinkHost }> {
  let cause: unknown
  for (const outer of outers) {
    try {
      return { outer, host: await listenTcpLink({ ...options, host: outer.listenHost, port: 0 }) }
    } catch (error) {
      cause = error
    }
  }
  throw new SandboxError(
    'SALLYPORT_SANDBOX_BACKEND_FAILED',
    "can not listen where a relay would reach this process; use `network: 'none'`",
    { cause },
  )
}

/** Listens again where the relay of a running sandbox expects it. @throws SandboxError when another process listens there */
export async function readRelay(runtimeFolder: string): Promise<LinkHost> {
  try {
    const record = JSON.parse(await readFile(path.join(runtimeFolder, RECORD_FILE), 'utf8')) as RelayRecord
    return await listenTcpLink({ ...record, gatewaySocket: gatewaySocketOf(runtimeFolder) })
  } catch (cause) {
    throw new SandboxError(
      'SALLYPORT_SANDBOX_CONNECTION_LOST',
      'the sandbox can not be attached to: another program listens where its relay expects its host',
      { cause },
    )
  }
}

function gatewaySocketOf(runtimeFolder: string): string {
  return path.join(runtimeFolder, 'egress', 'gateway.sock')
}
