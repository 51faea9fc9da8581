/** What was let out and what was not, in short: how often, why, and which `--allow` would have let it through. Pure. */
import { judgeAddress, type NetworkRules, parseAddress } from '../../policies/index.ts'
import { quoteShell } from '../../proxy/cli/quote-shell.ts'
import type { DecisionLine } from './decision-feed.ts'

/** Everything of a run that went to one destination and had one outcome. */
export interface Outcome {
  /** `refused`: by a decision. `reported`: let out, though the policy says no. `failed`: allowed, but it could not be reached. */
  readonly kind: 'allowed' | 'refused' | 'reported' | 'failed'
  /** `host:port`, or what was asked for where that is no destination. */
  readonly destination: string
  readonly reason: string | undefined
  /** An entry for `--allow`; absent where none would help. */
  readonly allow: string | undefined
  /** What to do instead, where no `--allow` would help. */
  readonly advice: string | undefined
  count: number
}

/** Counts decisions, within bounds. */
export interface Tally {
  /** The outcome that a line belongs to; its count includes the line. Undefined beyond {@link MAX_OUTCOMES}. */
  readonly add: (line: DecisionLine) => Outcome | undefined
  readonly outcomes: () => readonly Outcome[]
  /** Lines that belong to none of them. */
  readonly uncounted: () => number
}

/** Outcomes that are told apart. */
const MAX_OUTCOMES = 1_000

/** Ports that an entry without a port opens. */
const USUAL_PORTS: readonly (number | undefined)[] = [80, 443]

/** Makes an empty one; `network` says which private addresses the gateway may reach at all. */
export function createTally(network: NetworkRules): Tally {
  const outcomes = new Map<string, Outcome>()
  let uncounted = 0
  return {
    add: (line) => {
      const outcome = outcomeOf(line, network)
      const key = `${outcome.kind} ${outcome.destination} ${outcome.reason ?? ''}`
      const known = outcomes.get(key)
      if (known === undefined && outcomes.size >= MAX_OUTCOMES) {
        uncounted++
        return undefined
      }
      const counted = known ?? outcome
      counted.count++
      outcomes.set(key, counted)
      return counted
    },
    outcomes: () => [...outcomes.values()],
    uncounted: () => uncounted,
  }
}

/** The options that would have let everything through, such as `--allow a.example --allow b.example:8443`; undefined when none would. */
export function allowOptions(outcomes: readonly Outcome[]): string | undefined {
  const entries = new Set(outcomes.map(({ allow }) => allow).filter((entry) => entry !== undefined))
  return entries.size === 0 ? undefined : [...entries].map((entry) => `--allow ${quoted(entry)}`).join(' ')
}

function outcomeOf(line: DecisionLine, network: NetworkRules): Outcome {
  const { host, port, reason } = line
  const destination = host === undefined ? (line.requested ?? 'something unreadable') : authority(host, port)
  const common = { destination, reason, count: 0 }
  const kind = kindOf(line)
  if (kind === 'allowed') return { ...common, kind, allow: undefined, advice: undefined }
  if (reason === 'address_not_allowed' && host !== undefined && isClosed(host, network)) {
    return { ...common, kind, allow: undefined, advice: privateAdvice('') }
  }
  switch (reason) {
    case 'host_not_allowed':
    case 'address_not_allowed':
    case 'port_not_allowed':
      // At the claim or, when only reporting, at the layer that stands for it. The operator's ceiling is not lifted by asking.
      return line.layer === 'ceiling'
        ? { ...common, kind, allow: undefined, advice: 'the ceiling of the `--config` file does not allow it' }
        : { ...common, kind, allow: entryFor(host, port), advice: undefined }
    case 'host_denied':
      return { ...common, kind, allow: undefined, advice: `the entry ${line.rule ?? ''} of \`deniedHosts\` denies it` }
    case 'address_prohibited':
      return {
        ...common,
        kind,
        allow: undefined,
        advice: privateAdvice(addressesOf(line)),
      }
    default:
      // Let out only because the policy reports, and then not reached: the line says the latter.
      return { ...common, kind, allow: kind === 'reported' ? entryFor(host, port) : undefined, advice: undefined }
  }
}

function kindOf({ decision, effective, reason }: DecisionLine): Outcome['kind'] {
  if (decision === 'deny') return effective === 'deny' ? 'refused' : 'reported'
  return reason === undefined ? 'allowed' : 'failed'
}

/** Whether an address stays out of reach whatever a policy allows. */
function isClosed(host: string, network: NetworkRules): boolean {
  const address = parseAddress(host)
  return address.ok && judgeAddress(address.value, network).prohibited
}

function privateAdvice(addresses: string): string {
  return `it is a private or special address${addresses}; \`network.allowPrivate\` in a \`--config\` file opens it`
}

function entryFor(host: string | undefined, port: number | undefined): string | undefined {
  if (host === undefined) return undefined
  if (!USUAL_PORTS.includes(port)) return authority(host, port)
  return host.includes(':') ? `[${host}]` : host
}

function addressesOf({ host, resolved }: DecisionLine): string {
  const others = (resolved ?? []).filter((address) => address !== host)
  return others.length === 0 ? '' : ` (${others.slice(0, 4).join(', ')})`
}

function authority(host: string, port: number | undefined): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port ?? '?'}`
}

/** For a shell. */
function quoted(text: string): string {
  return /^[\w.:-]+$/.test(text) ? text : quoteShell(text)
}
