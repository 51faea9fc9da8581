/**
 * Can another ClientHello still come? A server that answers with a HelloRetryRequest gets one, and may take the name out of that; one that answers with
 * any other ServerHello does not. Reads plaintext records of the server as they pass; holds and decrypts nothing, and never throws on bad input.
 * @see RFC 8446 section 4.1.3
 */
import { hash } from 'node:crypto'
import { CONTENT_HANDSHAKE, RECORD_HEADER_BYTES } from './client-hello.ts'

const HANDSHAKE_HEADER_BYTES = 4
const CONTENT_CHANGE_CIPHER_SPEC = 20
const CONTENT_ALERT = 21
const SERVER_HELLO = 2
/** Handshake header, version and random: all that is looked at of a message. */
const RANDOM_AT = HANDSHAKE_HEADER_BYTES + 2
const LOOKED_AT_BYTES = RANDOM_AT + 32

/** The random of a ServerHello that is a HelloRetryRequest. */
const RETRY_RANDOM = hash('sha256', 'HelloRetryRequest', 'buffer')

/** Watches one server until it has chosen the hello that counts. What it can't read settles nothing: then the client stays under inspection. */
export class ServerHelloWatch {
  readonly #header = Buffer.alloc(RECORD_HEADER_BYTES)
  #headerBytes = 0
  /** Bytes of the record at hand that have yet to pass. */
  #recordLeft = 0
  readonly #message = Buffer.alloc(LOOKED_AT_BYTES)
  #messageBytes = 0
  /** Bytes of a message that has been looked at that have yet to pass. */
  #messageLeft = 0
  #state: 'reading' | 'settled' | 'unreadable' = 'reading'

  /** Whether the server has answered with a ServerHello that is no HelloRetryRequest: no server takes another hello after that. */
  get isSettled(): boolean {
    return this.#state === 'settled'
  }

  /** Looks at what the server sends. */
  push(bytes: Buffer): void {
    for (let at = 0; at < bytes.length && this.#state === 'reading';) {
      if (this.#recordLeft === 0) at += this.#readHeader(bytes.subarray(at))
      else at += this.#readFragment(bytes.subarray(at, at + this.#recordLeft))
    }
  }

  #readHeader(bytes: Buffer): number {
    const taken = bytes.copy(this.#header, this.#headerBytes)
    this.#headerBytes += taken
    if (this.#headerBytes < RECORD_HEADER_BYTES) return taken
    this.#headerBytes = 0
    const length = this.#header.readUInt16BE(3)
    // Warnings come before a ServerHello, and a change of cipher behind a HelloRetryRequest.
    const isKnown = [CONTENT_HANDSHAKE, CONTENT_ALERT, CONTENT_CHANGE_CIPHER_SPEC].includes(this.#header[0] ?? 0)
    if (!isKnown || this.#header[1] !== 3 || length === 0) this.#state = 'unreadable'
    this.#recordLeft = length
    return taken
  }

  #readFragment(fragment: Buffer): number {
    const isHandshake = this.#header[0] === CONTENT_HANDSHAKE
    const taken = isHandshake ? this.#readMessage(fragment) : fragment.length
    this.#recordLeft -= taken
    return taken
  }

  #readMessage(bytes: Buffer): number {
    if (this.#messageLeft > 0) {
      const passed = Math.min(bytes.length, this.#messageLeft)
      this.#messageLeft -= passed
      return passed
    }
    const taken = bytes.copy(this.#message, this.#messageBytes)
    this.#messageBytes += taken
    if (this.#messageBytes === LOOKED_AT_BYTES) this.#judge()
    return taken
  }

  #judge(): void {
    this.#messageBytes = 0
    const left = HANDSHAKE_HEADER_BYTES + this.#message.readUIntBE(1, 3) - LOOKED_AT_BYTES
    if (this.#message[0] !== SERVER_HELLO || left < 0) this.#state = 'unreadable'
    else if (!this.#message.subarray(RANDOM_AT).equals(RETRY_RANDOM)) this.#state = 'settled'
    else this.#messageLeft = left
  }
}
