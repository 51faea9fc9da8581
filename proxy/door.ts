/**
 * Who is let in at all? What comes to nothing (refused, malformed, silent) costs as much as what goes out, and a client that sends it by the thousand would leave
 * the others waiting. Each address may have so many of those a second: a great many while there is time for them, few while the event loop is busy. Whose
 * are used up is closed at the accept, unread, which is as cheap as it gets. From then on each connection of his is paid for as it comes in, not when something
 * has become of it, so that those let in come one by one. No decision is made here, and nobody is let out.
 */
import { performance } from 'node:perf_hooks'
import type { Clock } from './clock.ts'
import { networkOf } from './network-of.ts'
import type { ClientInfo } from './request.ts'

/** What an address may have come to nothing in a second, and at once: while there is time, and at the least. */
const MOST_A_SECOND = 10_000
const LEAST_A_SECOND = 300
/** Share of its time that the event loop may be busy before there is no time. */
const BUSY = 0.6
/** How often that is looked at, and what follows from it. */
const LOOK_MS = 100
const FEWER = 0.25
const MORE = 1.1

/** How much faster than it refills what is left may be used while somebody is turned away: after a standstill a flood waits at the door all at once. */
const RUSH = 4

/** Who came to nothing longest ago is forgotten first. */
const MAX_PAYERS = 10_000

/** How often it is said who was turned away, and how many are named then. */
const SAY_MS = 10_000
const MAX_NAMED = 16

/** What something costs, next to a refused connection. */
export const WEIGHT = {
  refused: 1,
  /** A TLS handshake that failed. */
  handshake: 3,
  /** A piece of a head, after the first. */
  piece: 0.1,
}

/** Connections of one client that were closed unread. */
export interface TurnedAway {
  /** An address, an IPv6 network, `unix`, or whose listener it is; `undefined`: of all that are not named. */
  readonly who: string | undefined
  readonly connections: number
}

/** What {@link Door} is made of. */
export interface DoorOptions {
  readonly clock: Pick<Clock, 'monotonicMs'>
  /** `limits.turnAway`. Default: always. */
  readonly isUsed?: () => boolean
  /** Told of each connection that was closed. */
  readonly onTurnAway?: () => void
  /** Told every ten seconds while there is something to say. */
  readonly onSay?: (turnedAway: readonly TurnedAway[]) => void
  /** How much of the time since it was asked last the event loop was busy, from 0 to 1; a seam for tests. */
  readonly busy?: () => number
}

interface Payer {
  left: number
  atMs: number
  /** His connections that were paid for as they came in, and of which nothing has become yet. */
  paid: number
  /** When the last of those was let in. */
  inMs: number
}

/** The door of one process. */
export class Door {
  readonly #clock: Pick<Clock, 'monotonicMs'>
  readonly #options: DoorOptions
  readonly #busy: () => number
  readonly #payers = new Map<string, Payer>()
  /** Those of them who had nothing left, until they have all of it again. */
  readonly #spent = new Map<string, Payer>()
  #perSecond = MOST_A_SECOND
  #lookedMs: number
  readonly #turnedAway = new Map<string | undefined, number>()
  #sayTimer: NodeJS.Timeout | undefined

  constructor(options: DoorOptions) {
    this.#options = options
    this.#clock = options.clock
    this.#busy = options.busy ?? busySinceLast()
    this.#lookedMs = this.#clock.monotonicMs()
  }

  /** Whether nobody is turned away, so that nobody need be asked who he is. */
  get isOpenToAll(): boolean {
    return this.#spent.size === 0
  }

  /** Whether a connection of this client is to be closed unread; then it counts as turned away. */
  turnsAway(client: Pick<ClientInfo, 'address' | 'bound'>): boolean {
    const who = payerOf(client)
    const payer = this.#spentPayer(who)
    if (payer === undefined) return false
    if (payer.left >= WEIGHT.refused && payer.atMs - payer.inMs >= 1000 / (RUSH * this.#perSecond)) {
      payer.left -= WEIGHT.refused
      payer.paid++
      payer.inMs = payer.atMs
      return false
    }
    const named = this.#turnedAway.has(who) || this.#turnedAway.size < MAX_NAMED ? who : undefined
    this.#turnedAway.set(named, (this.#turnedAway.get(named) ?? 0) + 1)
    this.#sayTimer ??= setTimeout(() => this.#say(), SAY_MS).unref()
    this.#options.onTurnAway?.()
    return true
  }

  /** Whether this client has used up what it may have come to nothing. */
  isClosedTo(client: Pick<ClientInfo, 'address' | 'bound'>): boolean {
    const payer = this.#spentPayer(payerOf(client))
    return payer !== undefined && payer.left <= 0
  }

  /** Books what came to nothing. */
  cameToNothing(client: Pick<ClientInfo, 'address' | 'bound'>, weight = WEIGHT.refused): void {
    this.#look()
    const who = payerOf(client)
    const payer = this.#payers.get(who) ?? {
      left: this.#perSecond,
      atMs: this.#clock.monotonicMs(),
      paid: 0,
      inMs: -Infinity,
    }
    this.#payers.delete(who)
    this.#payers.set(who, payer)
    if (this.#payers.size > MAX_PAYERS) this.#forgetFirst()
    const isPaid = weight >= WEIGHT.refused && payer.paid > 0
    if (isPaid) payer.paid--
    payer.left = this.#refill(payer) - (isPaid ? weight - WEIGHT.refused : weight)
    if (payer.left <= 0) this.#spent.set(who, payer)
  }

  /** Gives back what was paid for a request that went out. */
  wentOut(client: Pick<ClientInfo, 'address' | 'bound'>): void {
    if (this.#spent.size === 0) return
    const payer = this.#spent.get(payerOf(client))
    if (payer === undefined || payer.paid === 0) return
    payer.paid--
    payer.left = this.#refill(payer) + WEIGHT.refused
  }

  /** Says what is left to say; idempotent. */
  close(): void {
    clearTimeout(this.#sayTimer)
    this.#say()
  }

  /** One of the spent, with what he has by now; `undefined` for all others. */
  #spentPayer(who: string): Payer | undefined {
    if (this.#spent.size === 0 || this.#options.isUsed?.() === false) return undefined
    const payer = this.#spent.get(who)
    if (payer === undefined) return undefined
    this.#look()
    if (this.#refill(payer) < this.#perSecond) return payer
    payer.paid = 0
    this.#spent.delete(who)
    return undefined
  }

  #refill(payer: Payer): number {
    const now = this.#clock.monotonicMs()
    payer.left = Math.min(this.#perSecond, payer.left + ((now - payer.atMs) * this.#perSecond) / 1000)
    payer.atMs = now
    return payer.left
  }

  /** Fewer while the event loop is busy, more while it is not, also for the time that nobody asked. */
  #look(): void {
    const passed = (this.#clock.monotonicMs() - this.#lookedMs) / LOOK_MS
    if (passed < 1) return
    this.#lookedMs += passed * LOOK_MS
    const factor = this.#busy() > BUSY ? FEWER : MORE ** passed
    this.#perSecond = Math.min(MOST_A_SECOND, Math.max(LEAST_A_SECOND, this.#perSecond * factor))
  }

  #forgetFirst(): void {
    for (const first of this.#payers.keys()) {
      this.#payers.delete(first)
      this.#spent.delete(first)
      return
    }
  }

  #say(): void {
    this.#sayTimer = undefined
    if (this.#turnedAway.size === 0) return
    this.#options.onSay?.([...this.#turnedAway].map(([who, connections]) => ({ who, connections })))
    this.#turnedAway.clear()
  }
}

/** A listener that stands for one sandbox has clients of no other. */
function payerOf({ address, bound }: Pick<ClientInfo, 'address' | 'bound'>): string {
  return bound === undefined ? networkOf(address) : `the listener of ${bound.tokenId}`
}

function busySinceLast(): () => number {
  let last = performance.eventLoopUtilization()
  return () => {
    const now = performance.eventLoopUtilization()
    const { utilization } = performance.eventLoopUtilization(now, last)
    last = now
    return utilization
  }
}
