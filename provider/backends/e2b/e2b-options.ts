/** What the backend for E2B is made with, checked before anything is made. */
import type { InsideAddress } from '../../backend.ts'

/**
 * `gateway-address`: E2B's firewall lets a machine reach the gateway's public IPv4 address and nothing else, and commands have a token in their environment.
 * `socks5-proxy`: E2B carries what a machine opens to ports 80 and 443 to the gateway, by its own SOCKS5 egress proxy and with a handle that nothing inside
 * ever sees; all else is denied, but for questions to the name server 8.8.8.8.
 */
export type E2bEgress = 'gateway-address' | 'socks5-proxy'

/** Options of the backend for E2B. */
export interface E2bOptions {
  /** `e2b_…`. In no error, log, list or machine. */
  readonly apiKey: string
  /** Name or id of a template; E2B's own `base` by default. It is Debian or Ubuntu; for a gateway over TLS it has curl. */
  readonly template?: string
  /** Where E2B is; `e2b.app` by default. */
  readonly domain?: string
  /** Of the API; `https://api.DOMAIN` by default. `http:` to loopback alone, since the key goes there. */
  readonly apiUrl?: string
  /** Of the machines; the platform's own by default. As `apiUrl`. */
  readonly sandboxUrl?: string
  /** How a machine is held to the gateway; `gateway-address` by default. */
  readonly egress?: E2bEgress
  /**
   * Milliseconds for which the platform keeps a machine when nobody asks for more; asked for three times in each. From one minute to one hour; ten minutes
   * by default. A machine whose host is gone ends by itself within it.
   */
  readonly leaseMs?: number
  /**
   * Addresses that answer whoever is not stopped, tried from inside over TCP and UDP before a sandbox is handed out; two public ones by default. With
   * `socks5-proxy` the gateway's own is one more.
   */
  readonly directTargets?: readonly InsideAddress[]
  /** Tokens or handles may cross the network in the clear, to a gateway at `http:`, as E2B's SOCKS5 always does; false by default. */
  readonly unsafeTokenInClear?: boolean
  /** The gateway may be at an address that is not public, which machines of E2B never reach; for tests without the platform. */
  readonly unsafePrivateGateway?: boolean
}

/** With everything that was left out. */
export interface ResolvedE2bOptions {
  readonly apiKey: string
  readonly template: string
  readonly domain: string
  readonly apiUrl: string
  readonly sandboxUrl: string | undefined
  readonly egress: E2bEgress
  readonly leaseMs: number
  readonly directTargets: readonly InsideAddress[]
  readonly unsafeTokenInClear: boolean
  readonly unsafePrivateGateway: boolean
}

const MINUTE_MS = 60_000
/** Of resolvers whose addresses do not change: they answer on these ports from everywhere. */
const PUBLIC_TARGETS: Readonly<Record<E2bEgress, readonly InsideAddress[]>> = {
  'gateway-address': [
    { host: '1.1.1.1', port: 443 },
    { host: '8.8.8.8', port: 53 },
  ],
  // E2B itself opens 8.8.8.8 there.
  'socks5-proxy': [
    { host: '1.1.1.1', port: 443 },
    { host: '9.9.9.9', port: 53 },
  ],
}

/** @throws TypeError for a caller's mistake; it does not hold the key */
export function resolveE2bOptions(options: E2bOptions): ResolvedE2bOptions {
  const {
    apiKey,
    template = 'base',
    domain = 'e2b.app',
    leaseMs = 10 * MINUTE_MS,
    egress = 'gateway-address',
  } = options
  if (typeof apiKey !== 'string' || !/^[\x21-\x7e]{8,500}$/.test(apiKey))
    throw new TypeError('`apiKey` is the key of a team of E2B: get one at its dashboard, and hand it over from the environment') // prettier-ignore
  if (!/^[A-Za-z0-9][A-Za-z0-9._/:-]{0,199}$/.test(template))
    throw new TypeError('`template` is the name or the id of a template of E2B')
  if (!/^[a-z0-9.-]{1,253}$/.test(domain)) throw new TypeError('`domain` is a name such as `e2b.app`')
  if (!Object.hasOwn(PUBLIC_TARGETS, egress))
    throw new TypeError(`\`${egress}\` is no way of forcing egress: \`gateway-address\` or \`socks5-proxy\``)
  if (!(Number.isSafeInteger(leaseMs) && leaseMs >= MINUTE_MS && leaseMs <= 60 * MINUTE_MS))
    throw new TypeError('`leaseMs` is a whole number, from 60000 to 3600000')
  return {
    apiKey,
    template,
    domain,
    apiUrl: checkedUrl('apiUrl', options.apiUrl ?? `https://api.${domain}`),
    sandboxUrl: options.sandboxUrl === undefined ? undefined : checkedUrl('sandboxUrl', options.sandboxUrl),
    egress,
    leaseMs,
    directTargets: options.directTargets ?? PUBLIC_TARGETS[egress],
    unsafeTokenInClear: options.unsafeTokenInClear ?? false,
    unsafePrivateGateway: options.unsafePrivateGateway ?? false,
  }
}

function checkedUrl(name: string, text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined
  const isLocal = url !== undefined && ['127.0.0.1', '[::1]', 'localhost'].includes(url.hostname)
  if (url === undefined || !(url.protocol === 'https:' || (url.protocol === 'http:' && isLocal)) || url.username !== '')
    throw new TypeError(`\`${name}\` is an \`https:\` URL without credentials; \`http:\` to loopback alone`)
  return url.href.replace(/\/$/, '')
}
