/** Moves the bytes of one tunnel, both ways, with backpressure and half-close. It knows nothing of what they mean but, where asked, the ClientHello. */
import type { Clock } from '../clock.ts'
import type { CloseReason } from '../reasons.ts'
import type { HelloInspector } from './client-hello.ts'
import { HelloGate } from './hello-gate.ts'
import type { Receiver } from './receiver.ts'
import type { Side } from './side.ts'

/** How a tunnel ended. */
export interface RelayResult {
  readonly closeReason: CloseReason
  /** Bytes from origin to client. */
  readonly bytesIn: number
  /** Bytes from client to origin. */
  readonly bytesOut: number
}

/** A running relay. */
export interface Relay {
  /** Bytes from origin to client so far. */
  readonly bytesIn: number
  /** Bytes from client to origin so far; what waits for the hello's verdict is not counted. */
  readonly bytesOut: number
  /** Monotonic milliseconds of the last byte, as fine as this is read: bytes since the last look count as of now. Costs nothing while nobody looks. */
  readonly lastActivityMs: number
  /** From here on no byte is taken for either end; {@link Relay.cut} must follow. Costs next to nothing. Idempotent; the first reason stands. */
  stop(reason: CloseReason): void
  /** Ends the tunnel at once, both ends. Idempotent; the first reason stands. */
  cut(reason: CloseReason): void
}

/** What a relay is given beside its two sides. */
export interface RelayOptions {
  /** Bytes of the client that came early: they go up first, and through the inspector. What was put back into the side follows them. */
  readonly early?: Buffer
  /** Bytes of the origin that came early (behind an upstream proxy's reply): they go down first. */
  readonly earlyDown?: Buffer
  /** Holds the client's bytes until the ClientHello is whole and approved, and any that may follow it. Absent: bytes flow at once. */
  readonly inspect?: HelloInspector
  /** Told of bytes as they are sent on; in milliseconds, how long whoever sent them is to be left unread. Absent: as fast as it goes. */
  readonly pace?: (bytes: number) => number
  /** Called once, when both ends are closed. */
  readonly onClose: (result: RelayResult) => void
  readonly clock: Clock
}

/** Starts relaying. Both sides belong to the relay from here on. */
export function relay(client: Side, upstream: Side, options: RelayOptions): Relay {
  const tunnel = new Tunnel(client, upstream, options)
  tunnel.start(options)
  return tunnel
}

/** The peer has gone without a proper end; what a closed peer's socket says, in whichever call comes first. */
const GONE = new Set(['ECONNRESET', 'EPIPE', 'ERR_STREAM_DESTROYED', 'ECONNABORTED'])

/** A side that is left unread for a while, since its bytes came too fast. */
interface Held {
  readonly timer: NodeJS.Timeout
  /** What it sent last is through, too. */
  isThrough: boolean
}

class Tunnel implements Relay, Receiver {
  readonly #client: Side
  readonly #upstream: Side
  readonly #onClose: (result: RelayResult) => void
  readonly #clock: Clock
  readonly #pace: ((bytes: number) => number) | undefined
  readonly #held = new Map<Side, Held>()
  #gate: HelloGate | undefined
  #bytesIn = 0
  #bytesOut = 0
  #seenBytes = 0
  #lastActivityMs: number
  #cutReason: CloseReason | undefined
  /** Who went first, unless the tunnel was cut. */
  #endReason: CloseReason | undefined
  #open = 2
  /** Begins a tunnel that waits, since others have used up the bytes per second. */
  #waiting: { readonly timer: NodeJS.Timeout; readonly begin: () => void } | undefined

  constructor(client: Side, upstream: Side, options: RelayOptions) {
    this.#client = client
    this.#upstream = upstream
    this.#onClose = options.onClose
    this.#clock = options.clock
    this.#pace = options.pace
    this.#lastActivityMs = options.clock.monotonicMs()
  }

  get bytesIn(): number {
    return this.#bytesIn
  }

  get bytesOut(): number {
    return this.#bytesOut
  }

  get lastActivityMs(): number {
    const bytes = this.#bytesIn + this.#bytesOut
    if (bytes !== this.#seenBytes) {
      this.#seenBytes = bytes
      this.#lastActivityMs = this.#clock.monotonicMs()
    }
    return this.#lastActivityMs
  }

  /** A new tunnel pays the debts of the others first: else each would bring a read that nobody waits for. */
  start(options: RelayOptions): void {
    const waitMs = this.#pace?.(0) ?? 0
    if (waitMs === 0) {
      this.#begin(options)
      return
    }
    const begin = (): void => {
      clearTimeout(this.#waiting?.timer)
      this.#waiting = undefined
      this.#begin(options)
    }
    this.#waiting = { timer: setTimeout(begin, waitMs), begin }
  }

  #begin({ early, earlyDown, inspect }: RelayOptions): void {
    if (inspect !== undefined && this.#cutReason === undefined)
      this.#gate = new HelloGate(inspect, () => this.cut('hello_timeout'))
    this.#startWith(this.#client, early)
    this.#startWith(this.#upstream, earlyDown)
  }

  /** What came early goes first. Whoever sent it is read on like everybody else: when it is through, and paid for. */
  #startWith(side: Side, early: Buffer | undefined): void {
    let goesOn = true
    for (const bytes of [early, side.takeUnread()])
      if (bytes?.length && this.received(side, bytes) !== true) goesOn = false
    side.start(this, goesOn)
  }

  stop(reason: CloseReason): void {
    this.#cutReason ??= reason
  }

  cut(reason: CloseReason): void {
    if (this.#open === 0) return
    this.stop(reason)
    this.#gate?.close()
    this.#client.abort()
    this.#upstream.abort()
    // What was never begun has nobody who hears that it ended.
    this.#waiting?.begin()
  }

  received(from: Side, bytes: Buffer): boolean | 'held' {
    const isThrough = this.#send(from, bytes)
    const waitMs = this.#pace?.(bytes.length) ?? 0
    if (waitMs === 0 || this.#cutReason !== undefined) return isThrough
    this.#hold(from, waitMs, isThrough)
    return isThrough && 'held'
  }

  #send(from: Side, bytes: Buffer): boolean {
    if (this.#cutReason !== undefined) return false
    if (this.#gate !== undefined) return this.#inspect(this.#gate, from, bytes)
    if (from === this.#upstream) {
      this.#bytesIn += bytes.length
      return this.#client.send(bytes)
    }
    this.#bytesOut += bytes.length
    return this.#upstream.send(bytes)
  }

  ended(side: Side): void {
    this.#endReason ??= this.#goneReason(side)
    // Who was cut short must not see an end in order.
    if (this.#cutReason !== undefined) {
      this.cut(this.#cutReason)
      return
    }
    // Half a hello and an end: nothing will go up any more, and of that hello nothing has.
    if (side === this.#client && this.#gate?.isHolding) this.cut(this.#endReason)
    else this.#otherThan(side).finish()
  }

  drained(side: Side): void {
    const from = this.#otherThan(side)
    const held = this.#held.get(from)
    if (held === undefined) from.proceed()
    else held.isThrough = true
  }

  #hold(side: Side, forMs: number, isThrough: boolean): void {
    clearTimeout(this.#held.get(side)?.timer)
    const timer = setTimeout(() => {
      const held = this.#held.get(side)
      this.#held.delete(side)
      if (held?.isThrough === true) side.proceed()
    }, forMs)
    this.#held.set(side, { timer, isThrough })
  }

  closed(side: Side, fault: string | undefined): void {
    const other = this.#otherThan(side)
    this.#open--
    for (const { timer } of this.#held.values()) clearTimeout(timer)
    this.#held.clear()
    this.#endReason ??= fault === undefined || GONE.has(fault) ? this.#goneReason(side) : 'error'
    // A side that has sent its end and got the other's has closed in order: the other may still be sending the last of it.
    const inOrder = fault === undefined && side.ended && other.ended
    if (!inOrder) other.abort()
    other.proceed()
    if (this.#open > 0) return
    side.proceed()
    this.#gate?.close()
    const closeReason = this.#cutReason ?? this.#endReason
    this.#onClose({ closeReason, bytesIn: this.#bytesIn, bytesOut: this.#bytesOut })
  }

  #inspect(gate: HelloGate, from: Side, bytes: Buffer): boolean {
    if (from === this.#upstream) {
      gate.watch(bytes)
      if (gate.isOver) this.#gate = undefined
      this.#bytesIn += bytes.length
      return this.#client.send(bytes)
    }
    const verdict = gate.push(bytes)
    if (verdict === 'hold') return true
    if ('refuse' in verdict) {
      this.cut(verdict.refuse)
      return false
    }
    if (gate.isOver) this.#gate = undefined
    this.#bytesOut += verdict.release.length
    return this.#upstream.send(verdict.release)
  }

  #otherThan(side: Side): Side {
    return side === this.#client ? this.#upstream : this.#client
  }

  #goneReason(side: Side): CloseReason {
    return side === this.#client ? 'client_closed' : 'upstream_closed'
  }
}
