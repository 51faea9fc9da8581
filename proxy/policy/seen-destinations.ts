/**
 * What an audit log shows that sandboxes asked for, and what policy comes of it. Whoever writes requests writes this log: a sandbox can ask for a host again and
 * again so that somebody allows it later. So every entry says how many sandboxes and tenants asked, and nothing is put in force by itself.
 */
import {
  authorityText,
  type Destination,
  doubt,
  type Doubt,
  matchedAs,
  suggestPolicy,
  type SuggestedEntry,
  type SuggestOptions,
} from '../../policies/index.ts'
import { BoundedNames, NameBudget, type NameCount } from './bounded-names.ts'
import type { PastDecision, PastOutcome } from './past-decision.ts'

/** Destinations that are told apart; a policy has 10,000 entries at most. */
const MAX_PLACES = 50_000
/** Names of sandboxes and tenants that are shown. */
const SHOWN_NAMES = 5

/** How often something was asked for, by whom, and when. */
export interface Sightings {
  readonly decisions: number
  readonly allowed: number
  readonly reported: number
  readonly refused: number
  readonly sandboxes: NameCount
  readonly tenants: NameCount
  /** Of the lines that have one. */
  readonly firstSeen: string
  readonly lastSeen: string
}

/** A warning: a doubt, or that the ceiling stands above, or that one sandbox alone asked. */
export interface Caution {
  readonly kind: Doubt['kind'] | 'ceiling' | 'one-sandbox'
  readonly why: string
}

/** Something of the log that no entry covers, and why. */
export interface LeftOut extends Sightings {
  readonly destination: string
  readonly why: readonly Doubt[]
}

/** An entry with what stands behind it. */
export interface ExplainedEntry extends Sightings {
  readonly entry: string
  /** What it opens that nobody asked for. */
  readonly opens: readonly string[]
  readonly warnings: readonly Caution[]
}

/** What came of a log. */
export interface SeenPolicy {
  readonly allowedHosts: readonly string[]
  readonly entries: readonly ExplainedEntry[]
  readonly leftOut: readonly LeftOut[]
  readonly total: Sightings
}

/** Settings of {@link SeenDestinations.suggest}. */
export interface SeenOptions extends SuggestOptions {
  /** Fewer sandboxes than this, and a destination is left out; 1 by default. */
  readonly minSandboxes?: number
}

interface Place {
  readonly destination: Destination
  readonly tally: Tally
  /** Whether nothing but the claims of tokens refused it: then no policy of the operator's helps. */
  isClaimOnly: boolean
  /** Whether the ceiling was among what refused it, or would have. */
  isAboveCeiling: boolean
  /** Whether a deny entry was among what refused it, or would have. */
  isDenied: boolean
  /** Whether it was ever more than a name that does not resolve. */
  hasResolved: boolean
}

/** Gathers decisions; memory is bounded. */
export class SeenDestinations {
  readonly #places = new Map<string, Place>()
  readonly #total = new Tally()
  readonly #budget = new NameBudget()
  #uncounted = 0

  /** Decisions for destinations beyond those that are told apart: then no policy can be suggested that allows all that was seen. */
  get uncounted(): number {
    return this.#uncounted
  }

  /** Counts one. */
  add(decision: PastDecision): void {
    const destination = matchedAs(decision.destination)
    const key = authorityText(destination)
    let place = this.#places.get(key)
    if (place === undefined) {
      if (this.#places.size >= MAX_PLACES) {
        this.#uncounted++
        return
      }
      place = { destination, tally: new Tally(this.#budget), ...UNSEEN }
      this.#places.set(key, place)
    }
    const { outcome, reason, layer } = decision
    place.tally.add(decision)
    place.isClaimOnly &&= outcome === 'refused' && layer === 'claim'
    place.isAboveCeiling ||= outcome !== 'allowed' && layer === 'ceiling'
    place.isDenied ||= reason === 'host_denied'
    place.hasResolved ||= reason !== 'dns_failed' && reason !== 'dns_timeout'
    this.#total.add(decision)
  }

  /** The shortest policy for all of it, but for what it leaves out. */
  suggest({ minSandboxes = 1, ...options }: SeenOptions = {}): SeenPolicy {
    const seen = [...this.#places.values()].map((place) => ({
      destination: place.destination,
      doubts: doubtsOfPlace(place, minSandboxes),
    }))
    const { allowedHosts, entries, leftOut } = suggestPolicy(seen, options)
    return {
      allowedHosts,
      entries: entries.map((entry) => this.#explain(entry)),
      leftOut: leftOut.map(({ destination, doubts }) => ({
        destination: authorityText(destination),
        why: doubts,
        ...this.#together([destination]),
      })),
      total: this.#total.sightings(),
    }
  }

  #explain({ text, covers, opens, doubts }: SuggestedEntry): ExplainedEntry {
    const sightings = this.#together(covers)
    const isAboveCeiling = covers.some((destination) => this.#places.get(authorityText(destination))?.isAboveCeiling)
    const warnings: Caution[] = [...doubts]
    if (isAboveCeiling) warnings.push({ kind: 'ceiling', why: 'the ceiling refused it: an entry there is needed too' })
    if (sightings.sandboxes.count === 1 && !sightings.sandboxes.atLeast && this.#total.sandboxes.summary(2).count > 1)
      warnings.push({ kind: 'one-sandbox', why: 'one sandbox alone asked for it' })
    return { entry: text, opens, warnings, ...sightings }
  }

  #together(covers: readonly Destination[]): Sightings {
    const together = new Tally()
    for (const destination of covers) {
      const place = this.#places.get(authorityText(destination))
      if (place !== undefined) together.merge(place.tally)
    }
    return together.sightings()
  }
}

const UNSEEN = { isClaimOnly: true, isAboveCeiling: false, isDenied: false, hasResolved: false }

function doubtsOfPlace({ tally, isDenied, isClaimOnly, hasResolved }: Place, minSandboxes: number): readonly Doubt[] {
  const doubts: Doubt[] = []
  if (isDenied) doubts.push({ kind: 'denied', why: 'a `deniedHosts` entry refuses it, which no allowed entry lifts' })
  if (isClaimOnly)
    doubts.push({ kind: 'claim', why: 'the claims of tokens refused it, which no policy of the operator lifts' })
  if (tally.sandboxes.summary(0).count < minSandboxes)
    doubts.push({ kind: 'few-sandboxes', why: `fewer than ${minSandboxes} sandboxes asked for it` })
  if (!hasResolved) doubts.push(doubt('unresolved'))
  return doubts
}

class Tally {
  readonly counts: Record<PastOutcome, number> = { allowed: 0, reported: 0, refused: 0 }
  readonly sandboxes: BoundedNames
  readonly tenants: BoundedNames
  first = ''
  last = ''

  constructor(budget?: NameBudget) {
    this.sandboxes = new BoundedNames(budget)
    this.tenants = new BoundedNames(budget)
  }

  add({ outcome, sandbox, tenant, time }: PastDecision): void {
    this.counts[outcome]++
    this.sandboxes.add(sandbox)
    this.tenants.add(tenant)
    if (this.first === '' || time < this.first) this.first = time
    if (time > this.last) this.last = time
  }

  merge(other: Tally): void {
    for (const outcome of ['allowed', 'reported', 'refused'] as const) this.counts[outcome] += other.counts[outcome]
    this.sandboxes.merge(other.sandboxes)
    this.tenants.merge(other.tenants)
    if (this.first === '' || (other.first !== '' && other.first < this.first)) this.first = other.first
    if (other.last > this.last) this.last = other.last
  }

  sightings(): Sightings {
    const { allowed, reported, refused } = this.counts
    return {
      decisions: allowed + reported + refused,
      allowed,
      reported,
      refused,
      sandboxes: this.sandboxes.summary(SHOWN_NAMES),
      tenants: this.tenants.summary(SHOWN_NAMES),
      firstSeen: this.first,
      lastSeen: this.last,
    }
  }
}
