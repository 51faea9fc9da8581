/** Whose is a name? Where the Public Suffix List ends, and where strangers register names of their own. */
import { getDomain, parse } from 'tldts'
import type { HostName } from './host.ts'

const READ = { extractHostname: false, validateHostname: false, detectIp: false } as const

/**
 * Whether a wildcard on this name would cover names of unrelated owners: it is a public suffix (the ICANN part of the
 * Public Suffix List), every name directly below it is one, or it is a single label.
 * @see https://publicsuffix.org/list/
 */
export function isPublicSuffix(host: HostName): boolean {
  return !host.includes('.') || isListed(host) || isListed(`any-label.${host}`)
}

/**
 * The suffix below which a company lets strangers have names, such as `github.io`, where a name is one of those or is
 * such a suffix itself: the private part of the list.
 */
export function hostingSuffix(host: HostName): string | undefined {
  const { isPrivate, publicSuffix } = parse(host, { ...READ, allowPrivateDomains: true })
  return isPrivate === true && publicSuffix !== null ? publicSuffix : undefined
}

/** What one owner has registered, the private part of the list counted in: `example.co.uk` of `a.b.example.co.uk`. */
export function registrableDomain(host: HostName): string | undefined {
  return getDomain(host, { ...READ, allowPrivateDomains: true }) ?? undefined
}

function isListed(name: string): boolean {
  const { publicSuffix } = parse(name, READ)
  return publicSuffix === null || publicSuffix === name
}
