/** What would other policies have decided of what a log shows? Asks the evaluator that the gateway asks, groups the differences, and changes nothing. */
import {
  authorityText,
  decideAddresses,
  decideName,
  type Deny,
  type IpAddress,
  type Layers,
  type NameAllow,
  type NetworkRules,
  parseAddress,
} from '../../policies/index.ts'
import { BoundedNames, NameBudget, type NameCount } from './bounded-names.ts'
import type { PastDecision } from './past-decision.ts'

/** What is asked. */
export interface ReplayWorld {
  /** The layers to judge a tenant by, whose claim layer allows all. */
  readonly layersFor: (tenant: string | undefined) => Layers | Promise<Layers>
  readonly network: NetworkRules
  /** Whether the addresses that names resolved to then are judged too. */
  readonly judgesAddresses: boolean
}

/** Decisions that would have been another one, of one destination, reason and tenant. */
export interface ReplayGroup {
  readonly destination: string
  readonly tenant: string | undefined
  /** Of what would be refused: the new one. Of what would be let out: the one that it was refused for. */
  readonly reason: string
  readonly layer: string | undefined
  readonly decisions: number
  readonly sandboxes: NameCount
  readonly firstSeen: string
  readonly lastSeen: string
}

/** Most decisions first. */
export interface ReplaySide {
  readonly decisions: number
  readonly groups: readonly ReplayGroup[]
  /** Decisions that are counted, and in no group, since there were too many. */
  readonly ungrouped: number
}

/** What came of a log. */
export interface ReplayResult {
  readonly decisions: number
  readonly wouldRefuse: ReplaySide
  readonly wouldLetOut: ReplaySide
  readonly staysLetOut: number
  readonly staysRefused: number
  /** Of what stays refused: by the claim of the token, which no policy of the operator lifts. */
  readonly refusedByClaim: number
}

/** Groups of each kind, and verdicts and tenants that are remembered. */
const MAX_GROUPS = 10_000
const MAX_REMEMBERED = 20_000
const SHOWN_NAMES = 5

/** Judges decisions one by one; memory is bounded. */
export class Replay {
  readonly #world: ReplayWorld
  readonly #refuse = new Groups()
  readonly #letOut = new Groups()
  readonly #layers = new Map<string | undefined, Layers>()
  readonly #verdicts = new Map<string, Deny | NameAllow>()
  #decisions = 0
  #staysLetOut = 0
  #staysRefused = 0
  #refusedByClaim = 0

  constructor(world: ReplayWorld) {
    this.#world = world
  }

  /** Judges one; a promise only where a tenant's layers have yet to be asked for. */
  add(past: PastDecision): Promise<void> | undefined {
    const layers = this.#layers.get(past.tenant) ?? this.#world.layersFor(past.tenant)
    if (layers instanceof Promise) return layers.then((found) => this.#judge(past, found))
    this.#judge(past, layers)
    return undefined
  }

  /** What came of all so far. */
  result(): ReplayResult {
    return {
      decisions: this.#decisions,
      wouldRefuse: this.#refuse.side(),
      wouldLetOut: this.#letOut.side(),
      staysLetOut: this.#staysLetOut,
      staysRefused: this.#staysRefused,
      refusedByClaim: this.#refusedByClaim,
    }
  }

  #judge(past: PastDecision, layers: Layers): void {
    remember(this.#layers, past.tenant, layers)
    this.#decisions++
    const wasRefused = past.outcome === 'refused'
    if (wasRefused && past.layer === 'claim') {
      this.#refusedByClaim++
      this.#staysRefused++
      return
    }
    const verdict = this.#verdict(past, layers)
    const refusal = verdict.effective === 'deny' ? verdict : verdict.report
    if (refusal === undefined) {
      if (wasRefused) this.#letOut.add(past, past.reason ?? '', past.layer)
      else this.#staysLetOut++
    } else if (wasRefused) this.#staysRefused++
    else this.#refuse.add(past, refusal.reason, refusal.layer)
  }

  /** As `policy explain`: by the name, then by its addresses. */
  #verdict({ destination, resolved, tenant }: PastDecision, layers: Layers): Deny | NameAllow {
    const { network, judgesAddresses } = this.#world
    const key = `${tenant === undefined ? '' : `${tenant.length}:${tenant}`} ${authorityText(destination)} ${resolved?.join() ?? ''}`
    const known = this.#verdicts.get(key)
    if (known !== undefined) return known
    let verdict: Deny | NameAllow = decideName(layers, destination, network)
    const addresses = judgesAddresses ? (resolved ?? []).flatMap(readAddress) : []
    if (verdict.effective === 'allow' && addresses.length > 0)
      verdict = decideAddresses(layers, destination, addresses, network)
    remember(this.#verdicts, key, verdict)
    return verdict
  }
}

function readAddress(text: string): readonly IpAddress[] {
  const address = parseAddress(text)
  return address.ok ? [address.value] : []
}

/** All are forgotten when there are too many: they are found again as fast. */
function remember<K, V>(map: Map<K, V>, key: K, value: V): void {
  if (map.size >= MAX_REMEMBERED) map.clear()
  map.set(key, value)
}

class Groups {
  readonly #groups = new Map<string, Group>()
  readonly #budget = new NameBudget()
  #decisions = 0
  #ungrouped = 0

  add(past: PastDecision, reason: string, layer: string | undefined): void {
    this.#decisions++
    const destination = authorityText(past.destination)
    const key = JSON.stringify([destination, past.tenant, reason, layer])
    let group = this.#groups.get(key)
    if (group === undefined) {
      if (this.#groups.size >= MAX_GROUPS) {
        this.#ungrouped++
        return
      }
      group = {
        destination,
        tenant: past.tenant,
        reason,
        layer,
        count: 0,
        sandboxes: new BoundedNames(this.#budget),
        first: past.time,
        last: past.time,
      }
      this.#groups.set(key, group)
    }
    group.count++
    group.sandboxes.add(past.sandbox)
    if (past.time < group.first) group.first = past.time
    if (past.time > group.last) group.last = past.time
  }

  side(): ReplaySide {
    const groups = [...this.#groups]
      .sort(([oneKey, one], [otherKey, other]) => other.count - one.count || (oneKey < otherKey ? -1 : 1))
      .map(([, { count, sandboxes, first, last, ...rest }]) => ({
        ...rest,
        decisions: count,
        sandboxes: sandboxes.summary(SHOWN_NAMES),
        firstSeen: first,
        lastSeen: last,
      }))
    return { decisions: this.#decisions, groups, ungrouped: this.#ungrouped }
  }
}

interface Group {
  readonly destination: string
  readonly tenant: string | undefined
  readonly reason: string
  readonly layer: string | undefined
  count: number
  readonly sandboxes: BoundedNames
  first: string
  last: string
}
