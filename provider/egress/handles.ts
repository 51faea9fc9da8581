/** Handles of one sandbox's tokens, made and kept by the gateway itself: 36 characters, for whoever has no room for a token. Signs nothing here. */
import { setTimeout as delay } from 'node:timers/promises'
import { type EgressPolicyData, SallyportError } from '../../policies/index.ts'
import { type ControlClient, expected } from './control-client.ts'
import type { MintedCredential } from './token-source.ts'

/** Whose they are. */
export interface HandleOwner {
  readonly sandbox: string
  readonly tenant: string | undefined
  /** Which of the gateway's issuers with `stateKeys` signs; the only one by default. */
  readonly issuer: string | undefined
}

/** The two questions that the control API is asked. */
export interface Handles {
  /** @throws SallyportError `SALLYPORT_GATEWAY_UNREACHABLE`, `SALLYPORT_GATEWAY_REFUSED`, `SALLYPORT_POLICY_INVALID` */
  readonly mint: (egress: EgressPolicyData, lifeSeconds: number) => Promise<MintedCredential>
  /** The reason of what was decided about `host`; undefined when nothing was within the time that a line takes to be read. @throws the same */
  readonly decisionOn: (host: string) => Promise<string | undefined>
}

const FORM = /^sph_[A-Za-z0-9_-]{32}$/
const LOOKS = 8
const PAUSE_MS = 250

/** Asks nobody yet. */
export function handlesOf(control: ControlClient, { sandbox, tenant, issuer }: HandleOwner): Handles {
  /** By the clock of the gateway, which need not be ours. */
  let since: string | undefined
  return {
    mint: async (egress, lifeSeconds) => {
      // Before it is asked: by any clock the handle does not end earlier than this says.
      const expiresAtMs = Date.now() + lifeSeconds * 1_000
      const body = { sandbox, tenant, egress, ttlSeconds: lifeSeconds, issuer, handle: true }
      const { handle, tokenId, expiresAt } = expected(await control.ask('POST', '/v1/tokens', body), 201)
      if (typeof handle !== 'string' || !FORM.test(handle) || typeof tokenId !== 'string')
        throw new SallyportError('SALLYPORT_GATEWAY_REFUSED', 'the control API of the gateway answers without a handle')
      const endMs = typeof expiresAt === 'string' ? Date.parse(expiresAt) : NaN
      if (!Number.isNaN(endMs)) since ??= new Date(endMs - lifeSeconds * 1_000).toISOString()
      return { token: handle, tokenId, expiresAtMs }
    },
    decisionOn: async (host) => {
      const query = new URLSearchParams({ kind: 'decision', sandbox, host, limit: '1', ...(since !== undefined && { since }) }) // prettier-ignore
      for (let look = 1; ; look++) {
        const { lines } = expected(await control.ask('GET', `/v1/audit?${query.toString()}`), 200)
        const [line] = Array.isArray(lines) ? (lines as readonly unknown[]) : []
        if (line !== undefined) return reasonOf(line)
        if (look === LOOKS) return undefined
        await delay(PAUSE_MS)
      }
    },
  }
}

function reasonOf(line: unknown): string {
  const { reason } = line as { readonly reason?: unknown }
  return typeof reason === 'string' && /^[a-z_]{1,40}$/.test(reason) ? reason : 'allowed'
}
