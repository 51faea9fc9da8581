/** Explains a decision for the command line and the control API: the layers that hold, and addresses as given, fixed or resolved. Connects nowhere. */
import {
  destinationOf,
  explain,
  faulty,
  hostText,
  parseAddress,
  type Destination,
  type Explanation,
  type HostName,
  type IpAddress,
  type Layers,
  type NetworkRules,
  type Parsed,
  parsed,
} from '../../policies/index.ts'
import type { Resolver } from '../egress/resolver.ts'
import type { Identity } from '../tokens/identity.ts'

/** What a gateway would decide by. */
export interface ExplainWorld {
  readonly layers: Layers
  readonly network: NetworkRules
  /** `undefined` where an upstream proxy resolves names. */
  readonly resolver: Pick<Resolver, 'resolve'> | undefined
  /** Whether the configuration has fixed addresses for a name. */
  readonly isFixed: (host: HostName) => boolean
}

/** Which addresses are judged. */
export interface ExplainOptions {
  /** Taken as what the name resolves to. */
  readonly addresses?: readonly IpAddress[] | undefined
  /** Asks DNS for a name that policy allows, as the gateway would. */
  readonly resolve: boolean
}

/** The explanation, and in words which addresses were judged. */
export interface Explained {
  readonly explanation: Explanation
  readonly note: string | undefined
}

/** As the gateway: a name that policy refuses is not resolved. */
export async function explainDestination(
  world: ExplainWorld,
  destination: Destination,
  options: ExplainOptions,
): Promise<Explained> {
  const { layers, network } = world
  const named = explain(layers, destination, undefined, network)
  if (named.decision.effective !== 'allow') return { explanation: named, note: undefined }
  const { addresses, note } = await findAddresses(world, destination, options)
  return { explanation: addresses === undefined ? named : explain(layers, destination, addresses, network), note }
}

/** The destination that a client would ask for by a host and a port. */
export function readDestination(host: string, port: number): Parsed<Destination> {
  if (/\/|^[^:]*:\d*$/.test(host))
    return faulty('host', 'the host stands alone, such as `api.github.com`; its port is asked for apart')
  const bare = host.includes(':') && !host.startsWith('[') ? `[${host}]` : host
  const destination = destinationOf(bare, port)
  return destination.ok
    ? destination
    : faulty(destination.fault.code, `the gateway would answer 400 target_malformed: ${destination.fault.message}`)
}

/** Addresses as a caller wrote them. */
export function readAddresses(texts: readonly string[]): Parsed<readonly IpAddress[]> {
  const addresses: IpAddress[] = []
  for (const text of texts) {
    const address = parseAddress(text)
    if (!address.ok) return faulty(address.fault.code, `\`${text.slice(0, 80)}\`: ${address.fault.message}`)
    addresses.push(address.value)
  }
  return parsed(addresses)
}

/** The answer as data: the same for both. */
export function explainedData(
  destination: Destination,
  identity: Identity | undefined,
  { explanation, note }: Explained,
): object {
  return {
    host: hostText(destination),
    port: destination.port,
    token: identity && describeIdentity(identity),
    ...explanation,
    note,
  }
}

async function findAddresses(
  { resolver, isFixed }: ExplainWorld,
  destination: Destination,
  { addresses, resolve }: ExplainOptions,
): Promise<{ readonly addresses?: readonly IpAddress[]; readonly note: string | undefined }> {
  if (destination.kind === 'address') return { note: undefined }
  if (addresses !== undefined) return { addresses, note: 'addresses as given' }
  if (resolver === undefined) return { note: 'the upstream proxy resolves the name; the gateway judges no address' }
  const fixed = isFixed(destination.host)
  if (!fixed && !resolve)
    return { note: 'the name was not resolved (--resolve does); the gateway also judges every address' }
  const resolution = await resolver.resolve(destination.host)
  if (!resolution.ok) return { note: `the name could not be resolved: ${resolution.reason}` }
  return {
    addresses: resolution.addresses,
    note: fixed ? 'addresses from `network.hosts`' : 'addresses as resolved now',
  }
}

function describeIdentity({ tokenId, issuer, keyId, tenant, sandbox, expiresAtMs }: Identity): object {
  const expiresAt = Number.isFinite(expiresAtMs)
    ? new Date(expiresAtMs).toISOString().replace(/\.\d{3}Z$/, 'Z')
    : 'never'
  return { tokenId, issuer, keyId, tenant, sandbox, expiresAt }
}
