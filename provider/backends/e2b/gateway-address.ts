/** Where a machine's way out leads, and to nowhere else: the gateway, as a public IPv4 literal. Decided before anything is made. */
import { lookup } from 'node:dns/promises'
import net from 'node:net'
import { judgeAddress, parseAddress } from '../../../policies/index.ts'
import { PlatformError } from '../platform/platform-error.ts'
import type { ResolvedE2bOptions } from './e2b-options.ts'

/** What the platform's firewall is told; all of it each time, since what is left out is cleared. */
export interface MachineNetwork {
  readonly allowOut: string[]
  readonly denyOut: string[]
  readonly egressProxy?: { readonly address: string; readonly username: string; readonly password: string }
  /** Of what listens inside. */
  readonly allowPublicTraffic: false
}

/** The gateway as a machine reaches it. */
export interface GatewayPlace {
  readonly protocol: 'http:' | 'https:'
  /** As its certificate has it; for `http:` the address. */
  readonly name: string
  readonly address: string
  readonly port: number
}

/**
 * Finds it. A name is resolved here and now: inside no name is.
 * @throws PlatformError `network_unsafe` for a gateway that machines can't be held to
 */
export async function findGateway(
  url: URL,
  { egress, unsafeTokenInClear, unsafePrivateGateway }: Pick<ResolvedE2bOptions, 'egress' | 'unsafeTokenInClear' | 'unsafePrivateGateway'>, // prettier-ignore
): Promise<GatewayPlace> {
  const protocol = url.protocol === 'https:' ? 'https:' : 'http:'
  if (egress === 'socks5-proxy') checkSocks(protocol, unsafeTokenInClear)
  if (protocol === 'http:' && !unsafeTokenInClear)
    throw unsafe(
      'tokens would cross the internet in the clear: give the gateway a certificate and an `https:` URL, or say `unsafeTokenInClear: true`',
    )
  const address = await resolve(url.hostname)
  const parsed = parseAddress(address)
  const verdict = parsed.ok ? judgeAddress(parsed.value, { allowPrivate: [], nat64Prefixes: [], own: [] }) : undefined
  if (verdict?.prohibited !== false && !unsafePrivateGateway)
    throw unsafe(`the gateway is at ${address} (${verdict?.class ?? 'unknown'}), which no machine of E2B reaches: it needs a public IPv4 address`) // prettier-ignore
  const port = url.port === '' ? (protocol === 'https:' ? 443 : 80) : Number(url.port)
  return { protocol, name: protocol === 'https:' ? url.hostname : address, address, port }
}

/** Everything is denied; allowing alone would restrict nothing. */
export function networkFor({ address }: GatewayPlace): MachineNetwork {
  return { allowOut: [`${address}/32`], denyOut: ['0.0.0.0/0'], allowPublicTraffic: false }
}

/**
 * Everything is denied here too: a name alone gets to the proxy, which is told the name and not the address that was dialled. Without the denial all UDP
 * would go straight out, and what has no name would come to the gateway as an address.
 */
export function proxyNetworkFor({ address, port }: GatewayPlace, handle: string): MachineNetwork {
  return {
    allowOut: ['*'],
    denyOut: ['0.0.0.0/0'],
    egressProxy: { address: `${address}:${port}`, username: 'sandbox', password: handle },
    allowPublicTraffic: false,
  }
}

function checkSocks(protocol: GatewayPlace['protocol'], unsafeTokenInClear: boolean): void {
  if (protocol === 'https:')
    throw unsafe('E2B speaks SOCKS5 to the gateway without TLS: give the `http:` URL of a listener without TLS')
  if (!unsafeTokenInClear)
    throw unsafe('E2B speaks SOCKS5 to the gateway without TLS, so handles would cross the internet in the clear: say `unsafeTokenInClear: true`, or take `egress: \'gateway-address\'`') // prettier-ignore
}

async function resolve(hostname: string): Promise<string> {
  const host = hostname.replace(/^\[|\]$/g, '')
  if (net.isIPv4(host)) return host
  if (net.isIPv6(host)) throw unsafe(`the gateway is at ${host}: machines of E2B reach IPv4 alone`)
  try {
    return (await lookup(host, { family: 4 })).address
  } catch {
    throw unsafe(`the name \`${host}\` of the gateway has no IPv4 address that could be found here`)
  }
}

function unsafe(message: string): PlatformError {
  return new PlatformError('network_unsafe', message)
}
