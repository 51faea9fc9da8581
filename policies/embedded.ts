/** Which IPv4 addresses does an IPv6 address lead to? Translators and tunnels carry packets on to them. */
import { byFirstOctet, contains, embeddedIpv4, parseAddress, parseRange, rangeOf } from './address.ts'
import type { AddressRange, IpAddress, OctetPlaces } from './address.ts'
import { faulty, parsed, type Parsed } from './parsed.ts'

/** A prefix below which an IPv4 address sits at certain octets. */
export interface EmbeddingForm {
  /** `mapped`, `compatible`, `nat64`, `6to4`, `teredo`. */
  readonly class: string
  readonly range: AddressRange
  readonly places: OctetPlaces
  /** 0xff where the octets are inverted. */
  readonly mask: 0 | 0xff
  /**
   * `fixed`: the only layout. `usual` and `guess`: layouts that a network may use below a prefix for local use, unless the
   * operator says which one; a guess does not count where it reads 0/8, which nothing answers on.
   */
  readonly layout: 'fixed' | 'usual' | 'guess'
}

/** What is inside an address. */
export interface Embedded {
  /** Of the form whose IPv4 addresses are judged in place of the address; `undefined` when there is none. */
  readonly form: string | undefined
  /** Every embedded IPv4 address, also of ISATAP. */
  readonly addresses: readonly IpAddress[]
}

/** Reads an operator's NAT64 prefix; its length says where the IPv4 address is. @see RFC 6052 section 2.2 */
export function parseNat64Prefix(text: string): Parsed<EmbeddingForm> {
  const range = parseRange(text)
  if (!range.ok) return range
  const places = range.value.family === 6 ? RFC6052_PLACES.get(range.value.length) : undefined
  if (places === undefined) return faulty('nat64_prefix', 'a NAT64 prefix is IPv6 of length 32, 40, 48, 56, 64 or 96')
  return parsed({ class: 'nat64', range: range.value, places, mask: 0, layout: 'fixed' })
}

/** Looks into an address; `nat64Prefixes` are the operator's, in whose place nothing is guessed. */
export function embeddedIn(address: IpAddress, nat64Prefixes: readonly EmbeddingForm[]): Embedded {
  if (address.family === 4 || address.text === '::' || address.text === '::1') return NOTHING
  const addresses: IpAddress[] = []
  let word: string | undefined
  for (const form of nat64Prefixes) {
    if (!contains(form.range, address)) continue
    word = form.class
    addresses.push(embeddedIpv4(address, form.places, form.mask))
  }
  const isConfigured = word !== undefined
  for (const form of KNOWN_BY_OCTET[address.bytes[0] ?? 0] ?? []) {
    if (!contains(form.range, address) || (isConfigured && form.layout !== 'fixed')) continue
    word ??= form.class
    const inner = embeddedIpv4(address, form.places, form.mask)
    if (form.layout !== 'guess' || inner.bytes[0] !== 0) addresses.push(inner)
  }
  if (isIsatap(address)) addresses.push(embeddedIpv4(address, LAST_OCTETS))
  return { form: word, addresses }
}

/** Every address that dialling these leads to: themselves and what they embed. */
export function reachedBy(
  addresses: readonly IpAddress[],
  nat64Prefixes: readonly EmbeddingForm[],
): readonly IpAddress[] {
  // Nothing is embedded in IPv4.
  if (addresses.every(({ family }) => family === 4)) return addresses
  return addresses.flatMap((address) => [address, ...embeddedIn(address, nat64Prefixes).addresses])
}

const NOTHING: Embedded = { form: undefined, addresses: [] }
const LAST_OCTETS: OctetPlaces = [12, 13, 14, 15]

/** Octet 8 is left out of every form but /96. @see RFC 6052 section 2.2 */
const RFC6052_PLACES: ReadonlyMap<number, OctetPlaces> = new Map<number, OctetPlaces>([
  [32, [4, 5, 6, 7]],
  [40, [5, 6, 7, 9]],
  [48, [6, 7, 9, 10]],
  [56, [7, 9, 10, 11]],
  [64, [9, 10, 11, 12]],
  [96, LAST_OCTETS],
])

const KNOWN_FORMS: readonly EmbeddingForm[] = [
  form('mapped', '::ffff:0:0', 96, LAST_OCTETS), // RFC 4291 section 2.5.5.2
  form('compatible', '::', 96, LAST_OCTETS), // RFC 4291 section 2.5.5.1
  form('nat64', '64:ff9b::', 96, LAST_OCTETS), // RFC 6052 section 2.1
  form('6to4', '2002::', 16, [2, 3, 4, 5]), // RFC 3056 section 2
  form('teredo', '2001::', 32, LAST_OCTETS, { mask: 0xff }), // RFC 4380 section 4: the client, inverted
  form('teredo', '2001::', 32, [4, 5, 6, 7]), // and the server
  // RFC 8215 leaves the layout to the network: the last octets count, and what the other layouts would read as well.
  form('nat64', '64:ff9b:1::', 48, LAST_OCTETS, { layout: 'usual' }),
  form('nat64', '64:ff9b:1::', 48, [6, 7, 9, 10], { layout: 'guess' }),
  form('nat64', '64:ff9b:1::', 48, [7, 9, 10, 11], { layout: 'guess' }),
  form('nat64', '64:ff9b:1::', 48, [9, 10, 11, 12], { layout: 'guess' }),
]

const KNOWN_BY_OCTET = byFirstOctet(KNOWN_FORMS)

/** The interface identifier is `00-00-5e-fe` and an IPv4 address; the u and g bits may be set. @see RFC 5214 section 6.1 */
function isIsatap({ bytes }: IpAddress): boolean {
  return ((bytes[8] ?? 0) & 0xfc) === 0 && bytes[9] === 0 && bytes[10] === 0x5e && bytes[11] === 0xfe
}

function form(
  word: string,
  base: string,
  length: number,
  places: OctetPlaces,
  { mask = 0, layout = 'fixed' }: Partial<Pick<EmbeddingForm, 'mask' | 'layout'>> = {},
): EmbeddingForm {
  const address = parseAddress(base)
  if (!address.ok) throw new TypeError(`${base}: ${address.fault.message}`)
  return { class: word, range: rangeOf(address.value, length), places, mask, layout }
}
