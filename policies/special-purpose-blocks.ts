/**
 * The blocks of the IANA special-purpose registries, also those marked globally reachable, with multicast and the
 * metadata services of clouds. Facts only; the more specific block stands first.
 * @see https://www.iana.org/assignments/iana-ipv4-special-registry (and -ipv6-)
 */
import { byFirstOctet, contains, parseRange, type AddressRange, type IpAddress } from './address.ts'

/** The word for the block that holds an address: `public` or `unallocated` when none does. Looks at nothing embedded. */
export function blockOf(address: IpAddress): string {
  const blocks = address.family === 4 ? IPV4_BY_OCTET : IPV6_BY_OCTET
  for (const { range, class: word } of blocks[address.bytes[0] ?? 0] ?? []) {
    if (contains(range, address)) return word
  }
  return address.family === 4 || contains(GLOBAL_UNICAST, address) ? 'public' : 'unallocated'
}

/** The addresses of metadata services that a range covers. */
export function metadataIn(range: AddressRange): readonly string[] {
  return [...IPV4_BLOCKS, ...IPV6_BLOCKS]
    .filter((known) => known.class === 'metadata' && known.range.family === range.family)
    .filter((known) => known.range.bits.startsWith(range.bits))
    .map((known) => known.range.text.replace(/\/.*/, ''))
}

/** A range and the word for what it is. */
interface Block {
  readonly range: AddressRange
  readonly class: string
}

/** IPv4. What no block covers is public. */
const IPV4_BLOCKS: readonly Block[] = [
  block('169.254.169.254/32', 'metadata'), // most clouds
  block('100.100.100.200/32', 'metadata'), // Alibaba
  block('168.63.129.16/32', 'metadata'), // Azure's wire server, in public space
  block('192.0.0.192/32', 'metadata'), // Oracle
  block('0.0.0.0/8', 'this-network'), // RFC 791
  block('10.0.0.0/8', 'private'), // RFC 1918
  block('100.64.0.0/10', 'shared'), // RFC 6598
  block('127.0.0.0/8', 'loopback'), // RFC 1122
  block('169.254.0.0/16', 'link-local'), // RFC 3927
  block('172.16.0.0/12', 'private'), // RFC 1918
  block('192.0.0.0/24', 'protocol-assignments'), // RFC 6890; holds DS-Lite, PCP, TURN, NAT64 discovery
  block('192.0.2.0/24', 'documentation'), // RFC 5737
  block('192.31.196.0/24', 'as112'), // RFC 7535
  block('192.52.193.0/24', 'amt'), // RFC 7450
  block('192.88.99.0/24', '6to4-relay'), // RFC 7526; holds the 6a44 relay of RFC 6751
  block('192.168.0.0/16', 'private'), // RFC 1918
  block('192.175.48.0/24', 'as112'), // RFC 7534
  block('198.18.0.0/15', 'benchmarking'), // RFC 2544
  block('198.51.100.0/24', 'documentation'), // RFC 5737
  block('203.0.113.0/24', 'documentation'), // RFC 5737
  block('224.0.0.0/4', 'multicast'), // RFC 5771
  block('255.255.255.255/32', 'broadcast'), // RFC 919
  block('240.0.0.0/4', 'reserved'), // RFC 1112
]

/** IPv6. What no block covers is public inside 2000::/3 and unallocated outside. Forms that embed IPv4 come before. */
const IPV6_BLOCKS: readonly Block[] = [
  block('::/128', 'unspecified'), // RFC 4291
  block('::1/128', 'loopback'), // RFC 4291
  block('fd00:ec2::254/128', 'metadata'), // AWS
  block('fd20:ce::254/128', 'metadata'), // Google
  block('fd00:42::42/128', 'metadata'), // Scaleway
  block('100::/64', 'discard'), // RFC 6666
  block('100:0:0:1::/64', 'dummy'), // RFC 9780
  block('2001:2::/48', 'benchmarking'), // RFC 5180
  block('2001:3::/32', 'amt'), // RFC 7450
  block('2001:4:112::/48', 'as112'), // RFC 7535
  block('2001:10::/28', 'orchid'), // RFC 4843, deprecated
  block('2001:20::/28', 'orchid'), // RFC 7343
  block('2001:30::/28', 'drone-remote-id'), // RFC 9374
  block('2001::/23', 'protocol-assignments'), // RFC 2928; holds PCP, TURN and DNS-SD anycast
  block('2001:db8::/32', 'documentation'), // RFC 3849
  block('2620:4f:8000::/48', 'as112'), // RFC 7534
  block('3fff::/20', 'documentation'), // RFC 9637
  block('5f00::/16', 'segment-routing'), // RFC 9602
  block('fc00::/7', 'unique-local'), // RFC 4193
  block('fe80::/10', 'link-local'), // RFC 4291
  block('fec0::/10', 'site-local'), // RFC 3879, deprecated
  block('ff00::/8', 'multicast'), // RFC 4291
]

/** The only part of IPv6 that is allocated as global unicast. */
const GLOBAL_UNICAST: AddressRange = block('2000::/3', 'public').range

const IPV4_BY_OCTET = byFirstOctet(IPV4_BLOCKS)
const IPV6_BY_OCTET = byFirstOctet(IPV6_BLOCKS)

function block(text: string, word: string): Block {
  const range = parseRange(text)
  if (!range.ok) throw new TypeError(`${text}: ${range.fault.message}`)
  return { range: range.value, class: word }
}
