/** What is an IP address or a range of them, and how is it spelled? Judges nothing: see special-purpose.ts. */
import { faulty, parsed, type Parsed } from './parsed.ts'

const OCTET_BITS = Array.from({ length: 256 }, (_unused, octet) => octet.toString(2).padStart(8, '0'))

/** Set by the class itself: nothing outside this file can make an address that was not parsed. */
let makeAddress: (bytes: readonly number[]) => IpAddress

/** An IPv4 or IPv6 address, immutable. Only {@link parseAddress} and {@link embeddedIpv4} make one. */
export class IpAddress {
  static {
    makeAddress = (bytes) => new IpAddress(bytes)
  }
  readonly #parsed = true
  readonly family: 4 | 6
  /** 4 or 16 octets, frozen. */
  readonly bytes: readonly number[]
  /** Canonical: dotted decimal, or RFC 5952 without brackets. */
  readonly text: string
  /** The same as 32 or 128 digits `0` and `1`: a range is a prefix of it. */
  readonly bits: string

  private constructor(bytes: readonly number[]) {
    this.bytes = Object.freeze(bytes)
    this.family = bytes.length === 4 ? 4 : 6
    this.bits = bitsOf(bytes)
    this.text = this.family === 4 ? bytes.join('.') : formatIpv6(bytes, this.bits)
    Object.freeze(this)
  }

  /** Whether a value is an address that this file made. */
  static isAddress(value: unknown): value is IpAddress {
    return typeof value === 'object' && value !== null && #parsed in value
  }
}

/** A CIDR range: every address of the family whose bits begin with {@link AddressRange.bits}. */
export interface AddressRange {
  readonly family: 4 | 6
  /** Prefix length: 0 to 32 or 128. */
  readonly length: number
  /** The prefix as digits `0` and `1`. */
  readonly bits: string
  /** Canonical, such as `198.51.100.0/24` or `2001:db8::/32`. */
  readonly text: string
}

/**
 * Reads an address: IPv4 in canonical dotted decimal only, IPv6 in any lawful spelling, without brackets or zone.
 * Fault: `address`. The message does not repeat the input.
 * @see RFC 4291 section 2.2, RFC 5952 for the canonical text
 */
export function parseAddress(text: string): Parsed<IpAddress> {
  const bytes = text.includes(':') ? ipv6Bytes(text) : ipv4Bytes(text)
  if (bytes !== undefined) return parsed(makeAddress(bytes))
  return faulty('address', 'not an IP address; write `203.0.113.7` or `2001:db8::7`')
}

/**
 * Reads `base/length` in canonical spelling, without host bits and not of IPv4-mapped addresses. Fault: `address`, with
 * the right form as hint where one is plain.
 * @see RFC 4632 section 3.1
 */
export function parseRange(text: string): Parsed<AddressRange> {
  const slash = text.indexOf('/')
  const base = parseAddress(text.slice(0, Math.max(slash, 0)))
  if (slash < 0 || !base.ok) return faulty('address', 'not a range; write `198.51.100.0/24` or `2001:db8::/32`')
  const width = base.value.bits.length
  const length = readPrefixLength(text.slice(slash + 1))
  if (length === undefined || length > width) {
    return faulty('address', `a prefix length is a whole number from 0 to ${width}`)
  }
  const range = rangeOf(base.value, length)
  const right = range.bits.startsWith(MAPPED_BITS) ? unmappedRange(base.value, length) : range
  if (right.text !== text) {
    return faulty('address', 'a range is written without host bits, spare zeros or upper case', right.text)
  }
  return parsed(range)
}

/** The range of all addresses that share the first `length` bits with this one. */
export function rangeOf(address: IpAddress, length: number): AddressRange {
  const bits = address.bits.slice(0, length)
  const hasHostBits = address.bits.includes('1', length)
  const base = hasHostBits
    ? makeAddress(address.bytes.map((byte, place) => byte & networkMask(length - 8 * place)))
    : address
  return Object.freeze({ family: address.family, length, bits, text: `${base.text}/${length}` })
}

/** Whether the address is in the range; addresses of the other family never are. */
export function contains(range: AddressRange, address: IpAddress): boolean {
  return range.family === address.family && address.bits.startsWith(range.bits)
}

/** Sorts things with a range by the first octet of the addresses they may hold, in their order: a look-up's short list. */
export function byFirstOctet<T extends { readonly range: AddressRange }>(
  things: readonly T[],
): readonly (readonly T[])[] {
  return OCTET_BITS.map((octet) =>
    things.filter(({ range }) => range.bits.startsWith(octet) || octet.startsWith(range.bits)),
  )
}

/** Where in the 16 octets the four of an IPv4 address sit. */
export type OctetPlaces = readonly [number, number, number, number]

/** The IPv4 address at these places of an IPv6 address; `mask` 0xff inverts the octets. */
export function embeddedIpv4(address: IpAddress, places: OctetPlaces, mask: 0 | 0xff = 0): IpAddress {
  return makeAddress(places.map((place) => (address.bytes[place] ?? 0) ^ mask))
}

/** `::ffff:0:0/96` */
const MAPPED_BITS = '0'.repeat(80) + '1'.repeat(16)

/** The IPv4 address inside an IPv4-mapped one. @see RFC 4291 section 2.5.5.2 */
export function unmapped(address: IpAddress): IpAddress | undefined {
  if (address.family === 4 || !address.bits.startsWith(MAPPED_BITS)) return undefined
  return embeddedIpv4(address, [12, 13, 14, 15])
}

function unmappedRange(base: IpAddress, length: number): AddressRange {
  return rangeOf(embeddedIpv4(base, [12, 13, 14, 15]), length - 96)
}

/** Reads `24`, and for the hint also `024` and `255.255.255.0`; the caller compares with the canonical text. */
function readPrefixLength(text: string): number | undefined {
  if (/^[0-9]{1,4}$/.test(text)) return Number(text)
  const netmask = ipv4Bytes(text)
  if (netmask === undefined) return undefined
  const [ones, ...rest] = bitsOf(netmask).split('0')
  return rest.some((run) => run !== '') ? undefined : ones?.length
}

/** Of one octet, the bits that belong to the network when `bitsLeft` of the prefix begin with it. */
function networkMask(bitsLeft: number): number {
  if (bitsLeft >= 8) return 0xff
  return bitsLeft <= 0 ? 0 : 0xff & (0xff << (8 - bitsLeft))
}

function ipv4Bytes(text: string): number[] | undefined {
  if (text.length > 15) return undefined
  const bytes: number[] = []
  for (const octet of text.split('.')) {
    if (!/^(?:0|[1-9][0-9]{0,2})$/.test(octet) || Number(octet) > 255) return undefined
    bytes.push(Number(octet))
  }
  return bytes.length === 4 ? bytes : undefined
}

function ipv6Bytes(text: string): number[] | undefined {
  if (text.length > 45) return undefined
  const [head = '', tail, ...more] = text.split('::')
  if (more.length > 0) return undefined
  const before = groupBytes(head, tail === undefined)
  if (tail === undefined) return before?.length === 16 ? before : undefined
  const after = groupBytes(tail, true)
  if (before === undefined || after === undefined) return undefined
  const missing = 16 - before.length - after.length
  return missing < 2 ? undefined : [...before, ...Array<number>(missing).fill(0), ...after]
}

/** Reads groups between colons; only the last one of the address may be four octets in dots. */
function groupBytes(text: string, isLast: boolean): number[] | undefined {
  if (text === '') return []
  const bytes: number[] = []
  const groups = text.split(':')
  for (const [index, group] of groups.entries()) {
    if (/^[0-9a-f]{1,4}$/i.test(group)) {
      const value = Number.parseInt(group, 16)
      bytes.push(value >> 8, value & 0xff)
      continue
    }
    const octets = isLast && index === groups.length - 1 ? ipv4Bytes(group) : undefined
    if (octets === undefined) return undefined
    bytes.push(...octets)
  }
  return bytes
}

/** RFC 5952 sections 4 and 5: the first longest run of two or more zero groups is `::`; a mapped address ends in dots. */
function formatIpv6(bytes: readonly number[], bits: string): string {
  if (bits.startsWith(MAPPED_BITS)) return `::ffff:${bytes.slice(12).join('.')}`
  const groups: string[] = []
  for (let place = 0; place < 16; place += 2) {
    groups.push((((bytes[place] ?? 0) << 8) | (bytes[place + 1] ?? 0)).toString(16))
  }
  let runStart = 0
  let runLength = 1
  for (let start = 0; start < 8; start += 1) {
    let end = start
    while (groups[end] === '0') end += 1
    if (end - start > runLength) [runStart, runLength] = [start, end - start]
  }
  if (runLength < 2) return groups.join(':')
  return `${groups.slice(0, runStart).join(':')}::${groups.slice(runStart + runLength).join(':')}`
}

function bitsOf(bytes: readonly number[]): string {
  let bits = ''
  for (const byte of bytes) bits += OCTET_BITS[byte] ?? ''
  return bits
}
