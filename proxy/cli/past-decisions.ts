/** The decisions of an audit log, for commands that learn from them: which log, which part of it, and what could not be used. */
import type { Option } from 'commander'
import { queryAudit } from '../audit/query.ts'
import { KnownDestinations } from '../known-destinations.ts'
import { pastDecision, type PastDecision } from '../policy/past-decision.ts'
import { readInstant } from './audit-filters.ts'
import { configOption, option } from './command.ts'
import { loadCommandConfig, type Loaded } from './config-file.ts'
import type { Terminal } from './terminal.ts'

/** What {@link pastOptions} reads. */
export interface PastOptions {
  readonly config?: string
  readonly audit?: string
  readonly tenant?: string
  readonly sandbox?: string
  readonly since?: string
  readonly until?: string
}

/** Which log, and which part of it. */
export function pastOptions(): readonly Option[] {
  return [
    configOption(),
    option('--audit <folder>', 'the folder (or one file) of the log, instead of that of the configuration'),
    option('--tenant <name>', 'only this tenant'),
    option('--sandbox <id>', 'only this sandbox'),
    option('--since <time>', 'not before: an instant in UTC, or a time ago such as `7d`'),
    option('--until <time>', 'before: likewise'),
  ]
}

/** The configuration that is meant: the one named; where no log is named, that of the environment or of this folder. */
export async function configOfLog(terminal: Terminal, options: PastOptions): Promise<Loaded | undefined> {
  return options.config === undefined && options.audit !== undefined
    ? undefined
    : loadCommandConfig(terminal, options.config)
}

/** What was read. */
export interface PastCount {
  readonly decisions: number
  /** Lines whose target is none: no gateway writes such. */
  readonly malformed: number
}

/**
 * Hands every decision of policy to `take`, in order of time; nothing is kept.
 * @throws SallyportError `SALLYPORT_AUDIT_UNREADABLE`
 */
export async function eachPastDecision(
  terminal: Terminal,
  path: string,
  options: PastOptions,
  take: (decision: PastDecision) => Promise<void> | undefined,
): Promise<PastCount> {
  const { tenant, sandbox, since, until } = options
  const destinations = new KnownDestinations()
  const found = queryAudit({
    path,
    filters: {
      kind: 'decision',
      tenant,
      sandbox,
      sinceMs: since === undefined ? undefined : readInstant(since),
      untilMs: until === undefined ? undefined : readInstant(until),
    },
    signal: terminal.signal,
  })
  let decisions = 0
  let malformed = 0
  for await (const { line } of found) {
    const past = pastDecision(line, destinations)
    if (!past.ok) malformed++
    else if (past.value !== undefined) {
      decisions++
      await take(past.value)
    }
  }
  return { decisions, malformed }
}
