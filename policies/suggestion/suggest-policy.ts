/**
 * The shortest policy that allows what was seen. No entry can be taken away without refusing something, a set stands for several hosts of it, a wildcard for
 * several names as deep below their domain as it can, and everything that it opens beyond what was seen is said. Pure, and the same for the same input in any order.
 */
import { authorityText, type Destination } from '../destination.ts'
import { unmapped } from '../address.ts'
import { parseEntry, type EntrySets, type PresetEntry } from '../entry.ts'
import { HostTable, isRule } from '../host-table.ts'
import type { HostName } from '../host.ts'
import { coversPort } from '../ports.ts'
import { presetNames } from '../presets/index.ts'
import { registrableDomain } from '../public-suffix.ts'
import { doubtsOf, isDoubtfulBelow, type Doubt } from './doubts.ts'
import type { DoubtKind } from './doubtful-names.ts'

/** A destination that a sandbox asked for. */
export interface SeenDestination {
  readonly destination: Destination
  /** What is known beside its name, such as that it never resolved. */
  readonly doubts?: readonly Doubt[]
}

/** Settings of {@link suggestPolicy}. */
export interface SuggestOptions {
  /** The operator's and the machine's sets, beside the shipped ones. */
  readonly sets?: EntrySets
  /** Doubtful destinations that are suggested all the same, with the warning. None by default. */
  readonly include?: ReadonlySet<DoubtKind>
  /** So many names below one domain make a wildcard; 3 by default, 0 for none. */
  readonly wildcardFrom?: number
  /** Whether sets are suggested; they are by default. */
  readonly presets?: boolean
}

/** One entry of the policy, and why it is there. */
export interface SuggestedEntry {
  /** As `allowedHosts` takes it. */
  readonly text: string
  /** What was seen and is allowed by it. */
  readonly covers: readonly Destination[]
  /** What it opens that nobody asked for, in words or as entries; empty for what opens exactly what was seen. */
  readonly opens: readonly string[]
  readonly doubts: readonly Doubt[]
}

/** A policy and what it leaves out. */
export interface Suggestion {
  readonly allowedHosts: readonly string[]
  readonly entries: readonly SuggestedEntry[]
  readonly leftOut: readonly { readonly destination: Destination; readonly doubts: readonly Doubt[] }[]
}

const NOTHING: ReadonlySet<Doubt['kind']> = new Set()
const WILDCARD_FROM = 3
/** A set stands for at least so many hosts of its own that were seen. */
const SET_FROM = 2

interface Place {
  readonly key: string
  readonly destination: Destination
  readonly doubts: readonly Doubt[]
}

/** An entry that stands for several hosts. */
interface Wide {
  readonly text: string
  readonly opens: readonly string[]
  readonly covers: ReadonlySet<Place>
}

/** Suggests. Destinations that are given twice count once, the doubts of both. */
export function suggestPolicy(seen: Iterable<SeenDestination>, options: SuggestOptions = {}): Suggestion {
  const { include = NOTHING, wildcardFrom = WILDCARD_FROM, presets = true } = options
  const places = placesOf(seen)
  const included: ReadonlySet<Doubt['kind']> = include
  const [wanted, doubtful] = [places.filter(isWanted), places.filter((place) => !isWanted(place))]
  const plain = wanted.filter(({ doubts }) => doubts.length === 0)
  // What never resolved may well be opened by the way; everything else that is left out stays closed.
  const isClosed = ({ doubts }: Place): boolean => doubts.some(({ kind }) => kind !== 'unresolved')
  const closed = doubtful.filter(isClosed)
  const open = [...wanted, ...doubtful.filter((place) => !isClosed(place))]

  const sets = presets ? chooseSets({ plain, open, closed }, options.sets) : []
  const wildcards =
    wildcardFrom > 0 ? chooseWildcards({ plain: without(plain, sets), open, closed }, Math.max(2, wildcardFrom)) : []
  const wide = withoutNeedless([...sets, ...wildcards], new Set(wanted))
  const entries = [...wide.map(asEntry), ...exactEntries(without(wanted, wide))].sort((one, other) =>
    byText(one.text, other.text),
  )
  return { allowedHosts: entries.map(({ text }) => text), entries, leftOut: without(doubtful, wide) }

  function isWanted({ doubts }: Place): boolean {
    return doubts.every(({ kind }) => included.has(kind))
  }
}

/** What was seen: `plain` calls for an entry, `open` may be covered by one that stands for several, `closed` must not. */
interface Places {
  readonly plain: readonly Place[]
  readonly open: readonly Place[]
  readonly closed: readonly Place[]
}

function placesOf(seen: Iterable<SeenDestination>): readonly Place[] {
  const places = new Map<string, Place>()
  for (const { destination: given, doubts = [] } of seen) {
    const destination = matchedAs(given)
    const key = authorityText(destination)
    const known = places.get(key)
    const all = [...(known?.doubts ?? doubtsOf(destination)), ...doubts]
    const distinct = [...new Map(all.map((one) => [one.kind, one])).values()]
    places.set(key, { key, destination, doubts: distinct })
  }
  return [...places.values()].sort((one, other) => byText(one.key, other.key))
}

/** What entries are compared with: an IPv4-mapped literal is looked up as the IPv4 address that it is. */
export function matchedAs(destination: Destination): Destination {
  if (destination.kind === 'name') return destination
  return { ...destination, address: unmapped(destination.address) ?? destination.address }
}

/** Greedy: the set that spares most entries first; of equals the one that opens least. */
function chooseSets({ plain, open, closed }: Places, more: EntrySets | undefined): readonly Wide[] {
  const candidates = readSets(more).flatMap((entry) => {
    const table = new HostTable([entry], 'default')
    if (closed.some(({ destination }) => coversPlace(table, destination))) return []
    const covers = new Set(open.filter(({ destination }) => coversPlace(table, destination)))
    return [{ text: entry.text, covers, opens: unseenOf(entry, covers) }]
  })
  const chosen: Wide[] = []
  for (;;) {
    const rest = without(plain, chosen)
    const counted = candidates.map((set) => ({ set, spares: hostsOf(rest.filter((place) => set.covers.has(place))) }))
    const [best] = counted.sort(
      (one, other) =>
        other.spares - one.spares ||
        one.set.opens.length - other.set.opens.length ||
        byText(one.set.text, other.set.text),
    )
    if (best === undefined || best.spares < SET_FROM) return chosen
    chosen.push(best.set)
  }
}

function readSets(more: EntrySets | undefined): readonly PresetEntry[] {
  return [...new Set([...presetNames(), ...(more?.keys() ?? [])])].flatMap((name) => {
    const entry = parseEntry(`@${name}`, { from: 'file', ...(more && { sets: more }) })
    return entry.ok && entry.value.kind === 'preset' ? [entry.value] : []
  })
}

function unseenOf(set: PresetEntry, covers: ReadonlySet<Place>): readonly string[] {
  const unseen = set.entries.filter((entry) => {
    const table = new HostTable([entry], 'default')
    return entry.kind === 'wildcard' || ![...covers].some(({ destination }) => coversPlace(table, destination))
  })
  return unseen.map(({ text }) => text)
}

/**
 * The names that no set covers, as a tree of labels, from its leaves up: a name with enough of them strictly below it, on one port, becomes a wildcard. Never
 * above what one owner registered, and never over something that was left out or that is doubtful by itself.
 */
function chooseWildcards({ plain, open, closed }: Places, least: number): readonly Wide[] {
  const refused = new Set(closed.flatMap(({ destination }) => parentsOf(destination)))
  const portsOf = new Map<HostName, Set<number>>()
  const covered = new Set<Place>()
  const deepestFirst = [...byParent(plain)]
    .filter(([parent, places]) => places.length >= least && !refused.has(parent) && !isDoubtfulBelow(parent))
    .sort(([one], [other]) => other.split('.').length - one.split('.').length || byText(one, other))
  for (const [parent, places] of deepestFirst) {
    const rest = places.filter((place) => !covered.has(place))
    for (const [port, found] of Map.groupBy(rest, ({ destination }) => destination.port)) {
      if (found.length < least) continue
      for (const place of found) covered.add(place)
      portsOf.set(parent, (portsOf.get(parent) ?? new Set()).add(port))
    }
  }
  const below = byParent(open)
  return [...portsOf].flatMap(([parent, ports]) =>
    portTexts(ports).map(({ text, holds }) => ({
      text: `*.${parent}${text}`,
      opens: [`every name below ${parent}`],
      covers: new Set((below.get(parent) ?? []).filter(({ destination }) => holds(destination.port))),
    })),
  )
}

function byParent(places: readonly Place[]): ReadonlyMap<HostName, readonly Place[]> {
  const below = new Map<HostName, Place[]>()
  for (const place of places) {
    for (const parent of parentsOf(place.destination)) {
      const known = below.get(parent)
      if (known === undefined) below.set(parent, [place])
      else known.push(place)
    }
  }
  return below
}

/** The names strictly above a name that one owner registered, that owner's own the last. */
function parentsOf(destination: Destination): readonly HostName[] {
  if (destination.kind === 'address') return []
  const top = registrableDomain(destination.host)
  const parents: HostName[] = []
  if (top === undefined) return parents
  for (let name: string = destination.host; name !== top;) {
    name = name.slice(name.indexOf('.') + 1)
    parents.push(name as HostName)
  }
  return parents
}

/** Takes away what others cover whole, the widest first. */
function withoutNeedless(wide: readonly Wide[], wanted: ReadonlySet<Place>): readonly Wide[] {
  const counts = new Map<Place, number>()
  for (const { covers } of wide) for (const place of covers) counts.set(place, (counts.get(place) ?? 0) + 1)
  const order = [...wide].sort((one, other) => other.opens.length - one.opens.length || byText(one.text, other.text))
  return order.filter(({ covers }) => {
    const isNeeded = [...covers].some((place) => wanted.has(place) && counts.get(place) === 1)
    if (!isNeeded) for (const place of covers) counts.set(place, (counts.get(place) ?? 0) - 1)
    return isNeeded
  })
}

function distinctDoubts(places: Iterable<Place>): readonly Doubt[] {
  return [...new Map([...places].flatMap(({ doubts }) => doubts).map((one) => [one.kind, one])).values()]
}

function exactEntries(places: readonly Place[]): readonly SuggestedEntry[] {
  const hosts = Map.groupBy(places, ({ key }) => key.slice(0, key.lastIndexOf(':')))
  return [...hosts].flatMap(([host, found]) => {
    const ports = new Set(found.map(({ destination }) => destination.port))
    return portTexts(ports).map(({ text, holds }) => {
      const own = found.filter(({ destination }) => holds(destination.port))
      return {
        text: `${host}${text}`,
        covers: own.map(({ destination }) => destination),
        opens: [],
        doubts: distinctDoubts(own),
      }
    })
  })
}

/** What stands behind a host for exactly these ports, in as few entries as there are: runs of ports, and nothing for 80 with 443. */
function portTexts(
  ports: ReadonlySet<number>,
): readonly { readonly text: string; readonly holds: (port: number) => boolean }[] {
  const runs: { low: number; high: number }[] = []
  for (const port of [...ports].sort((one, other) => one - other)) {
    const last = runs.at(-1)
    if (last?.high === port - 1) last.high = port
    else runs.push({ low: port, high: port })
  }
  const isAlone = (port: number): boolean => runs.some(({ low, high }) => low === port && high === port)
  const usual = isAlone(80) && isAlone(443) ? [80, 443] : []
  const others = runs.filter(({ low }) => !usual.includes(low))
  return [
    ...(usual.length === 0 ? [] : [{ text: '', holds: (port: number) => usual.includes(port) }]),
    ...others.map((run) => ({
      text: run.low === run.high ? `:${run.low}` : `:${run.low}-${run.high}`,
      holds: (port: number) => coversPort([run], port),
    })),
  ]
}

function coversPlace(table: HostTable, destination: Destination): boolean {
  return destination.kind === 'name' && isRule(table.findName(destination.host, destination.port))
}

function without(places: readonly Place[], wide: readonly Wide[]): readonly Place[] {
  return places.filter((place) => !wide.some(({ covers }) => covers.has(place)))
}

function hostsOf(places: readonly Place[]): number {
  return new Set(places.map(({ key }) => key.slice(0, key.lastIndexOf(':')))).size
}

function asEntry({ text, opens, covers }: Wide): SuggestedEntry {
  return { text, opens, covers: [...covers].map(({ destination }) => destination), doubts: distinctDoubts(covers) }
}

/** By code unit, so that it is the same everywhere. */
function byText(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0
}
