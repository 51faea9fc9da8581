/**
 * One end of a connection: read by pull while its request is made out, then by whoever relays it.
 * Nothing here knows what the bytes mean.
 */
import type net from 'node:net'
import type { Awaited, Wait } from '../deadlines.ts'
import type { Member } from '../roster.ts'
import { COLD_BYTES, coldBuffer, copyOf } from './buffers.ts'
import { type Borrower, HotLoan } from './hot-loan.ts'
import type { Receiver } from './receiver.ts'
import { turns, type Visitor } from './turns.ts'
import type { Wire, WireOwner } from './wire.ts'

/** One end of a connection. Faults of the wire never throw: they close the side. */
export class Side implements WireOwner, Borrower, Visitor, Awaited, Member {
  /** {@link Awaited} */
  wait: Wait | undefined
  /** {@link Member} of those that are served. */
  rosterPlace = -1
  readonly #wire: Wire
  #receiver: Receiver | undefined
  #unread: Buffer | undefined
  #reader: ((bytes: Buffer | null) => void) | undefined
  #closeListener: (() => void) | undefined
  #fault: string | undefined
  #ended = false
  #closed = false
  /** The receiver said stop; what it was given last may still be on its way out of the borrowed buffer. */
  #stopped = false
  #queued = false
  /** Bytes of this visit. */
  #visited = 0
  #loan: HotLoan | undefined

  /** The side of an open connection, which is its own from here on. It does not read until told. */
  constructor(wire: Wire) {
    this.#wire = wire
    wire.own(this)
  }

  /** True from the moment that the connection is being closed. */
  get closed(): boolean {
    return this.#closed || this.#wire.destroyed
  }

  /** Whether the peer's end was read. */
  get ended(): boolean {
    return this.#ended
  }

  /** The peer's address as the system says it; empty for unix sockets and for a peer that has left. */
  get peer(): Wire['peer'] {
    return this.#wire.peer
  }

  /** The next bytes, the caller's own copy; `null` at the end of the stream, clean or not. One read at a time; the socket is not read otherwise. */
  read(): Promise<Buffer | null> {
    if (this.#reader !== undefined) throw new TypeError('a read is pending already')
    const unread = this.takeUnread()
    if (unread !== undefined) return Promise.resolve(unread)
    if (this.#ended || this.closed) return Promise.resolve(null)
    return new Promise((resolve) => {
      this.#reader = resolve
      this.#wire.read()
    })
  }

  /** Puts bytes back: they are the next to be read, relayed or handed on. */
  unread(bytes: Buffer): void {
    if (bytes.length > 0) this.#unread = this.#unread === undefined ? bytes : Buffer.concat([bytes, this.#unread])
  }

  /** The bytes that were put back, if any; they are the caller's from here on. */
  takeUnread(): Buffer | undefined {
    const unread = this.#unread
    this.#unread = undefined
    return unread
  }

  /** Sends bytes. */
  write(bytes: Buffer): void {
    this.#wire.send(bytes)
  }

  /** Sends what is given and then the end of the stream; reading goes on. */
  end(bytes?: Buffer): void {
    if (bytes !== undefined) this.#wire.send(bytes)
    this.#wire.end()
  }

  /** Nothing more is to be sent. */
  finish(): void {
    this.#wire.finish()
  }

  /** Closes at once; a pending read gets `null`. Idempotent. */
  destroy(): void {
    this.#wire.destroy()
  }

  /** Closes at once and, where the transport can say so, tells the peer that what it has is not all (RST). Idempotent. */
  abort(): void {
    this.#wire.abort()
  }

  /** Called once when the connection is closed or handed on; in a later turn if it already is closed. One listener at a time. */
  onClose(listener: () => void): void {
    if (this.#closed) process.nextTick(listener)
    else this.#closeListener = listener
  }

  /**
   * Gives the side up for an ordinary socket that is not reading, with unread bytes pushed back: fit for `httpServer.emit('connection', socket)`, whose
   * owner closes it from here on.
   * It has a listener for `error` that does nothing.
   */
  toStream(): net.Socket {
    const socket = this.#wire.toStream()
    this.#closeListener?.()
    const unread = this.takeUnread()
    if (unread !== undefined) socket.unshift(unread)
    return socket
  }

  /**
   * From here on bytes and events go to the receiver. What was put back must be taken before. Reading starts, unless that is not through yet
   * (`goesOn: false`): then with {@link Side.proceed}.
   */
  start(receiver: Receiver, goesOn = true): void {
    this.#receiver = receiver
    this.#stopped = !goesOn
    if (this.#closed) process.nextTick(() => receiver.closed(this, this.#fault))
    else if (this.#ended) process.nextTick(() => receiver.ended(this))
    else if (goesOn) this.#wire.read()
  }

  /** Sends bytes to the peer. `false`: not all of them are in the kernel yet, {@link Receiver.drained} follows. */
  send(bytes: Buffer): boolean {
    return this.#wire.send(bytes)
  }

  /** What the receiver was given last is through, or void: reading goes on. */
  proceed(): void {
    if (!this.#stopped) return
    this.#stopped = false
    if (this.#ended || this.#closed) this.#loan?.giveBack()
    else if (!this.#queued) this.#wire.read()
  }

  /** {@link Visitor} */
  readOn(): void {
    this.#queued = false
    if (!this.#stopped) this.#wire.read()
  }

  /** {@link Borrower} */
  letGo(): boolean {
    return !this.#stopped && !this.#queued && this.#wire.readInto(coldBuffer)
  }

  /** {@link WireOwner} */
  onRead(bytesRead: number): boolean {
    const hot = this.#loan?.buffer
    const buffer = hot ?? coldBuffer
    if (this.#receiver === undefined) return this.#pull(copyOf(buffer, bytesRead))
    const more = this.#relay(hot === undefined ? copyOf(coldBuffer, bytesRead) : hot.subarray(0, bytesRead))
    const isFull = bytesRead >= COLD_BYTES
    if (!isFull) this.#visited = 0
    if (hot !== undefined && (isFull || this.#stopped) && more !== 'held') this.#loan?.used()
    else if (hot !== undefined) this.#loan?.giveBack()
    else if (isFull && more !== 'held' && !this.closed) (this.#loan ??= new HotLoan(this)).borrow()
    this.#wire.readInto(this.#loan?.buffer ?? coldBuffer)
    return more === true
  }

  /** {@link WireOwner}; a chunk of its own needs no copy. */
  onChunk(chunk: Buffer): boolean {
    return this.#receiver === undefined ? this.#pull(chunk) : this.#relay(chunk) === true
  }

  /** {@link WireOwner} */
  onEnd(): void {
    this.#ended = true
    if (!this.#stopped) this.#loan?.giveBack()
    this.#answer(null)
    this.#receiver?.ended(this)
  }

  /** {@link WireOwner} */
  onDrain(): void {
    this.#receiver?.drained(this)
  }

  /** {@link WireOwner} */
  onFault(fault: string): void {
    this.#fault ??= fault
  }

  /** {@link WireOwner} */
  onClosed(): void {
    this.#closed = true
    if (!this.#stopped) this.#loan?.giveBack()
    this.#answer(null)
    this.#closeListener?.()
    this.#receiver?.closed(this, this.#fault)
  }

  #pull(bytes: Buffer): boolean {
    if (this.#reader === undefined)
      this.#unread = this.#unread === undefined ? bytes : Buffer.concat([this.#unread, bytes])
    else this.#answer(bytes)
    return false
  }

  #answer(bytes: Buffer | null): void {
    const reader = this.#reader
    this.#reader = undefined
    reader?.(bytes)
  }

  #relay(bytes: Buffer): boolean | 'held' {
    const more = this.#receiver?.received(this, bytes) ?? false
    this.#stopped = more !== true
    if (this.#stopped) {
      this.#visited = 0
      return more
    }
    this.#visited += bytes.length
    if (this.#visited < turns.bytesAVisit) return true
    this.#visited = 0
    this.#queued = true
    turns.queue(this)
    return false
  }
}
