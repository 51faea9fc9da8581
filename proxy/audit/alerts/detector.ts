/** Says which lines of the log somebody should be told of at once. A function of the lines alone: their times, not the clock. */
import { parseEndpoint } from '../formats/endpoint.ts'
import type { AuditLine } from '../schema.ts'

/** What is told. */
export interface Alert {
  readonly kind: 'challenges' | 'refusals' | 'canary' | 'chain'
  readonly message: string
  /** RFC 3339, of the line that raised it. */
  readonly time: string
  readonly instance: string
  readonly seq: number
  readonly count?: number
  readonly tenant?: string | undefined
  readonly sandbox?: string | undefined
  readonly host?: string | undefined
  readonly client?: string | undefined
}

/** When there is something to tell. */
export interface AlertRules {
  /** Bare challenges of one client address in ten minutes, without one accepted token. */
  readonly challenges: number
  /** Refusals of one sandbox, or of one client address without a token, in a minute. */
  readonly refusals: number
  /** Canonical hosts, or `*.` and one for every name below it. */
  readonly canaryHosts: readonly string[]
}

const CHALLENGE_WINDOW_MS = 600_000
const REFUSAL_WINDOW_MS = 60_000
/** One who asks for a canary again and again is told of once in so long. */
const CANARY_QUIET_MS = 60_000
/** Counters kept for each rule; beyond, the oldest goes. */
const MAX_COUNTERS = 10_000

/** Remembers what it saw of the last minutes; bounded. */
export class AlertDetector {
  readonly #rules: AlertRules
  readonly #challenges = new Windows(CHALLENGE_WINDOW_MS)
  readonly #refusals = new Windows(REFUSAL_WINDOW_MS)
  readonly #canaries = new Windows(CANARY_QUIET_MS)

  constructor(rules: AlertRules) {
    this.#rules = rules
  }

  /** The alerts that a line raises; each line is to be shown once, in order. */
  look(line: AuditLine): readonly Alert[] {
    const ms = Date.parse(line.time)
    return [this.#challenge(line, ms), this.#refusal(line, ms), this.#canary(line, ms), chainAlert(line)].filter(
      (alert) => alert !== undefined,
    )
  }

  #challenge(line: AuditLine, ms: number): Alert | undefined {
    const client = addressOf(line)
    if (client === undefined) return undefined
    if (line.kind === 'decision' && line.token_id !== undefined) this.#challenges.forget(client)
    if (line.kind !== 'auth' || line.reason !== 'token_missing') return undefined
    const count = this.#challenges.count(client, ms)
    if (count !== this.#rules.challenges) return undefined
    const message = `${client} was asked for a token ${count} times in ten minutes and never sent one that is accepted`
    return { kind: 'challenges', message, count, client, ...placeOf(line) }
  }

  #refusal(line: AuditLine, ms: number): Alert | undefined {
    const isRefusal =
      line.kind === 'auth' ? line.reason !== 'token_missing' : line.kind === 'decision' && line.effective === 'deny'
    const who = whoOf(line)
    if (!isRefusal || who === undefined) return undefined
    const count = this.#refusals.count(who, ms)
    if (count !== this.#rules.refusals) return undefined
    return {
      kind: 'refusals',
      message: `${who} was refused ${count} times in a minute`,
      count,
      ...subjectOf(line),
      ...placeOf(line),
    }
  }

  #canary(line: AuditLine, ms: number): Alert | undefined {
    const { host } = line
    if (
      line.kind !== 'decision' ||
      host === undefined ||
      !this.#rules.canaryHosts.some((canary) => covers(canary, host))
    )
      return undefined
    const who = whoOf(line) ?? 'somebody'
    if (this.#canaries.count(`${who} ${host}`, ms) !== 1) return undefined
    const outcome = line.effective === 'allow' ? 'and was let out' : 'and was refused'
    return {
      kind: 'canary',
      message: `${who} asked for the canary host ${host}, ${outcome}`,
      host,
      ...subjectOf(line),
      ...placeOf(line),
    }
  }
}

/** Counts in windows that begin with the first event. */
class Windows {
  readonly #lengthMs: number
  readonly #windows = new Map<string, { readonly sinceMs: number; count: number }>()

  constructor(lengthMs: number) {
    this.#lengthMs = lengthMs
  }

  count(key: string, ms: number): number {
    const known = this.#windows.get(key)
    if (known !== undefined && Math.abs(ms - known.sinceMs) < this.#lengthMs) return (known.count += 1)
    this.#windows.delete(key)
    this.#windows.set(key, { sinceMs: ms, count: 1 })
    for (const oldest of this.#windows.keys()) {
      if (this.#windows.size <= MAX_COUNTERS) break
      this.#windows.delete(oldest)
    }
    return 1
  }

  forget(key: string): void {
    this.#windows.delete(key)
  }
}

/** The gateway verifies its files now and then, and before it removes one; both leave a line. */
function chainAlert(line: AuditLine): Alert | undefined {
  if (line.kind !== 'admin') return undefined
  const detail = line.detail ?? ''
  const isBroken = line.action === 'verify_failed' || (line.action === 'retention' && detail.includes('NOT verified'))
  return isBroken ? { kind: 'chain', message: `the audit log does not verify: ${detail}`, ...placeOf(line) } : undefined
}

function covers(canary: string, host: string): boolean {
  return canary.startsWith('*.') ? host.endsWith(canary.slice(1)) : host === canary
}

function whoOf(line: AuditLine): string | undefined {
  return line.sandbox === undefined
    ? addressOf(line)
    : `sandbox ${[line.tenant, line.sandbox].filter(Boolean).join('/')}`
}

function addressOf({ client }: AuditLine): string | undefined {
  return client === undefined ? undefined : (parseEndpoint(client).ip ?? client)
}

function subjectOf(line: AuditLine): Pick<Alert, 'tenant' | 'sandbox' | 'client'> {
  return { tenant: line.tenant, sandbox: line.sandbox, client: addressOf(line) }
}

function placeOf({ time, instance, seq }: AuditLine): Pick<Alert, 'time' | 'instance' | 'seq'> {
  return { time, instance, seq }
}
