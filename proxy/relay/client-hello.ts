/**
 * What server name does a TLS ClientHello ask for? Reads plaintext records as they come in; decrypts nothing, and never throws on bad input.
 * What it can't read the way every server does, it refuses: a hello that two parsers read differently is a way around the policy.
 */

/** What a whole ClientHello says. */
export interface ClientHello {
  /** The one `host_name` of the server_name extension, in lower case; `undefined` when there is no such extension. @see RFC 6066 section 3 */
  readonly serverName: string | undefined
  /** Whether the hello carries an encrypted inner hello; then `serverName` is the outer name. */
  readonly ech: boolean
}

/** Why a tunnel whose hello was read may not go on; each is a close reason. */
export type HelloFault = 'not_tls' | 'sni_mismatch' | 'sni_missing'

/** How the relay gates a tunnel on its ClientHellos: none goes up before `judge` has seen it whole. */
export interface HelloInspector {
  /** How long the client may take for its hello, in milliseconds. Default 10 000. */
  readonly timeoutMs?: number
  /** Called with each whole hello: the first, and the one after a HelloRetryRequest. A reason cuts the tunnel before a byte of it has gone up; `undefined` lets it go on. */
  readonly judge: (hello: ClientHello) => HelloFault | undefined
}

/** What the bytes so far amount to. */
export type HelloResult =
  | { readonly state: 'more' }
  | { readonly state: 'done'; readonly hello: ClientHello }
  | { readonly state: 'refused'; readonly reason: HelloFault }

/** The longest hello that is read. Real ones have 200 to 2 000 bytes, with post-quantum keys and tickets up to 8 000; OpenSSL reads 16 KiB by default. */
export const MAX_HELLO_BYTES = 16 * 1024

/** The most that is held of a client whose hello is not whole yet, record headers included. */
export const MAX_HELD_BYTES = 32 * 1024

/** Type, version and length. */
export const RECORD_HEADER_BYTES = 5
/** Content type of a record that holds handshake messages. */
export const CONTENT_HANDSHAKE = 22
const MAX_RECORD_BYTES = 16 * 1024
const HANDSHAKE_HEADER_BYTES = 4
const CLIENT_HELLO = 1
const EXTENSION_SERVER_NAME = 0
const EXTENSION_ENCRYPTED_CLIENT_HELLO = 0xfe0d
const NAME_TYPE_HOST = 0
const MAX_NAME_BYTES = 255

const MORE: HelloResult = { state: 'more' }
const NOT_TLS: HelloResult = { state: 'refused', reason: 'not_tls' }
const AMBIGUOUS_NAME: HelloResult = { state: 'refused', reason: 'sni_mismatch' }

/**
 * Reads one ClientHello, piece by piece, and holds every byte until it is released.
 * Each byte is copied once or twice whatever the pieces' sizes, and no more than {@link MAX_HELD_BYTES} are held.
 */
export class ClientHelloReader {
  #held: Buffer = Buffer.alloc(0)
  #heldBytes = 0
  /** Where the next record begins in what is held. */
  #recordAt = 0
  /** The handshake bytes of the records so far, without their headers. */
  #message: Buffer = Buffer.alloc(0)
  #messageBytes = 0
  #result: HelloResult = MORE

  /** Takes the next bytes. Once the result is not `more` it stands, and later bytes are only held. */
  push(bytes: Buffer): HelloResult {
    if (this.#result.state !== 'more') {
      if (this.#result.state === 'done') this.#hold(bytes)
      return this.#result
    }
    this.#hold(bytes)
    this.#result = this.#readRecords()
    if (this.#result.state === 'more' && this.#heldBytes > MAX_HELD_BYTES) this.#result = NOT_TLS
    return this.#result
  }

  /** Everything that was pushed, in order; the reader keeps nothing of it. */
  release(): Buffer {
    const held = this.#held.subarray(0, this.#heldBytes)
    this.#held = this.#message = Buffer.alloc(0)
    this.#heldBytes = this.#messageBytes = 0
    return held
  }

  /** How many bytes of what was pushed are the hello once it is done, record headers included. The rest is the next record. */
  get helloBytes(): number {
    return this.#recordAt
  }

  #hold(bytes: Buffer): void {
    this.#held = append(this.#held, this.#heldBytes, bytes)
    this.#heldBytes += bytes.length
  }

  /** @see RFC 8446 section 5.1: fragments of a handshake message are not empty, and nothing comes between them */
  #readRecords(): HelloResult {
    for (;;) {
      const held = this.#held.subarray(this.#recordAt, this.#heldBytes)
      if (held.length > 0 && held[0] !== CONTENT_HANDSHAKE) return NOT_TLS
      if (held.length > 1 && held[1] !== 3) return NOT_TLS
      if (held.length < RECORD_HEADER_BYTES) return MORE
      const length = held.readUInt16BE(3)
      if (length === 0 || length > MAX_RECORD_BYTES) return NOT_TLS
      const fragment = held.subarray(RECORD_HEADER_BYTES, RECORD_HEADER_BYTES + length)
      if (this.#messageBytes === 0 && fragment.length > 0 && fragment[0] !== CLIENT_HELLO) return NOT_TLS
      if (fragment.length < length) return MORE
      this.#message = append(this.#message, this.#messageBytes, fragment)
      this.#messageBytes += length
      this.#recordAt += RECORD_HEADER_BYTES + length
      const result = readMessage(this.#message.subarray(0, this.#messageBytes))
      if (result.state !== 'more') return result
    }
  }
}

/** Compares a hello with the CONNECT host in canonical form; an address literal (`isName` false) needs no name, but one that is given must be the host. */
export function judgeServerName(hello: ClientHello, host: string, isName: boolean): HelloFault | undefined {
  if (hello.serverName === undefined) return isName ? 'sni_missing' : undefined
  return hello.serverName === host ? undefined : 'sni_mismatch'
}

/** Appends to a buffer that grows by doubling, so that many small pieces cost no more than one. */
function append(buffer: Buffer, used: number, bytes: Buffer): Buffer {
  let target = buffer
  if (used + bytes.length > buffer.length) {
    target = Buffer.allocUnsafe(used === 0 ? bytes.length : Math.max(used + bytes.length, 2 * buffer.length))
    buffer.copy(target, 0, 0, used)
  }
  bytes.copy(target, used)
  return target
}

function readMessage(message: Buffer): HelloResult {
  if (message.length < HANDSHAKE_HEADER_BYTES) return MORE
  const end = HANDSHAKE_HEADER_BYTES + message.readUIntBE(1, 3)
  if (end > MAX_HELLO_BYTES) return NOT_TLS
  if (message.length < end) return MORE
  // A second message in the hello's last record: no client sends one, and servers differ in what they make of it.
  if (message.length > end) return NOT_TLS
  return readClientHello(new Fields(message.subarray(HANDSHAKE_HEADER_BYTES)))
}

/** @see RFC 8446 section 4.1.2 */
function readClientHello(fields: Fields): HelloResult {
  const version = fields.number(2)
  const random = fields.take(32)
  const session = fields.vector(1)
  const suites = fields.vector(2)
  const compressions = fields.vector(1)
  if (version === undefined || version >> 8 !== 3 || random === undefined || session === undefined) return NOT_TLS
  if (suites === undefined || compressions === undefined || suites.left < 2 || compressions.left < 1) return NOT_TLS
  if (session.left > 32 || suites.left % 2 !== 0) return NOT_TLS
  if (fields.left === 0) return { state: 'done', hello: { serverName: undefined, ech: false } }
  const extensions = fields.vector(2)
  if (extensions === undefined || fields.left > 0) return NOT_TLS
  return readExtensions(extensions)
}

function readExtensions(extensions: Fields): HelloResult {
  let names: Fields | undefined
  let ech = false
  while (extensions.left > 0) {
    const type = extensions.number(2)
    const body = extensions.vector(2)
    if (type === undefined || body === undefined) return NOT_TLS
    if (type === EXTENSION_ENCRYPTED_CLIENT_HELLO) ech = true
    if (type !== EXTENSION_SERVER_NAME) continue
    if (names !== undefined) return AMBIGUOUS_NAME
    names = body
  }
  if (names === undefined) return { state: 'done', hello: { serverName: undefined, ech } }
  const serverName = readServerName(names)
  return serverName === undefined ? AMBIGUOUS_NAME : { state: 'done', hello: { serverName, ech } }
}

/** Exactly one name, of the one type there is. @see RFC 6066 section 3 */
function readServerName(extension: Fields): string | undefined {
  const list = extension.vector(2)
  if (list === undefined || extension.left > 0) return undefined
  const type = list.number(1)
  const name = list.vector(2)
  if (type !== NAME_TYPE_HOST || name === undefined || list.left > 0) return undefined
  if (name.left === 0 || name.left > MAX_NAME_BYTES) return undefined
  const text = name.take(name.left)?.toString('latin1') ?? ''
  return /^[0-9A-Za-z._-]+$/.test(text) ? text.toLowerCase() : undefined
}

/** Takes fields off the front of bytes; `undefined` where there are not enough. */
class Fields {
  readonly #bytes: Buffer
  #at = 0

  constructor(bytes: Buffer) {
    this.#bytes = bytes
  }

  get left(): number {
    return this.#bytes.length - this.#at
  }

  take(length: number): Buffer | undefined {
    if (length > this.left) return undefined
    this.#at += length
    return this.#bytes.subarray(this.#at - length, this.#at)
  }

  number(bytes: 1 | 2): number | undefined {
    return this.take(bytes)?.readUIntBE(0, bytes)
  }

  /** A length of so many bytes, and as many bytes as it says. */
  vector(lengthBytes: 1 | 2): Fields | undefined {
    const length = this.number(lengthBytes)
    const bytes = length === undefined ? undefined : this.take(length)
    return bytes === undefined ? undefined : new Fields(bytes)
  }
}
