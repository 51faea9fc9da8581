/** What the platform says to a network that it does not take. */
import { lookup } from 'node:dns/promises'
import net from 'node:net'
import type { E2bNetwork, E2bServerOptions } from './contract-server.ts'

/** RFC 1929. */
const MAX_BYTES = 255
const INTERNAL = new net.BlockList()
for (const [address, length] of [['0.0.0.0', 8], ['10.0.0.0', 8], ['100.64.0.0', 10], ['127.0.0.0', 8], ['169.254.0.0', 16], ['172.16.0.0', 12], ['192.168.0.0', 16]] as const) INTERNAL.addSubnet(address, length) // prettier-ignore
for (const [address, length] of [['::', 128], ['::1', 128], ['fc00::', 7], ['fe80::', 10]] as const) INTERNAL.addSubnet(address, length, 'ipv6') // prettier-ignore

/** Status and body; undefined for one that is taken. */
export async function refusedNetwork(
  { allowOut = [], denyOut = [], egressProxy }: E2bNetwork,
  { egressProxies = true, internalProxies = false }: Pick<E2bServerOptions, 'egressProxies' | 'internalProxies'>,
): Promise<[number, unknown] | undefined> {
  const refuse = (code: number, message: string): [number, unknown] => [code, { code, message }]
  const isAddress = (entry: string): boolean => /^[\d./]+$/.test(entry)
  if (!denyOut.every(isAddress)) return refuse(400, 'invalid denied CIDR')
  if (!allowOut.every(isAddress) && !denyOut.includes('0.0.0.0/0'))
    return refuse(400, "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block all other traffic.") // prettier-ignore
  if (egressProxy === undefined || egressProxy === null) return undefined
  if (!egressProxies) return refuse(403, 'Egress proxy (network.egressProxy) is not enabled for this team')
  const { address, username = '', password = '' } = egressProxy
  const [, host = '', port = ''] = /^(.+):(\d{1,5})$/.exec(address) ?? []
  if (host === '' || Number(port) < 1 || Number(port) > 65_535)
    return refuse(400, 'egress proxy address must be in host:port form')
  const places = await lookup(host.replace(/^\[|\]$/g, ''), { all: true }).catch(() => [])
  if (places.length === 0) return refuse(400, 'the host of the egress proxy does not resolve')
  if (!internalProxies && places.some((each) => INTERNAL.check(each.address, each.family === 6 ? 'ipv6' : 'ipv4')))
    return refuse(400, 'egress proxy endpoint resolves to an internal / denied IP range')
  if (username === '' && password !== '')
    return refuse(400, 'egress proxy password must be empty when username is empty')
  for (const [what, text] of Object.entries({ username, password }))
    if (Buffer.byteLength(text) > MAX_BYTES)
      return refuse(400, `egress proxy ${what} must not exceed ${MAX_BYTES} bytes`)
  return undefined
}
