/** What the schema can't see: whether ranges, names, addresses and entries mean something. The parsers of `policies/` decide that. */
import { isIP } from 'node:net'
import { parseAddress, parseRange } from '../../policies/address.ts'
import { parseHostName } from '../../policies/host.ts'
import type { Fault, Parsed } from '../../policies/parsed.ts'
import type { RawFault } from './faults.ts'
import type { Config } from './schema.ts'

/** What entries are read with. */
export interface MeaningContext {
  /** The hosts behind `@npm` and `@apt`, where they were read; absent: both are accepted, and empty. */
  readonly machineSets?: Readonly<Record<string, readonly string[]>>
}

/** Prefix lengths that RFC 6052 section 2.2 gives to NAT64. */
const NAT64_LENGTHS = new Set([32, 40, 48, 56, 64, 96])

/** Everything in a well-formed configuration that makes no sense. */
export function checkMeaning(config: Config, _context: MeaningContext): readonly RawFault[] {
  return [...checkNetwork(config)]
}

function* checkNetwork({ network }: Config): Iterable<RawFault> {
  for (const [index, text] of network.allowPrivate.entries())
    yield* rangeFaults(text, ['network', 'allowPrivate', index])
  for (const [index, text] of network.nat64Prefixes.entries()) {
    const keys = ['network', 'nat64Prefixes', index]
    const range = parseRange(text)
    if (!range.ok) yield* rangeFaults(text, keys)
    else if (range.value.family !== 6 || !NAT64_LENGTHS.has(range.value.length)) {
      yield {
        keys,
        code: 'nat64',
        message: `\`${text}\` can not be a NAT64 prefix; those are IPv6 ranges of 32, 40, 48, 56, 64 or 96 bits`,
      }
    }
  }
  for (const [index, text] of (network.resolvers ?? []).entries()) {
    if (!isServer(text)) {
      const message = `\`${text}\` is not a DNS server; write \`10.0.0.2\`, \`10.0.0.3:5353\` or \`[2001:db8::53]:53\``
      yield { keys: ['network', 'resolvers', index], code: 'resolver', message }
    }
  }
  for (const [name, addresses] of Object.entries(network.hosts)) {
    const keys = ['network', 'hosts', name]
    yield* faultsOf(parseHostName(name, { unicode: true }), keys, name)
    for (const [index, text] of addresses.entries()) yield* faultsOf(parseAddress(text), [...keys, index], text)
  }
}

function* rangeFaults(text: string, keys: readonly PropertyKey[]): Iterable<RawFault> {
  const range = parseRange(text)
  if (range.ok) return
  const single = isIP(text)
  yield* faultsOf(range, keys, text, single === 0 ? undefined : `${text}/${single === 4 ? 32 : 128}`)
}

function* faultsOf(
  result: Parsed<unknown>,
  keys: readonly PropertyKey[],
  text: string,
  hint?: string,
): Iterable<RawFault> {
  if (result.ok) return
  const fault: Fault = hint === undefined ? result.fault : { ...result.fault, hint }
  yield { ...fault, keys, message: quoted(text, fault.message) }
}

/** A message of `policies/` may not repeat the input, since it may come from the wire; here it comes from the operator. */
function quoted(text: string, message: string): string {
  return message.includes(`\`${text}\``) ? message : `\`${text}\`: ${message}`
}

function isServer(text: string): boolean {
  const match = /^(?:\[(?<six>[^\]]+)\]|(?<four>[\d.]+))(?::(?<port>\d{1,5}))?$/.exec(text)
  if (match === null) return isIP(text) === 6
  const port = Number(match.groups?.['port'] ?? 53)
  const { four, six } = match.groups ?? {}
  return port > 0 && port <= 65_535 && (four === undefined ? isIP(six ?? '') === 6 : isIP(four) === 4)
}
