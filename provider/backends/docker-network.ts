/**
 * A network of one sandbox's own: no way out of it, no address of the host on it, and one neighbour, the relay, which carries bytes to the host and nowhere else.
 *
 * What the engine promises of such a network is not trusted: the sandbox's first program tries the host's addresses, and nothing else starts if one answers.
 */
import os from 'node:os'
import type Docker from 'dockerode'
import { statusOf } from './docker-error.ts'
import type { EngineFacts } from './engine-facts.ts'

/** A network that was made. */
export interface SandboxNetwork {
  readonly id: string
  readonly name: string
  /** IPv4, CIDR. */
  readonly subnet: string
  /** Addresses that must not answer from inside. */
  readonly hostAddresses: readonly string[]
}

/** The engine's own network, by which a relay reaches the host. */
export interface OuterNetwork {
  /** Where the host listens. */
  readonly listenHost: string
  /** How a relay calls that place. */
  readonly relayHost: string
}

const REMOVAL_PATIENCE_MS = 15_000
const RETRY_MS = 100

/** Makes it. Its name may be taken twice over: engines number networks, so look for it by its label. */
export async function createNetwork(
  docker: Docker,
  facts: EngineFacts,
  options: { readonly name: string; readonly labels: Readonly<Record<string, string>> },
): Promise<SandboxNetwork> {
  const body = {
    Name: options.name,
    Driver: 'bridge',
    CheckDuplicate: true,
    Internal: true,
    EnableIPv6: false,
    Attachable: false,
    Labels: { ...options.labels },
    Options:
      facts.major >= 28
        ? { 'com.docker.network.bridge.gateway_mode_ipv4': 'isolated' }
        : // Before that the engine ignores the mode. Without an address of the host on the bridge, nobody there can speak to the host.
          { 'com.docker.network.bridge.inhibit_ipv4': 'true' },
  }
  // Told apart from the query, into which the client would put it as well.
  const parts: typeof body & { readonly _query: object; readonly _body: object } = { ...body, _query: {}, _body: body }
  const network = await docker.createNetwork(parts)
  const found = (await network.inspect()) as NetworkReply
  const { Subnet: subnet, Gateway: gateway } =
    found.IPAM?.Config?.find(({ Subnet }) => Subnet?.includes('.') === true) ?? {}
  if (found.Internal !== true || found.EnableIPv6 === true || subnet === undefined)
    throw new Error('the engine did not make the network as it was told')
  const outer = await outerAddress(docker)
  return {
    id: network.id,
    name: options.name,
    subnet,
    hostAddresses: [
      ...new Set([...withFirst(subnet, gateway), ...(outer === undefined ? [] : [outer]), ...ownAddresses()]),
    ],
  }
}

/** Where the host and a relay may meet; the first at which this process can listen is right. */
export async function findOuterNetworks(docker: Docker): Promise<readonly OuterNetwork[]> {
  const address = await outerAddress(docker)
  return [
    ...(address === undefined ? [] : [{ listenHost: address, relayHost: address }]),
    // The engine runs elsewhere, as Docker Desktop does in a virtual machine, which carries this name to the host's loopback.
    { listenHost: '127.0.0.1', relayHost: 'host.docker.internal' },
  ]
}

/** Waits for endpoints that are still being taken away. */
export async function removeNetwork(docker: Docker, id: string): Promise<void> {
  const untilMs = performance.now() + REMOVAL_PATIENCE_MS
  for (;;) {
    try {
      await docker.getNetwork(id).remove()
      return
    } catch (error) {
      if (statusOf(error) === 404) return
      if (performance.now() > untilMs) throw error
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS).unref())
  }
}

/** The host's on the engine's own bridge. Old engines don't name it before the first container; it is the first of the subnet then. */
async function outerAddress(docker: Docker): Promise<string | undefined> {
  const found = (await docker.getNetwork('bridge').inspect()) as NetworkReply
  const config = found.IPAM?.Config?.find(({ Subnet }) => Subnet?.includes('.') === true)
  return config?.Gateway ?? (config?.Subnet === undefined ? undefined : firstOf(config.Subnet))
}

/** Besides what the engine calls the gateway, the first address: engines have put themselves there without saying so. */
function withFirst(subnet: string, gateway: string | undefined): readonly string[] {
  // A gateway in CIDR notation was seen, too.
  return [firstOf(subnet), ...(gateway === undefined || gateway === '' ? [] : [gateway.split('/', 1)[0] ?? gateway])]
}

function firstOf(subnet: string): string {
  const [base = ''] = subnet.split('/', 1)
  return base.replace(/\d+$/, (last) => String(Number(last) + 1))
}

/** This machine's, as far as this process sees them. */
function ownAddresses(): readonly string[] {
  return Object.values(os.networkInterfaces())
    .flat()
    .filter((each) =>
      each?.internal === false && each.scopeid !== undefined ? each.scopeid === 0 : each?.internal === false,
    )
    .map((each) => each?.address ?? '')
    .filter((address) => address !== '')
}

interface NetworkReply {
  readonly Internal?: boolean
  readonly EnableIPv6?: boolean
  readonly IPAM?: { readonly Config?: readonly { readonly Subnet?: string; readonly Gateway?: string }[] | null }
}
