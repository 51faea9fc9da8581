/**
 * Which addresses may never be dialled, whatever a policy says? Special-purpose addresses, what embeds one, and the
 * gateway itself. Only the operator's `network.allowPrivate` lifts any of it, and never the last.
 */
import { contains, parseAddress, parseRange, unmapped } from './address.ts'
import type { AddressRange, IpAddress } from './address.ts'
import { embeddedIn, parseNat64Prefix, reachedBy, type EmbeddingForm } from './embedded.ts'
import { quoted, type Checked, type Fault, type LocatedFault, type Parsed } from './parsed.ts'
import { blockOf } from './special-purpose-blocks.ts'

/** What the operator says about addresses; see {@link parseNetworkRules}. */
export interface NetworkRules {
  /** Special-purpose ranges that may be dialled all the same. */
  readonly allowPrivate: readonly AddressRange[]
  /** NAT64 prefixes beside the well-known ones. */
  readonly nat64Prefixes: readonly EmbeddingForm[]
  /** The gateway's own listeners: never reachable through it. */
  readonly own: readonly OwnListener[]
}

/** A TCP listener of the gateway. */
export interface OwnListener {
  /** What it is bound to; `any` for a wildcard bind: then loopback and `localAddresses` all lead to it. */
  readonly addresses: readonly IpAddress[] | 'any'
  /** The addresses of this machine's interfaces as they are when this is read, which happens only where it matters: for a wildcard bind and its port. */
  readonly localAddresses: readonly IpAddress[]
  readonly port: number
}

/** What an address is. */
export interface AddressVerdict {
  readonly prohibited: boolean
  /** `public`, or a stable word for the block (`private`, `metadata`, …) or the form (`mapped`, `nat64`, …). */
  readonly class: string
}

/** Reads the operator's settings; a single address counts as a range of one. Every fault, with its path. */
export function parseNetworkRules(
  settings: {
    readonly allowPrivate?: readonly string[] | undefined
    readonly nat64Prefixes?: readonly string[] | undefined
  },
  own: readonly OwnListener[] = [],
): Checked<NetworkRules> {
  const faults: LocatedFault[] = []
  const allowPrivate: AddressRange[] = []
  const nat64Prefixes: EmbeddingForm[] = []
  for (const [index, text] of (settings.allowPrivate ?? []).entries()) {
    const range = parseRangeOrAddress(text)
    if (range.ok) allowPrivate.push(range.value)
    else faults.push(located(`allowPrivate[${index}]`, text, range.fault))
  }
  for (const [index, text] of (settings.nat64Prefixes ?? []).entries()) {
    const range = parseNat64Prefix(text)
    if (range.ok) nat64Prefixes.push(range.value)
    else faults.push(located(`nat64Prefixes[${index}]`, text, range.fault))
  }
  return faults.length > 0 ? { ok: false, faults } : { ok: true, value: { allowPrivate, nat64Prefixes, own } }
}

/** Judges what would be dialled. An address of the gateway's own listeners is of the class `own-listener`. */
export function judgeEndpoint(address: IpAddress, port: number, rules: NetworkRules): AddressVerdict {
  if (isOwnListener(address, port, rules)) return { prohibited: true, class: 'own-listener' }
  return judgeAddress(address, rules)
}

/**
 * Judges an address. Where it embeds IPv4 addresses in a known form, those are judged in its place; an ISATAP address
 * is judged itself, and what it embeds as well.
 */
export function judgeAddress(address: IpAddress, rules: NetworkRules): AddressVerdict {
  const { form, addresses } = embeddedIn(address, rules.nat64Prefixes)
  const embedsProhibited = addresses.some((inner) => isProhibitedItself(inner, rules))
  if (form !== undefined) return { prohibited: embedsProhibited, class: form }
  const word = blockOf(address)
  if (word !== 'public') return { prohibited: embedsProhibited || !isLifted(address, rules), class: word }
  return addresses.length === 0 ? PUBLIC : { prohibited: embedsProhibited, class: 'isatap' }
}

const PUBLIC: AddressVerdict = { prohibited: false, class: 'public' }

/** On its own, whatever it embeds. */
function isProhibitedItself(address: IpAddress, rules: NetworkRules): boolean {
  return blockOf(address) !== 'public' && !isLifted(address, rules)
}

function isLifted(address: IpAddress, rules: NetworkRules): boolean {
  return rules.allowPrivate.some((range) => contains(range, address))
}

/** The kernel takes an unspecified address to loopback, so `0.0.0.0` and `::` lead to any listener of this machine. */
function isOwnListener(address: IpAddress, port: number, rules: NetworkRules): boolean {
  const listeners = rules.own.filter((listener) => listener.port === port)
  if (listeners.length === 0) return false
  const reached = reachedBy([address], rules.nat64Prefixes)
  return listeners.some((listener) =>
    reached.some(({ text, family, bytes }) => {
      if (text === '::' || (family === 4 && bytes[0] === 0)) return true
      const { addresses } = listener
      if (addresses !== 'any') return addresses.some((bound) => (unmapped(bound) ?? bound).text === text)
      if (text === '::1' || (family === 4 && bytes[0] === 127)) return true
      return listener.localAddresses.some((local) => local.text === text)
    }),
  )
}

function located(path: string, text: string, fault: Fault): LocatedFault {
  const right = fault.hint === undefined ? '' : `; write ${quoted(fault.hint)}`
  return { path, ...fault, message: `${quoted(text)} is refused: ${fault.message}${right}` }
}

function parseRangeOrAddress(text: string): Parsed<AddressRange> {
  if (text.includes('/')) return parseRange(text)
  const address = parseAddress(text)
  if (!address.ok) return address
  return parseRange(`${text}/${address.value.bits.length}`)
}
