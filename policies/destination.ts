/** Where does a client want to go? The one reader of `host:port`; everything after it works on the canonical form. */
import { parseAddress, type IpAddress } from './address.ts'
import { parseHostName, type HostName } from './host.ts'
import { faulty, parsed, type Parsed } from './parsed.ts'
import { readPort } from './ports.ts'

/** A name or an address in canonical form, and a port from 1 to 65535. */
export type Destination =
  | { readonly kind: 'name'; readonly host: HostName; readonly port: number }
  | { readonly kind: 'address'; readonly address: IpAddress; readonly port: number }

/** Longest name, its trailing dot, the colon and five digits. */
const MAX_AUTHORITY = 260

/**
 * Reads the `host:port` of a CONNECT (or of any dialect, brought into that form), given as latin1. Strict: no user
 * information, path, zone id, percent encoding, or number that could be read as an address; the port is required.
 * The only fault is `target_malformed`; its message does not repeat the input, which may hold credentials.
 * @see RFC 9110 section 7.1 (authority-form), RFC 3986 section 3.2
 */
export function parseAuthority(raw: string): Parsed<Destination> {
  if (raw.length > MAX_AUTHORITY) return malformed('the target is longer than any host and port')
  const colon = raw.lastIndexOf(':')
  if (colon < 0) return malformed('the target has no port; write `host:port`')
  const port = readPort(raw, colon + 1)
  if (port === undefined) return malformed('the port is a whole number from 1 to 65535, without leading zeros')
  return destinationOf(raw.slice(0, colon), port)
}

/** The same for a host and a port that come apart; an IPv6 literal is written in brackets. Fault: `target_malformed`. */
export function destinationOf(hostText: string, port: number): Parsed<Destination> {
  if (!Number.isInteger(port) || port < 1 || port > 65_535) return malformed('the port is from 1 to 65535')
  if (hostText.startsWith('[')) {
    const inside = hostText.endsWith(']') ? hostText.slice(1, -1) : ''
    const address = parseAddress(inside)
    if (!address.ok || address.value.family !== 6) return malformed('brackets hold an IPv6 address and nothing else')
    return parsed({ kind: 'address', address: address.value, port })
  }
  const lastCode = hostText.charCodeAt(hostText.length - 1)
  if (lastCode >= 0x30 && lastCode <= 0x39 && !hostText.includes(':')) {
    const address = parseAddress(hostText)
    if (address.ok) return parsed({ kind: 'address', address: address.value, port })
  }
  const host = parseHostName(hostText)
  if (!host.ok) return malformed(host.fault.message)
  return parsed({ kind: 'name', host: host.value, port })
}

/** The canonical host: the name, or the address without brackets. */
export function hostText(destination: Destination): string {
  return destination.kind === 'name' ? destination.host : destination.address.text
}

/** The canonical `host:port`, with brackets around IPv6: what {@link parseAuthority} reads back as the same. */
export function authorityText(destination: Destination): string {
  const host = hostText(destination)
  return host.includes(':') ? `[${host}]:${destination.port}` : `${host}:${destination.port}`
}

function malformed(message: string): Parsed<never> {
  return faulty('target_malformed', message)
}
