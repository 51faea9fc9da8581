/** What a line of the audit log says that policy decided: who asked for what, and whether it was let out. The line is not believed: its target is read again. */
import { type Destination, parsed, type Parsed } from '../../policies/index.ts'
import type { AuditLine } from '../audit/schema.ts'
import type { KnownDestinations } from '../known-destinations.ts'

/** `reported`: let out by a layer in report mode that would have refused it. */
export type PastOutcome = 'allowed' | 'reported' | 'refused'

/** A decision of policy. */
export interface PastDecision {
  readonly destination: Destination
  readonly outcome: PastOutcome
  /** Why it was refused, or would have been; of a connection that failed afterwards, why that did. */
  readonly reason: string | undefined
  readonly layer: string | undefined
  readonly tenant: string | undefined
  readonly sandbox: string | undefined
  /** As the line has it. */
  readonly time: string
  /** Of a name, as it was resolved then; 32 at most. */
  readonly resolved: readonly string[] | undefined
}

/** Refusals that another policy would not have made. What is prohibited, over a limit or without good credentials is no affair of a policy. */
const BY_POLICY = new Set([
  'host_not_allowed',
  'host_denied',
  'port_not_allowed',
  'address_not_allowed',
  'policy_unavailable',
])

const NONE: Parsed<undefined> = parsed(undefined)

/** The decision of a line; `undefined` for a line that is about something else. A fault is a target that is none. */
export function pastDecision(line: AuditLine, destinations: KnownDestinations): Parsed<PastDecision | undefined> {
  if (line.kind !== 'decision' || line.host === undefined || line.port === undefined) return NONE
  const { host, port, reason, layer, tenant, sandbox, time, resolved } = line
  const isLetOut = line.decision === 'allow' || line.effective === 'allow'
  if (!isLetOut && !BY_POLICY.has(reason ?? '')) return NONE
  const destination = destinations.read(host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`)
  if (!destination.ok) return destination
  const outcome = line.decision === 'allow' ? 'allowed' : isLetOut ? 'reported' : 'refused'
  return parsed({ destination: destination.value, outcome, reason, layer, tenant, sandbox, time, resolved })
}
