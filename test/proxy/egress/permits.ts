/** Permits for tests, issued as all permits are: by a decision. Loopback and whatever else a test dials is private, so the operator allows it. */
import {
  decideAddresses,
  decideUnresolved,
  parseAddress,
  parseAuthority,
  parseNetworkRules,
  type Destination,
  type IpAddress,
  type Layers,
  type NetworkRules,
  type Permit,
} from '../../../policies/index.ts'

export const OPEN: Layers = {
  layers: [{ name: 'ceiling', mode: 'enforce', policy: { kind: 'allow-all' } }],
  version: 'test',
}

export const EVERYWHERE: NetworkRules = rules(['0.0.0.0/0', '::/0'])

export function rules(allowPrivate: readonly string[], own: NetworkRules['own'] = []): NetworkRules {
  const read = parseNetworkRules({ allowPrivate }, own)
  if (!read.ok) throw new Error(read.faults[0]?.message)
  return read.value
}

export function address(text: string): IpAddress {
  const read = parseAddress(text)
  if (!read.ok) throw new Error(read.fault.message)
  return read.value
}

export function destination(authority: string): Destination {
  const read = parseAuthority(authority)
  if (!read.ok) throw new Error(read.fault.message)
  return read.value
}

/** For a name that resolved to these addresses. */
export function permit(port: number, ...addresses: readonly string[]): Permit {
  const verdict = decideAddresses(OPEN, destination(`origin.example.test:${port}`), addresses.map(address), EVERYWHERE)
  if (verdict.effective === 'deny') throw new Error(verdict.reason)
  return verdict.permit
}

/** For a name or literal that an upstream proxy resolves. */
export function unresolvedPermit(authority: string): Permit {
  const verdict = decideUnresolved(OPEN, destination(authority), EVERYWHERE)
  if (verdict.effective === 'deny') throw new Error(verdict.reason)
  return verdict.permit
}
