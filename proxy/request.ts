/** The data of one connection on its way through the gateway, from what arrived to what was decided. No behaviour here. */
import type { Allow, Deny, Destination, Layers, NetworkRules, Permit } from '../policies/index.ts'
import type { Reason } from './reasons.ts'
import type { Identity } from './tokens/identity.ts'
import type { Place } from './tunnels/limits.ts'

/** The protocol that the client speaks to the gateway. */
export type Dialect = 'connect' | 'http' | 'socks5'

/** Where a connection came from. */
export interface ClientInfo {
  /** Source address in canonical form, or `unix` for a unix socket. */
  readonly address: string
  /** Source port; 0 for a unix socket. */
  readonly port: number
  /** SHA-256 thumbprint (base64url) of the verified client certificate, where TLS to the proxy asked for one. RFC 8705 section 3.1. */
  readonly certificateThumbprint?: string
  /** The identity that a bound listener carries; then credentials are neither needed nor read. */
  readonly bound?: Identity
  /** No client: somebody asks the control API what such a one would be told. What that costs is not charged to the address. */
  readonly isAskedAbout?: true
}

/** What the client presented. `malformed` holds what can be said without repeating it. */
export type Credentials =
  | { readonly kind: 'none' }
  | { readonly kind: 'token'; readonly token: string }
  | { readonly kind: 'malformed'; readonly detail: string }

/** One request to go out, as its dialect read it. */
export interface ConnectionRequest {
  /** Unique per gateway process; in the reply and in every audit line. */
  readonly requestId: string
  readonly dialect: Dialect
  /** The raw `host:port` in latin1, exactly as it came; only `parseAuthority` reads it. */
  readonly target: string
  readonly credentials: Credentials
  readonly client: ClientInfo
  /** The value of the one `traceparent` that came with it, unread; empty for several. Decides nothing and goes into no line. */
  readonly traceparent?: string | undefined
}

/** When a request was whole, on the monotonic clock, and how long its first steps took; those that it did not come to are absent. In milliseconds. */
export interface StepTimes {
  readonly startedMs: number
  readonly identityMs: number
  readonly policyMs?: number
}

/** How far the decision got; what is not known yet is absent. All of it goes to the audit log. */
export interface Progress {
  readonly destination?: Destination | undefined
  /** What is known of who asked, also when the token was refused. */
  readonly identity?: Partial<Identity> | undefined
  /** Version of the layers that decided. */
  readonly policyVersion?: string | undefined
  /** What policy said last. An `allow` stands also when the connection then fails. */
  readonly verdict?: Deny | Omit<Allow, 'permit'> | undefined
  /** The addresses that the name resolved to, in canonical form. */
  readonly resolved?: readonly string[] | undefined
  readonly dnsMs?: number | undefined
  readonly connectMs?: number | undefined
  /** Absent for what was refused before anybody was asked who it is. */
  readonly times?: StepTimes | undefined
}

/** A connection that is not let out. A value, never an error. */
export interface Refusal extends Progress {
  readonly ok: false
  readonly reason: Reason
  /** For `Retry-After`, in whole seconds. */
  readonly retryAfterSeconds?: number | undefined
  /** What was wrong with the request or the token, for the client; never holds credentials or addresses. */
  readonly detail?: string | undefined
}

/** What policy decides by; each is replaced as a whole, never changed. */
export interface DecidedBy {
  readonly layers: Layers
  readonly network: NetworkRules
}

/** A connection that policy and limits let out, before anything was dialled. */
export interface Authorized extends Progress {
  readonly ok: true
  readonly identity: Identity
  readonly destination: Destination
  readonly permit: Permit
  /** What the permit was decided by: while these are in force, policy says the same. */
  readonly decidedBy: DecidedBy
  /** Wall clock, milliseconds; until then what is opened may live. */
  readonly expiresAtMs: number
  /** Its place under the limits. */
  readonly place: Place
}
