/** Which entry of a list covers a destination? Answered by hash, so that 500 entries cost what 5 do. */
import type { IpAddress } from './address.ts'
import type { Entry, HostEntry } from './entry.ts'
import type { HostName } from './host.ts'
import { coversPort, EVERY_PORT, type PortRange } from './ports.ts'
import type { Steps } from './steps.ts'

/** The entry that covers a destination, `other-port` when entries cover only its host, else `undefined`. */
export type Match = Rule | 'other-port' | undefined

/** What an entry grants or denies where its host matches. */
export interface Rule {
  /** The entry as the list has it: of a set, the set. */
  readonly text: string
  readonly ports: readonly PortRange[]
}

/** Entries that are added in a step. */
const STEP_ENTRIES = 500

/** A compiled list of entries; immutable. The most specific entry answers: exact, then the longest wildcard or range. */
export class HostTable {
  readonly #names = new Map<string, Rule[]>()
  readonly #below = new Map<string, Rule[]>()
  readonly #prefixes = { 4: new Map<string, Rule[]>(), 6: new Map<string, Rule[]>() }
  /** The lengths that occur among the prefixes, longest first. */
  readonly #lengths = { 4: [] as number[], 6: [] as number[] }
  readonly #withoutPorts: 'default' | 'every'

  /** `withoutPorts`: what entries without a port cover: 80 and 443 in a list that allows, every port in one that denies. */
  constructor(entries: readonly Entry[], withoutPorts: 'default' | 'every') {
    this.#withoutPorts = withoutPorts
    for (const entry of entries) this.#add(entry)
  }

  /** The same in steps. */
  static *inSteps(entries: readonly Entry[], withoutPorts: 'default' | 'every'): Steps<HostTable> {
    const table = new HostTable([], withoutPorts)
    for (const [index, entry] of entries.entries()) {
      if (index % STEP_ENTRIES === STEP_ENTRIES - 1) yield
      table.#add(entry)
    }
    return table
  }

  /** Whether any address is listed at all. */
  get hasAddresses(): boolean {
    return this.#lengths[4].length + this.#lengths[6].length > 0
  }

  /** A range never covers a name. */
  findName(host: HostName, port: number): Match {
    let match = pick(this.#names.get(host), port, undefined)
    if (this.#below.size === 0) return match
    for (let dot = host.indexOf('.'); dot >= 0 && !isRule(match); dot = host.indexOf('.', dot + 1)) {
      match = pick(this.#below.get(host.slice(dot + 1)), port, match)
    }
    return match
  }

  /** A name or a wildcard never covers an address. */
  findAddress(address: IpAddress, port: number): Match {
    const prefixes = this.#prefixes[address.family]
    let match: Match
    for (const length of this.#lengths[address.family]) {
      match = pick(prefixes.get(address.bits.slice(0, length)), port, match)
      if (isRule(match)) return match
    }
    return match
  }

  #add(entry: Entry): void {
    for (const part of entry.kind === 'preset' ? entry.entries : [entry]) {
      const coversAll = this.#withoutPorts === 'every' && (entry.kind === 'preset' || !part.hasPorts)
      this.#addPart(part, { text: entry.text, ports: coversAll ? EVERY_PORT : part.ports })
    }
  }

  #addPart(entry: HostEntry, rule: Rule): void {
    if (entry.kind === 'exact') push(this.#names, entry.host, rule)
    else if (entry.kind === 'wildcard') push(this.#below, entry.below, rule)
    else {
      const { family, bits } = entry.kind === 'address' ? entry.address : entry.range
      push(this.#prefixes[family], bits, rule)
      const lengths = this.#lengths[family]
      if (lengths.includes(bits.length)) return
      lengths.push(bits.length)
      lengths.sort((one, other) => other - one)
    }
  }
}

/** Whether a match is an entry that covers host and port. */
export function isRule(match: Match): match is Rule {
  return typeof match === 'object'
}

/** The first rule that covers the port, else what was found so far. */
function pick(rules: readonly Rule[] | undefined, port: number, sofar: Match): Match {
  if (rules === undefined) return sofar
  return rules.find((rule) => coversPort(rule.ports, port)) ?? 'other-port'
}

function push(rules: Map<string, Rule[]>, key: string, rule: Rule): void {
  const known = rules.get(key)
  if (known === undefined) rules.set(key, [rule])
  else known.push(rule)
}
