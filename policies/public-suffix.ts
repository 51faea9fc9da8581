/** Is a name one below which strangers register names of their own? Then a wildcard on it is too wide. */
import { getPublicSuffix } from 'tldts-icann'
import type { HostName } from './host.ts'

/**
 * Whether a wildcard on this name would cover names of unrelated owners: it is a public suffix (the ICANN part of the
 * Public Suffix List), every name directly below it is one, or it is a single label.
 * @see https://publicsuffix.org/list/
 */
export function isPublicSuffix(host: HostName): boolean {
  return !host.includes('.') || isListed(host) || isListed(`any-label.${host}`)
}

function isListed(name: string): boolean {
  const suffix = getPublicSuffix(name, { extractHostname: false, validateHostname: false, detectIp: false })
  return suffix === null || suffix === name
}
