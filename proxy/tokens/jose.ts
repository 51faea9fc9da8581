/** The library that signs and verifies, loaded with the first issuer, token or key: a gateway whose listeners all stand for a sandbox never needs it. */
import type * as Jose from 'jose'

let loading: Promise<typeof Jose> | undefined

/** The library. */
export function jose(): Promise<typeof Jose> {
  return (loading ??= import('jose'))
}
