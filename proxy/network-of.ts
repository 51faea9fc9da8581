/** Whose address is this, where each has so much of something? A host with IPv6 has a /64 to itself, so that is what counts as one address. */

/** The /64 of an IPv6 address, such as `2001:db8:0:1::/64`; all else as it is. */
export function networkOf(address: string): string {
  if (!address.includes(':') || address.includes('.')) return address
  const [head = '', tail] = address.split('::', 2)
  const groups = head === '' ? [] : head.split(':')
  const behind = tail === undefined || tail === '' ? [] : tail.split(':')
  const between = tail === undefined ? 0 : 8 - groups.length - behind.length
  const all = [...groups, ...Array<string>(Math.max(0, between)).fill('0'), ...behind]
  return `${all.slice(0, 4).join(':')}::/64`
}
