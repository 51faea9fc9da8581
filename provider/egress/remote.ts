/** Ways out through a gateway elsewhere, under tokens of 15 minutes or less that this process mints and never shows to a sandbox. */
import { chmod, rm } from 'node:fs/promises'
import { readSigningKey, type SigningKey } from '../../proxy/index.ts'
import type { Egress } from './egress.ts'
import { startTokenRelay } from './token-relay.ts'
import { createTokenSource } from './token-source.ts'

/** A gateway elsewhere, and who signs for it. */
export interface RemoteGateway {
  /** `http://host:port` or `https://host:port`. */
  readonly url: string | URL
  /** `iss` of the tokens, as in the gateway's `issuers`. */
  readonly issuer: string
  /** Private JWK or PEM as text, or a key from `readSigningKey`. */
  readonly issuerKey: string | SigningKey
  /** `aud`; `sallyport` by default. */
  readonly audience?: string
  /** PEM of authorities for `https:`; the system's by default. */
  readonly ca?: string
}

/**
 * Opens nothing yet.
 * @throws TypeError for a URL that names no gateway
 * @throws SallyportError `SALLYPORT_KEY_UNREADABLE`
 */
export function remoteEgress({ url, issuer, issuerKey, audience, ca }: RemoteGateway): Egress {
  const gateway = new URL(url)
  if (gateway.protocol !== 'http:' && gateway.protocol !== 'https:')
    throw new TypeError('the URL of the gateway is `http:` or `https:`')
  if (gateway.username !== '' || gateway.password !== '')
    throw new TypeError('the URL of the gateway must not hold credentials: tokens are minted')
  const key = typeof issuerKey === 'string' ? readSigningKey(issuerKey) : issuerKey
  return {
    open: async ({ sandbox, tenant, policy, socketPath }) => {
      const tokens = createTokenSource({ key, issuer, audience }, { sandbox, tenant }, policy)
      // Now, so that a policy or a resolver that can't be used fails here.
      await tokens.current()
      await rm(socketPath, { force: true })
      const relay = await startTokenRelay({ gateway, ca, token: tokens.current, socketPath })
      let closing: Promise<void> | undefined
      const close = (): Promise<void> => (closing ??= relay.close())
      try {
        await chmod(socketPath, 0o666)
      } catch (error) {
        await close()
        throw error
      }
      return {
        setPolicy: async (next) => {
          await tokens.setPolicy(next)
          // Open tunnels are under the old token, and only the gateway knows which of them the new policy allows.
          relay.cut()
        },
        close,
      }
    },
    close: () => Promise.resolve(),
  }
}
