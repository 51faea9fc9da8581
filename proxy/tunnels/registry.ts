/**
 * Every open tunnel, and what ends it before its time: its token's expiry, a revocation, a policy that no longer allows it, idleness, a used-up quota.
 * One coarse timer looks at all of them; no tunnel has a timer of its own. Thousands may be cut at once: nothing passes on any of them from that moment, and
 * their ends, which take longer, are done a few at a time.
 */
import { finish, type Permit } from '../../policies/index.ts'
import type { Clock } from '../clock.ts'
import { inSlices, type Waits } from '../in-slices.ts'
import type { CloseReason } from '../reasons.ts'
import type { DecidedBy } from '../request.ts'
import type { Relay } from '../relay/relay.ts'
import { type Member, Roster } from '../roster.ts'
import type { Identity } from '../tokens/identity.ts'
import type { Place } from './limits.ts'

/** What the registry knows of one open tunnel. */
export interface Tunnel {
  readonly requestId: string
  readonly identity: Identity
  readonly permit: Permit
  readonly decidedBy: DecidedBy
  /** Wall clock; the tunnel never outlives it by more than a sweep, nor, if that clock is put back, the time that it had left when it was opened. */
  readonly expiresAtMs: number
  readonly place: Place
  /** One that can't be stopped is ended at once. */
  readonly relay: Pick<Relay, 'bytesIn' | 'bytesOut' | 'lastActivityMs' | 'cut'> & Partial<Pick<Relay, 'stop'>>
}

/** A tunnel that is watched. */
export interface Watched extends Member {
  readonly tunnel: Tunnel
  /** Monotonic clock. */
  readonly lastsUntilMs: number
  /** Bytes already counted against the quota. */
  counted: number
  /** Why nothing passes on it any more. */
  cutFor: CloseReason | undefined
}

/** Tunnels are looked at four times a second: a cut is never later than a second after its cause, with room for a busy event loop. */
const SWEEP_MS = 250

/** Holds the open tunnels; `close()` stops its timer and cuts nothing. */
export class TunnelRegistry {
  readonly #watched = new Roster<Watched>()
  readonly #clock: Clock
  readonly #timer: NodeJS.Timeout
  readonly #onFault: (error: unknown) => void
  #idleTimeoutMs: number
  /** Nothing passes on them any more, and they have yet to end. */
  readonly #stopped: Watched[] = []
  #ending: Promise<void> | undefined

  /**
   * `idleTimeoutMs`: a tunnel without a byte in either direction for this long is cut. `sweepMs`: how often they are looked at; default 250. `onFault` is told
   * of a tunnel that could not be ended, which keeps none of the others open.
   */
  constructor(options: {
    readonly clock: Clock
    readonly idleTimeoutMs: number
    readonly sweepMs?: number
    readonly onFault?: (error: unknown) => void
  }) {
    this.#clock = options.clock
    this.#onFault = options.onFault ?? (() => undefined)
    this.#idleTimeoutMs = options.idleTimeoutMs
    this.#timer = setInterval(() => this.sweep(), options.sweepMs ?? SWEEP_MS).unref()
  }

  /** Takes effect at the next sweep, for open tunnels too. */
  setIdleTimeout(idleTimeoutMs: number): void {
    this.#idleTimeoutMs = idleTimeoutMs
  }

  /** How many are open, those that are about to end among them. */
  get size(): number {
    return this.#watched.size
  }

  /** What the open tunnels have carried so far. */
  get openBytes(): { readonly bytesIn: number; readonly bytesOut: number } {
    let bytesIn = 0
    let bytesOut = 0
    this.#watched.forEach(({ tunnel: { relay } }) => {
      bytesIn += relay.bytesIn
      bytesOut += relay.bytesOut
    })
    return { bytesIn, bytesOut }
  }

  /** From now on the tunnel is watched, until {@link remove}. */
  add(tunnel: Tunnel): Watched {
    const lastsUntilMs = this.#clock.monotonicMs() + tunnel.expiresAtMs - this.#clock.wallMs()
    const watched = { tunnel, lastsUntilMs, counted: 0, cutFor: undefined, rosterPlace: -1 }
    this.#watched.add(watched)
    return watched
  }

  /** The tunnel has ended: its last bytes are counted and its place is given back. Idempotent. */
  remove(watched: Watched): void {
    if (!this.#watched.remove(watched)) return
    countBytes(watched)
    watched.tunnel.place.release()
  }

  /** The open tunnels that are not cut, in no order. */
  list(): Watched[] {
    return this.#watched.list().filter(({ cutFor }) => cutFor === undefined)
  }

  /** Nothing passes on the tunnel any more; its end follows soon. Idempotent; the first reason stands. */
  cut(watched: Watched, reason: CloseReason): void {
    if (watched.cutFor !== undefined) return
    watched.cutFor = reason
    const { relay } = watched.tunnel
    if (relay.stop === undefined) {
      this.#end(watched, reason)
      return
    }
    relay.stop(reason)
    this.#stopped.push(watched)
    // Once whoever cuts has stopped all that it means to.
    this.#ending ??= Promise.resolve().then(() => inSlices(this.#endStopped()))
  }

  /** Cuts all of them. */
  cutAll(reason: CloseReason): void {
    for (const watched of this.list()) this.cut(watched, reason)
  }

  /** Resolves when all that was cut has been ended. */
  async cutsDone(): Promise<void> {
    await this.#ending
  }

  /** Ends at once what was cut, however long that takes: for when nobody else is served any more. */
  endCut(): void {
    finish(this.#endStopped())
  }

  /** Cuts what has expired, idled too long or used up its quota. Runs by itself; tests call it with their own clock. */
  sweep(): void {
    const wallMs = this.#clock.wallMs()
    const nowMs = this.#clock.monotonicMs()
    const idleSinceMs = nowMs - this.#idleTimeoutMs
    this.#watched.forEach((watched) => {
      const { tunnel, lastsUntilMs } = watched
      const overQuota = countBytes(watched)
      if (wallMs >= tunnel.expiresAtMs || nowMs >= lastsUntilMs) this.cut(watched, 'token_expired')
      else if (overQuota) this.cut(watched, 'byte_quota')
      else if (tunnel.relay.lastActivityMs <= idleSinceMs) this.cut(watched, 'idle_timeout')
    })
  }

  /** Idempotent. */
  close(): void {
    clearInterval(this.#timer)
  }

  #end({ tunnel }: Watched, reason: CloseReason): void {
    try {
      tunnel.relay.cut(reason)
    } catch (error) {
      this.#onFault(error)
    }
  }

  *#endStopped(): Waits<void> {
    for (let next = this.#stopped.pop(); next !== undefined; next = this.#stopped.pop()) {
      if (next.cutFor !== undefined) this.#end(next, next.cutFor)
      yield undefined
    }
    this.#ending = undefined
  }
}

function countBytes(watched: Watched): boolean {
  const { place, relay } = watched.tunnel
  const total = relay.bytesIn + relay.bytesOut
  const fresh = total - watched.counted
  if (fresh === 0) return false
  watched.counted = total
  return place.addBytes(fresh)
}
