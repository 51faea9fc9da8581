/** Reads `network.hosts`: names whose addresses the operator writes down. */
import { parseAddress, parseHostName, quoted, type IpAddress } from '../../policies/index.ts'

/** The map for `createResolver`, or every fault, in words. */
export type FixedHosts =
  | { readonly ok: true; readonly value: ReadonlyMap<string, readonly IpAddress[]> }
  | { readonly ok: false; readonly faults: readonly string[] }

/** Reads names (Unicode is fine) and the address or addresses of each. */
export function parseFixedHosts(hosts: Readonly<Record<string, string | readonly string[]>>): FixedHosts {
  const value = new Map<string, readonly IpAddress[]>()
  const faults: string[] = []
  for (const [text, listed] of Object.entries(hosts)) {
    const name = parseHostName(text, { unicode: true })
    if (!name.ok) {
      faults.push(`${quoted(text)}: ${name.fault.message}`)
      continue
    }
    const texts = typeof listed === 'string' ? [listed] : listed
    const addresses: IpAddress[] = []
    for (const one of texts) {
      const address = parseAddress(one)
      if (address.ok) addresses.push(address.value)
      else faults.push(`${quoted(text)}: ${quoted(one)}: ${address.fault.message}`)
    }
    if (texts.length === 0) faults.push(`${quoted(text)}: no address is listed`)
    if (value.has(name.value)) faults.push(`${quoted(text)}: the name is listed twice`)
    value.set(name.value, addresses)
  }
  return faults.length === 0 ? { ok: true, value } : { ok: false, faults }
}
