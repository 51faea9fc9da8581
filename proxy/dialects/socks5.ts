/**
 * What does this SOCKS5 message say? Bytes in, plain data out, for the three messages that a client sends; and the bytes of the answers.
 * Only CONNECT with a user and password (or, on a bound listener, without) is served. Credentials are cut out here and judged elsewhere.
 * @see RFC 1928, RFC 1929
 */
import { describeReason, type Reason } from '../reasons.ts'

/** A message that is not there yet, is there, or is none. `length` is how many bytes it takes; what follows is the next message, or early data. */
export type SocksMessage<T> =
  { readonly state: 'more' } | ({ readonly state: 'done'; readonly length: number } & T) | SocksRefused

/** A message that is refused. Send `reply` (where there is one) and close. */
export interface SocksRefused {
  readonly state: 'refused'
  readonly reason: Reason
  /** What was wrong, in words for the audit; repeats nothing of the input. */
  readonly detail: string
  /** The answer. Empty where the protocol has none. */
  readonly reply: Buffer
  /** The raw `host:port` in latin1 where one could be told, for the audit line. */
  readonly target?: string
}

/** The method that the gateway chose: 0 no authentication, 2 user and password, 255 none that is served. */
export type SocksMethod = 0x00 | 0x02 | 0xff

const VERSION = 5
const USER_PASSWORD_VERSION = 1
const NO_AUTHENTICATION = 0x00
const USER_PASSWORD = 0x02
const NO_METHOD = 0xff
const CONNECT = 1
const ADDRESS_IPV4 = 1
const ADDRESS_NAME = 3
const ADDRESS_IPV6 = 4
const REPLY_GENERAL_FAILURE = 1
const REPLY_COMMAND_NOT_SUPPORTED = 7
const REPLY_ADDRESS_TYPE_NOT_SUPPORTED = 8
const NOTHING = Buffer.alloc(0)

/** The answer to accepted credentials. RFC 1929 section 2. */
export const SOCKS_AUTH_OK: Buffer = Buffer.from([USER_PASSWORD_VERSION, 0])
/** The answer to refused credentials; the connection is closed after it. */
export const SOCKS_AUTH_FAILED: Buffer = Buffer.from([USER_PASSWORD_VERSION, 1])
/** The answer to a request that was let out. The bound address is not told: it is the gateway's own. */
export const SOCKS_OK: Buffer = socksReply(0)

/**
 * Reads the greeting and chooses the method. `bound` says that the listener carries the identity: then no authentication is needed, and a client that only
 * offers a password may send any.
 */
export function parseGreeting(bytes: Buffer, bound: boolean): SocksMessage<{ readonly method: SocksMethod }> {
  const [version, count] = bytes
  if (version === undefined) return { state: 'more' }
  if (version !== VERSION) return refused('the version is not 5', NOTHING)
  if (count === undefined || bytes.length < 2 + count) return { state: 'more' }
  const offered = bytes.subarray(2, 2 + count)
  return { state: 'done', length: 2 + count, method: chooseMethod(offered, bound) }
}

/** The answer to the greeting; after 255 the connection is closed. */
export function socksMethodReply(method: SocksMethod): Buffer {
  return Buffer.from([VERSION, method])
}

/** Reads the user and the password, each of 0 to 255 bytes. RFC 1929 asks for 1 or more; an empty user is common, and an empty password is no token. */
export function parseUserPassword(bytes: Buffer): SocksMessage<{ readonly user: Buffer; readonly password: Buffer }> {
  const [version, userLength] = bytes
  if (version === undefined) return { state: 'more' }
  if (version !== USER_PASSWORD_VERSION) return refused('the version of the credentials is not 1', SOCKS_AUTH_FAILED)
  if (userLength === undefined) return { state: 'more' }
  const passwordLength = bytes[2 + userLength]
  if (passwordLength === undefined) return { state: 'more' }
  const passwordStart = 3 + userLength
  const length = passwordStart + passwordLength
  if (bytes.length < length) return { state: 'more' }
  const user = bytes.subarray(2, 2 + userLength)
  return { state: 'done', length, user, password: bytes.subarray(passwordStart, length) }
}

/** Reads the request. `target` is the raw `host:port` in latin1, a name exactly as it came (a NUL included); `parseAuthority` reads it. */
export function parseSocksRequest(bytes: Buffer): SocksMessage<{ readonly target: string }> {
  const [version, command, reserved, addressType] = bytes
  if (version === undefined) return { state: 'more' }
  if (version !== VERSION) return refused('the version is not 5')
  if (addressType === undefined) return { state: 'more' }
  if (reserved !== 0) return refused('the reserved byte is not 0')
  const hostLength = lengthOfHost(addressType, bytes)
  if (hostLength === 'unknown') return unknownAddressType()
  if (hostLength === 'more') return { state: 'more' }
  const hostStart = addressType === ADDRESS_NAME ? 5 : 4
  const hostEnd = hostStart + hostLength
  const length = hostEnd + 2
  if (bytes.length < length) return { state: 'more' }
  const target = `${hostText(addressType, bytes.subarray(hostStart, hostEnd))}:${bytes.readUInt16BE(hostEnd)}`
  if (command !== CONNECT) return unknownCommand(target)
  return { state: 'done', length, target }
}

/** The answer to a request that is refused for `reason`. The connection is closed after it. */
export function socksRefusal(reason: Reason): Buffer {
  return socksReply(describeReason(reason).socks)
}

/** RFC 1928 section 6. */
function socksReply(code: number): Buffer {
  return Buffer.from([VERSION, code, 0, ADDRESS_IPV4, 0, 0, 0, 0, 0, 0])
}

function chooseMethod(offered: Buffer, bound: boolean): SocksMethod {
  if (bound && offered.includes(NO_AUTHENTICATION)) return NO_AUTHENTICATION
  return offered.includes(USER_PASSWORD) ? USER_PASSWORD : NO_METHOD
}

function lengthOfHost(addressType: number, bytes: Buffer): number | 'more' | 'unknown' {
  if (addressType === ADDRESS_IPV4) return 4
  if (addressType === ADDRESS_IPV6) return 16
  if (addressType === ADDRESS_NAME) return bytes[4] ?? 'more'
  return 'unknown'
}

/** An IPv6 address is written out in full; its canonical form is the business of `policies/`. */
function hostText(addressType: number, host: Buffer): string {
  if (addressType === ADDRESS_NAME) return host.toString('latin1')
  if (addressType === ADDRESS_IPV4) return host.join('.')
  const groups = Array.from({ length: 8 }, (_, index) => host.readUInt16BE(index * 2).toString(16))
  return `[${groups.join(':')}]`
}

function unknownCommand(target: string): SocksRefused {
  const detail = 'only the command CONNECT is served'
  return {
    state: 'refused',
    reason: 'method_not_allowed',
    detail,
    reply: socksReply(REPLY_COMMAND_NOT_SUPPORTED),
    target,
  }
}

function unknownAddressType(): SocksRefused {
  const detail = 'the address is not an IPv4 address, a name or an IPv6 address'
  return { state: 'refused', reason: 'request_malformed', detail, reply: socksReply(REPLY_ADDRESS_TYPE_NOT_SUPPORTED) }
}

function refused(detail: string, reply: Buffer = socksReply(REPLY_GENERAL_FAILURE)): SocksRefused {
  return { state: 'refused', reason: 'request_malformed', detail, reply }
}
