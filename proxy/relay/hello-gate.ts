/**
 * Holds what a client sends until its ClientHello is whole and approved, for as long as it may take; and once more for the hello that follows a
 * HelloRetryRequest, which a server may take the name from. In between other records pass as they come, with only their headers looked at.
 */
import {
  CONTENT_HANDSHAKE,
  ClientHelloReader,
  type HelloFault,
  type HelloInspector,
  RECORD_HEADER_BYTES,
} from './client-hello.ts'
import { ServerHelloWatch } from './server-hello.ts'

/** What becomes of the bytes so far. */
export type GateVerdict = 'hold' | { readonly release: Buffer } | { readonly refuse: HelloFault }

/** What a client may send beside a hello before a server has answered it: change of cipher, alerts, early data. @see RFC 8446 sections 4.2.10 and D.4 */
const PASSING_RECORDS = [20, 21, 23]
/** @see RFC 8446 section 5.2 */
const MAX_ENCRYPTED_BYTES = 16 * 1024 + 256

const NOTHING = Buffer.alloc(0)

/** The gate of one tunnel. */
export class HelloGate {
  readonly #judge: HelloInspector['judge']
  readonly #timeoutMs: number
  readonly #onTimeout: () => void
  readonly #server = new ServerHelloWatch()
  /** There while a hello is held. */
  #reader: ClientHelloReader | undefined
  #timer: NodeJS.Timeout | undefined
  readonly #header = Buffer.alloc(RECORD_HEADER_BYTES)
  #headerBytes = 0
  /** Bytes of a passing record that have yet to come. */
  #recordLeft = 0

  /** `onTimeout` is called when a hello takes too long, unless the gate is closed before. */
  constructor(inspector: HelloInspector, onTimeout: () => void) {
    this.#judge = inspector.judge
    this.#timeoutMs = inspector.timeoutMs ?? 10_000
    this.#onTimeout = onTimeout
    this.#expectHello()
  }

  /** Whether a hello is expected or half there, so that the client can't leave in order. */
  get isHolding(): boolean {
    return this.#reader !== undefined
  }

  /** Whether no hello can come any more: whatever the client sends from now on is none of the gate's business. */
  get isOver(): boolean {
    return this.#reader === undefined && this.#server.isSettled
  }

  /** Looks at bytes of the server, before the client gets them. */
  watch(bytes: Buffer): void {
    this.#server.push(bytes)
  }

  /** Takes bytes of the client, which may be overwritten afterwards, unless they are the very bytes that it releases. */
  push(bytes: Buffer): GateVerdict {
    const released: Buffer[] = []
    for (let rest = bytes; rest.length > 0;) {
      if (this.isOver) {
        released.push(rest)
        break
      }
      const step = this.#reader === undefined ? this.#pass(rest) : this.#read(this.#reader, rest)
      if ('refuse' in step) return step
      if (step.release.length > 0) released.push(step.release)
      rest = step.rest
    }
    const [only, ...more] = released
    if (only === undefined) return 'hold'
    return { release: more.length === 0 ? only : Buffer.concat(released) }
  }

  /** Stops the timer. Idempotent. */
  close(): void {
    clearTimeout(this.#timer)
  }

  #expectHello(): void {
    this.#reader = new ClientHelloReader()
    this.#timer = setTimeout(this.#onTimeout, this.#timeoutMs)
  }

  #read(reader: ClientHelloReader, bytes: Buffer): Step {
    const result = reader.push(bytes)
    if (result.state === 'more') return { release: NOTHING, rest: NOTHING }
    this.close()
    const refuse = result.state === 'refused' ? result.reason : this.#judge(result.hello)
    if (refuse !== undefined) return { refuse }
    const helloBytes = reader.helloBytes
    const held = reader.release()
    this.#reader = undefined
    return { release: held.subarray(0, helloBytes), rest: held.subarray(helloBytes) }
  }

  /** As many records as are no handshake. */
  #pass(bytes: Buffer): Step {
    let at = 0
    while (at < bytes.length) {
      if (this.#recordLeft > 0) {
        const passed = Math.min(this.#recordLeft, bytes.length - at)
        this.#recordLeft -= passed
        at += passed
        continue
      }
      if (this.#headerBytes === 0 && bytes[at] === CONTENT_HANDSHAKE) {
        this.#expectHello()
        break
      }
      const taken = bytes.copy(this.#header, this.#headerBytes, at)
      this.#headerBytes += taken
      at += taken
      if (!this.#isPassing()) return { refuse: 'not_tls' }
    }
    return { release: bytes.subarray(0, at), rest: bytes.subarray(at) }
  }

  /** Reads as much of the header as is there. */
  #isPassing(): boolean {
    const [type = 0, major] = this.#header
    if (!PASSING_RECORDS.includes(type) || (this.#headerBytes > 1 && major !== 3)) return false
    if (this.#headerBytes < RECORD_HEADER_BYTES) return true
    this.#headerBytes = 0
    this.#recordLeft = this.#header.readUInt16BE(3)
    return this.#recordLeft <= MAX_ENCRYPTED_BYTES
  }
}

type Step = { readonly release: Buffer; readonly rest: Buffer } | { readonly refuse: HelloFault }
