/** Reads where the operator's upstream proxy is and what it wants to hear; keeps the credentials where nothing can print them. */
import { parseAddress, parseHostName, type HostName, type IpAddress } from '../../policies/index.ts'

/** An upstream proxy. Printing, logging or serialising it shows no credentials. */
export class UpstreamProxy {
  readonly #proxyAuthorization: string | undefined
  readonly secure: boolean
  /** Its own name or address, which no policy judges. */
  readonly host: HostName | IpAddress
  readonly port: number
  /** `host:port`, fit to print. */
  readonly text: string

  /**
   * `url` is `http://host:port` or `https://host:port`; `credentials` are `user:password` (one newline at the end is cut) and win over the URL's.
   * @throws TypeError, without repeating the URL: it may hold a password
   */
  constructor(url: string, credentials?: string) {
    const read = URL.canParse(url) ? new URL(url) : undefined
    if (read === undefined || (read.protocol !== 'http:' && read.protocol !== 'https:')) {
      throw new TypeError('the upstream proxy must be `http://host:port` or `https://host:port`')
    }
    if (read.pathname !== '/' || read.search !== '' || read.hash !== '') {
      throw new TypeError('the URL of the upstream proxy must end with the port')
    }
    this.secure = read.protocol === 'https:'
    this.port = read.port === '' ? (this.secure ? 443 : 80) : Number(read.port)
    this.host = readHost(read.hostname)
    this.text = `${read.hostname}:${this.port}`
    this.#proxyAuthorization = basic(credentials?.replace(/\r?\n$/, '') ?? userInformation(read))
  }

  /** The value of `Proxy-Authorization`, for the wire alone; `undefined` without credentials. */
  proxyAuthorization(): string | undefined {
    return this.#proxyAuthorization
  }
}

function readHost(text: string): HostName | IpAddress {
  const bare = text.startsWith('[') ? text.slice(1, -1) : text
  const address = parseAddress(bare)
  if (address.ok) return address.value
  const name = parseHostName(bare)
  if (name.ok) return name.value
  throw new TypeError(`the host of the upstream proxy is malformed: ${name.fault.message}`)
}

function userInformation(url: URL): string | undefined {
  if (url.username === '' && url.password === '') return undefined
  try {
    return `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`
  } catch {
    // Without its cause, which would hold the password.
    throw new TypeError('the credentials in the URL of the upstream proxy are not percent-encoded as they should be')
  }
}

/** @see RFC 7617 section 2: no colon in the user, no control characters in either */
function basic(credentials: string | undefined): string | undefined {
  if (credentials === undefined) return undefined
  if (!credentials.includes(':') || /[\x00-\x1f\x7f]/.test(credentials)) {
    throw new TypeError('the credentials of the upstream proxy must be `user:password` on one line')
  }
  return `Basic ${Buffer.from(credentials, 'utf8').toString('base64')}`
}
