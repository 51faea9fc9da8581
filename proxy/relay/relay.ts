/** Moves the bytes of one tunnel, both ways, with backpressure and half-close. */
import type { Clock } from '../clock.ts'
import type { CloseReason } from '../reasons.ts'
import type { HelloInspector } from './client-hello.ts'
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
  /** Monotonic milliseconds of the last byte, as fine as this is read: bytes since the last look count as of now. */
  readonly lastActivityMs: number
  /** Ends the tunnel at once, both ends. Idempotent; the first reason stands. */
  cut(reason: CloseReason): void
}

/** What a relay is given beside its two sides. */
export interface RelayOptions {
  /** Bytes of the client that came early: they go up first (and through the inspector). */
  readonly early?: Buffer
  /** Bytes of the origin that came early (behind an upstream proxy's reply): they go down first. */
  readonly earlyDown?: Buffer
  /** Holds the client's bytes until the ClientHello is whole and approved. Absent: bytes flow at once. */
  readonly inspect?: HelloInspector
  /** Called once, when both ends are closed. */
  readonly onClose: (result: RelayResult) => void
  readonly clock: Clock
}

/** Starts relaying. Both sides belong to the relay from here on. */
export function relay(_client: Side, _upstream: Side, _options: RelayOptions): Relay {
  throw new Error('not built yet')
}
