/** What all processes of a gateway count against limits, brought together: each is told what the others counted, and what a worker that ended held is given back. */
import type { LimitCounters } from '../tunnels/limits.ts'
import type { UntoldUsage, UsageChange } from '../tunnels/usage.ts'
import { packUsage, unpackUsage, type WireUsage } from './protocol.ts'
import { tellUsage, type UsageTeller } from './tell-usage.ts'

/** Who takes part: a worker. */
export interface UsageMember {
  readonly send: (message: { readonly kind: 'usage'; readonly changes: WireUsage }) => void
  readonly isSlow: boolean
}

interface Share {
  readonly teller: UsageTeller
  /** Tunnels by counter. */
  readonly held: Map<string, UsageChange>
}

/** Counters that one worker may hold tunnels of: as many as there may be tunnels, twice. */
const MOST_HELD = 2_000_000

/** Brings the counts of a supervising process and of its workers together. */
export class SharedUsage {
  readonly #processes: number
  readonly #own: UsageTeller
  readonly #shares = new Map<UsageMember, Share>()
  #limits: LimitCounters | undefined

  /** So many workers, and this process. */
  constructor(workers: number) {
    this.#processes = workers + 1
    this.#own = tellUsage(this.#processes, (changes) => this.#tellOthers(undefined, changes))
  }

  /** Of the supervising process itself. */
  get untold(): UntoldUsage {
    return this.#own.untold
  }

  /** The counters of the supervising process know all that counts. */
  use(limits: LimitCounters): void {
    this.#limits = limits
  }

  /** Tells a new worker all that counts, and from then on what changes. */
  join(member: UsageMember): void {
    const tell = (told: Iterable<UsageChange>): void => {
      for (const changes of packUsage(told)) member.send({ kind: 'usage', changes })
    }
    const teller = tellUsage(this.#processes, tell, () => member.isSlow)
    this.#shares.set(member, { teller, held: new Map() })
    tell(this.#limits?.usage() ?? [])
  }

  /** @throws RangeError for what can't have been counted */
  take(member: UsageMember, changes: WireUsage): void {
    const share = this.#shares.get(member)
    if (share === undefined) return
    const counted = unpackUsage(changes)
    for (const change of counted) hold(share.held, change)
    this.#add(member, counted)
  }

  /** Its tunnels are gone; what it used up stays used up. */
  leave(member: UsageMember): void {
    const share = this.#shares.get(member)
    if (share === undefined) return
    this.#shares.delete(member)
    share.teller.close()
    this.#add(
      member,
      [...share.held.values()].map((held) => ({ ...held, tunnels: -held.tunnels })),
    )
  }

  #add(from: UsageMember, changes: readonly UsageChange[]): void {
    this.#limits?.addElsewhere(changes)
    this.#tellOthers(from, changes)
  }

  #tellOthers(from: UsageMember | undefined, changes: readonly UsageChange[]): void {
    for (const [member, { teller }] of this.#shares) {
      if (member === from) continue
      for (const change of changes) teller.untold.add(change)
    }
  }
}

function hold(held: Map<string, UsageChange>, { key, isTenant, tunnels }: UsageChange): void {
  if (tunnels === 0) return
  const now = (held.get(key)?.tunnels ?? 0) + tunnels
  if (now < 0 || now > MOST_HELD || held.size > MOST_HELD) throw new RangeError('more than can be held')
  if (now === 0) held.delete(key)
  else held.set(key, { key, isTenant, tunnels: now, opened: 0, bytes: 0, paced: 0 })
}
