/** What the routes of the control API ask of the gateway. Data and functions; no behaviour here. */
import type { EntrySets } from '../../policies/index.ts'
import type { AuditEntry, AuditLog } from '../audit/record.ts'
import type { AuditService } from '../audit/service.ts'
import type { Clock } from '../clock.ts'
import type { Config } from '../config/schema.ts'
import type { Gate } from '../connection.ts'
import type { PolicySource } from '../policy/policy-source.ts'
import type { State } from '../state/state.ts'
import type { OwnKeys } from '../tokens/keys.ts'
import { AdminError } from './admin-error.ts'
import type { AuditReader } from './audit-reader/audit-reader.ts'
import type { Leases } from './leases.ts'
import type { OpenTunnels } from './open-tunnels.ts'
import type { Caller } from './access.ts'
import type { WorkersView } from './workers-view.ts'

/** The gateway, as the control API sees it. */
export interface Control {
  readonly config: () => Config
  readonly clock: Clock
  readonly audit: AuditLog
  readonly auditService: Pick<AuditService, 'sinks' | 'integrity'>
  /** Why the gateway should get no new connections at the moment; empty when it should. */
  readonly notReady: () => readonly string[]
  /** Of the package. */
  readonly version: string
  readonly policies: PolicySource
  readonly state: State
  readonly ownKeys: OwnKeys
  readonly tunnels: OpenTunnels
  /** `undefined`: this process is the whole gateway. */
  readonly workers: WorkersView | undefined
  /** Who is behind credentials, which layers hold, what resolves: what a connection asks. */
  readonly gate: Gate
  /** The named sets that an entry of a token may mean. */
  readonly sets: () => EntrySets
  /**
   * Looks at every open tunnel again, in every worker too; resolves when what is no longer allowed was cut: with the number of workers that did not
   * confirm in time, and were ended.
   */
  readonly recheck: () => Promise<number>
  /** Reads the configuration again; `undefined` where the gateway was not started from a file. @throws what is wrong with it */
  readonly reload: (() => Promise<void>) | undefined
  readonly leases: Leases
  readonly auditReader: AuditReader
}

/** Writes down what a caller is about to do. @throws AdminError `audit_unavailable`: then it must not happen */
export async function recordFirst(
  { audit, config }: Pick<Control, 'audit' | 'config'>,
  caller: Caller,
  entry: Omit<Extract<AuditEntry, { kind: 'admin' }>, 'kind' | 'author' | 'client'>,
): Promise<void> {
  const written = await audit.write({ kind: 'admin', author: caller.author, client: caller.client, ...entry })
  if (!written && config().audit.onFailure === 'deny')
    throw new AdminError('audit_unavailable', 'the change can not be written down, so it was not made')
}

/** Writes down what a caller took away: that happens whatever becomes of the line. */
export function recordAlso(
  { audit }: Pick<Control, 'audit'>,
  caller: Caller,
  entry: Omit<Extract<AuditEntry, { kind: 'admin' }>, 'kind' | 'author' | 'client'>,
): void {
  void audit.write({ kind: 'admin', author: caller.author, client: caller.client, ...entry })
}
