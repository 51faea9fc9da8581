/** Whether a verified token is good here and now: the questions that are asked at every use, also when its verdict is remembered. */
import type { CredentialReason } from '../reasons.ts'
import type { ClientInfo } from '../request.ts'
import type { Identity } from './identity.ts'

/** Seconds by which clocks may differ, when a tunnel is opened. */
export const LEEWAY_MS = 30_000

/** A token that was verified, at any time. */
export interface VerifiedToken {
  readonly identity: Identity
  /** The later of `iat` and `nbf`. */
  readonly notBeforeMs: number
}

/** Why a verified token is refused at `nowMs`, or `undefined`. Revocation first: it is the operator's word. */
export function refuseNow(
  token: VerifiedToken,
  client: ClientInfo,
  nowMs: number,
  isRevoked: (identity: Identity) => boolean,
): CredentialReason | undefined {
  const { identity, notBeforeMs } = token
  if (isRevoked(identity)) return 'token_revoked'
  if (nowMs >= identity.expiresAtMs + LEEWAY_MS) return 'token_expired'
  if (nowMs < notBeforeMs - LEEWAY_MS) return 'token_not_yet_valid'
  if (identity.binding && !holdsBinding(identity.binding, client)) return 'token_binding_mismatch'
  return undefined
}

/** When a tunnel that is opened now must end: at `exp`, or at the end of the leeway when it is opened inside it. */
export function tunnelExpiresAtMs(identity: Identity, nowMs: number): number {
  return nowMs < identity.expiresAtMs ? identity.expiresAtMs : identity.expiresAtMs + LEEWAY_MS
}

function holdsBinding(binding: NonNullable<Identity['binding']>, client: ClientInfo): boolean {
  if (binding.certificate !== undefined && binding.certificate !== client.certificateThumbprint) return false
  return binding.address === undefined || unmapped(binding.address) === unmapped(client.address)
}

/** A socket that serves both families names an IPv4 client in the mapped form. */
function unmapped(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.\d+\.\d+\.\d+$)/, '')
}
