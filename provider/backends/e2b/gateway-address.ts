/** The one address that a machine may reach: the gateway's, as a public IPv4 literal. Decided before anything is made. */
import { lookup } from 'node:dns/promises'
import net from 'node:net'
import { judgeAddress, parseAddress } from '../../../policies/index.ts'
import { PlatformError } from '../platform/platform-error.ts'
import type { ResolvedE2bOptions } from './e2b-options.ts'

/** What the platform's firewall is told; all of it each time, since what is left out is cleared. */
export interface MachineNetwork {
  readonly allowOut: string[]
  readonly denyOut: string[]
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
  { unsafeTokenInClear, unsafePrivateGateway }: Pick<ResolvedE2bOptions, 'unsafeTokenInClear' | 'unsafePrivateGateway'>,
): Promise<GatewayPlace> {
  const protocol = url.protocol === 'https:' ? 'https:' : 'http:'
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
