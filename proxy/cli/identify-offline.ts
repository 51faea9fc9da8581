/** Verifies a token by the gateway's own code, outside of a running gateway: issuers, keys, claims, revocations and binding of a configuration. */
import type { EntrySets } from '../../policies/index.ts'
import type { Config } from '../config/schema.ts'
import { readProxyAuthorization } from '../tokens/credentials.ts'
import { createIdentifier, type Identified } from '../tokens/identify.ts'
import { openKeys } from '../tokens/keys.ts'
import { openState } from '../state/state.ts'

/** What a token is judged with. */
export interface OfflineOptions {
  readonly config: Config
  readonly sets: EntrySets
  /** Where the client is taken to be; for tokens bound to an address. Default: this machine. */
  readonly clientAddress?: string | undefined
  /** SHA-256 thumbprint (base64url) of the certificate that the client is taken to have; for tokens bound to one. Default: none. */
  readonly clientCertificate?: string | undefined
}

/**
 * Judges a token or a handle as a gateway with this configuration would, now.
 * @throws SallyportError for keys or a state folder that can't be read
 */
export async function identifyOffline(token: string, options: OfflineOptions): Promise<Identified> {
  const { config, sets, clientAddress = '127.0.0.1', clientCertificate } = options
  const state = await openState(config.state)
  try {
    const { document } = await openKeys(config.state)
    const identifier = createIdentifier({
      issuers: config.issuers,
      revocations: state.revocations,
      handles: state.handles,
      stateKeys: document,
      sets,
    })
    try {
      return await identifier.identify(readProxyAuthorization(`Bearer ${token}`), {
        address: clientAddress,
        port: 0,
        ...(clientCertificate === undefined ? {} : { certificateThumbprint: clientCertificate }),
      })
    } finally {
      identifier.close()
    }
  } finally {
    state.close()
  }
}
