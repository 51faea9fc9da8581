/** The fields of an audit line, and nothing else: names are part of the product. Never a token, a header value or a key. */
import type { LayerName } from '../../policies/index.ts'
import type { CloseReason, Reason } from '../reasons.ts'
import type { Dialect } from '../request.ts'

/** What all lines share; `seq`, `time`, `instance` and the chain are set by the log itself. */
interface CommonFields {
  readonly request_id?: string | undefined
  readonly tenant?: string | undefined
  readonly sandbox?: string | undefined
  readonly token_id?: string | undefined
  readonly issuer?: string | undefined
  readonly key_id?: string | undefined
  readonly dialect?: Dialect | undefined
  /** The target as it came, escaped to printable ASCII and cut at 512 characters. */
  readonly requested?: string | undefined
  /** Canonical name or address. */
  readonly host?: string | undefined
  readonly port?: number | undefined
  /** `address:port` of the client, or `unix`. */
  readonly client?: string | undefined
}

/** Credentials were refused, or a bare challenge was sent (`reason: token_missing`). */
export interface AuthEntry extends CommonFields {
  readonly kind: 'auth'
  readonly decision: 'deny'
  readonly effective: 'deny'
  readonly reason: Reason
}

/** The outcome of one request to go out. */
export interface DecisionEntry extends CommonFields {
  readonly kind: 'decision'
  /** What policy says. */
  readonly decision: 'allow' | 'deny'
  /** What happened: differs from `decision` under a reporting layer, and for an `allow` that could not be written in time and was refused. */
  readonly effective: 'allow' | 'deny'
  readonly reason?: Reason | undefined
  readonly layer?: LayerName | undefined
  readonly rule?: string | undefined
  readonly policy_version?: string | undefined
  readonly resolved?: readonly string[] | undefined
  readonly dialled?: string | undefined
  readonly dns_ms?: number | undefined
  readonly connect_ms?: number | undefined
}

/** The end of what a `decision` line with the same `request_id` let out. */
export interface CloseEntry extends CommonFields {
  readonly kind: 'close'
  readonly close_reason: CloseReason
  readonly sni?: string | undefined
  /** Origin to client. */
  readonly bytes_in: number
  /** Client to origin. */
  readonly bytes_out: number
  readonly duration_ms: number
  readonly policy_version?: string | undefined
}

/** What an operator did, or what happened to the log itself (start, stop, reload, revocation, a gap). */
export interface AdminEntry extends CommonFields {
  readonly kind: 'admin'
  /** Such as `start`, `stop`, `reload`, `reload_failed`, `revoke`, `gap`, `drain`. */
  readonly action: string
  /** Who did it: the name in an admin token or of a client certificate, or `unix` for the admin socket. */
  readonly author?: string | undefined
  readonly detail?: string | undefined
  /** Of a changed policy: entries that appeared, and (`removed`) vanished; those that deny begin with `!`. 32 of each are shown. */
  readonly added?: readonly string[] | undefined
  readonly removed?: readonly string[] | undefined
  readonly policy_version?: string | undefined
  /** For `gap`: how many lines could not be written. */
  readonly lost?: number | undefined
}

/** What a caller hands to the log. */
export type AuditEntry = AuthEntry | DecisionEntry | CloseEntry | AdminEntry

/** Where decisions are written down. */
export interface AuditLog {
  /**
   * Queues one line, in order. Resolves `true` once the line is in the file (a crash of the process can no longer lose it) and, with `sync: each`, on the
   * disk, unless it is of an end; `false` when it could not be written, or brought there. Never rejects. Lines of one turn of the event loop share one write.
   */
  readonly write: (entry: AuditEntry) => Promise<boolean>
  /** `false` while lines can't be written; under `onFailure: deny` new tunnels are then refused. */
  readonly isWritable: () => boolean
  /** Writes the last checkpoint and closes the file; idempotent. */
  readonly close: () => Promise<void>
}
