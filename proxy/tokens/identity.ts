/** Who is behind a connection: what a verified token, a handle or a bound listener says of its bearer. Data only. */
import type { CompiledPolicy } from '../../policies/index.ts'

/** The only source that may use a token: all that are given must hold. */
export interface Binding {
  /** SHA-256 thumbprint of the client certificate, base64url without padding. @see RFC 8705 section 3.1 */
  readonly certificate?: string
  /** Canonical text of the only source address. */
  readonly address?: string
}

/** The `issuer` of a bound listener's identity. No token has it: an issuer of that name can't be configured. */
export const BOUND_ISSUER = 'bound'

/** A caller whose credentials hold, or whom a bound listener stands for. */
export interface Identity {
  /** The `jti`, or `sha256:` and the token's hash for an issuer whose tokens have none. Safe to log. */
  readonly tokenId: string
  /** The `iss`; `bound` for a bound listener. */
  readonly issuer: string
  /** The `kid` of the key that verified the token; `undefined` where the key has none. */
  readonly keyId: string | undefined
  /** The sandbox id (`sub`, or what the issuer maps to it). */
  readonly sandbox: string | undefined
  /** The tenant; without one there is no tenant layer. */
  readonly tenant: string | undefined
  /** `iat`, in milliseconds since the epoch. */
  readonly issuedAtMs: number
  /** `exp`, in milliseconds since the epoch; `Infinity` is for bound listeners alone. */
  readonly expiresAtMs: number
  /** The claim layer; `deny-all` when the token says nothing about egress. */
  readonly claim: CompiledPolicy
  /** `undefined`: a bearer token, good from anywhere. */
  readonly binding: Binding | undefined
}
