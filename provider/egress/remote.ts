/** Ways out through a gateway elsewhere, under tokens of ten minutes that this process mints, or handles of such that the gateway makes. */
import { chmod, rm } from 'node:fs/promises'
import { readSigningKey, type SigningKey } from '../../proxy/index.ts'
import { type ControlAccess, createControlClient, expected } from './control-client.ts'
import type { Egress, EgressGrant, EgressLink, EgressRequest, TakeToken } from './egress.ts'
import { handlesOf } from './handles.ts'
import { createTokenSource, signedTokens, type TokenIssuer, type TokenSource } from './token-source.ts'
import { turns } from './turns.ts'

/** A gateway elsewhere, and who signs for it. */
export interface RemoteGateway {
  /** `http://host:port` or `https://host:port`, as sandboxes elsewhere and this process reach it. */
  readonly url: string | URL
  /**
   * `iss` of the tokens, as in the gateway's `issuers`. For a backend that takes handles, which the gateway signs itself: left out, or without `issuerKey`
   * the name of that one of its issuers with `stateKeys` which signs.
   */
  readonly issuer?: string
  /** Private JWK or PEM as text, or a key from `readSigningKey`. Needed for all but handles. */
  readonly issuerKey?: string | SigningKey
  /** `aud`; `sallyport` by default. */
  readonly audience?: string
  /** PEM of authorities for `https:`; the system's by default. */
  readonly ca?: string
  /**
   * Its control API. With it the tokens of a destroyed sandbox, and those of a policy that was replaced, are revoked before `destroy()` and `setEgress()`
   * resolve; without it what got out of a sandbox lives to its own end, ten minutes at most. Handles are made by it; there its admin token has the scope
   * `read` beside `token`, since only the audit log says whether the gateway was reached.
   */
  readonly control?: ControlAccess
}

/** How often it is seen whether a token is to be renewed, and how soon again after a failure. */
const LOOK_MS = 30_000
const RETRY_MS = 5_000

/**
 * Opens nothing yet.
 * @throws TypeError for a URL that names no gateway, or a key without an issuer
 * @throws SallyportError `SALLYPORT_KEY_UNREADABLE`
 */
export function remoteEgress({ url, issuer, issuerKey, audience, ca, control: access }: RemoteGateway): Egress {
  const gateway = new URL(url)
  if (gateway.protocol !== 'http:' && gateway.protocol !== 'https:')
    throw new TypeError('the URL of the gateway is `http:` or `https:`')
  if (gateway.username !== '' || gateway.password !== '')
    throw new TypeError('the URL of the gateway must not hold credentials: tokens are minted')
  if (issuerKey !== undefined && issuer === undefined)
    throw new TypeError('an `issuerKey` needs the name of its `issuer`')
  const signer = signerOf(issuer, issuerKey, audience)
  const control = access === undefined ? undefined : createControlClient(access)
  const revoke = async (what: { readonly sandbox: string } | { readonly tokenId: string }): Promise<void> => {
    if (control !== undefined) expected(await control.ask('POST', '/v1/revocations', what), 201)
  }
  const signed = ({ sandbox, tenant, policy }: Omit<EgressRequest, 'socketPath'>): Promise<TokenSource> => {
    // Said earlier to whoever made the provider.
    if (signer === undefined) throw new TypeError('tokens need an `issuerKey`')
    return usable(createTokenSource(signedTokens(signer, { sandbox, tenant }), policy))
  }

  return {
    open: async (request) => {
      const tokens = await signed(request)
      return openRelay(request, { gateway, ca, tokens, revoke })
    },
    grant: async (request) => {
      const { sandbox, tenant, policy, credential } = request
      const common = (tokens: TokenSource) => ({
        gateway,
        ca,
        token: tokens.current,
        ...renewing(sandbox, tokens, revoke),
      })
      if (credential === 'token') return common(await signed(request))
      if (control === undefined) throw new TypeError('handles need a `control`')
      const { mint, decisionOn } = handlesOf(control, { sandbox, tenant, issuer: signer === undefined ? issuer : undefined }) // prettier-ignore
      return { ...common(await usable(createTokenSource(mint, policy))), decisionOn }
    },
    gives: (credential) => (credential === 'token' ? signer : control) !== undefined,
    revoke: (sandbox) => revoke({ sandbox }),
    close: () => {
      control?.close()
      return Promise.resolve()
    },
  }
}

/** Asks for one now, so that a policy or a resolver that can't be used fails here. */
async function usable(tokens: TokenSource): Promise<TokenSource> {
  await tokens.current()
  return tokens
}

function signerOf(
  issuer: string | undefined,
  issuerKey: string | SigningKey | undefined,
  audience: string | undefined,
): TokenIssuer | undefined {
  if (issuer === undefined || issuerKey === undefined) return undefined
  return { key: typeof issuerKey === 'string' ? readSigningKey(issuerKey) : issuerKey, issuer, audience }
}

interface Remote {
  readonly gateway: URL
  readonly ca: string | undefined
  readonly tokens: TokenSource
  readonly revoke: Revoke
}

type Revoke = (what: { readonly sandbox: string } | { readonly tokenId: string }) => Promise<void>

/** For a sandbox of this machine: its socket, and this process adds the token. */
async function openRelay(
  { sandbox, socketPath }: EgressRequest,
  { gateway, ca, tokens, revoke }: Remote,
): Promise<EgressLink> {
  await rm(socketPath, { force: true })
  // With the gateway elsewhere: who has none need not load it.
  const { startTokenRelay } = await import('../worker/token-relay.ts')
  const relay = await startTokenRelay({ gateway, ca, token: tokens.current, listen: { path: socketPath } })
  const close = oneAtATime(async () => {
    await relay.close()
    await revoke({ sandbox })
  })
  try {
    await chmod(socketPath, 0o666)
  } catch (error) {
    await close()
    throw error
  }
  return {
    setPolicy: async (next) => {
      const former = await tokens.setPolicy(next)
      // Open tunnels are under the old token, and only the gateway knows which of them the new policy allows.
      relay.cut()
      await revokeAll(former, revoke)
      tokens.forget(former)
    },
    close,
  }
}

/** For a sandbox elsewhere: whoever carries its requests there gets each further token. */
function renewing(
  sandbox: string,
  tokens: TokenSource,
  revoke: Revoke,
): Pick<EgressGrant, 'begin' | 'setPolicy' | 'close'> {
  const inTurn = turns()
  let take: TakeToken | undefined
  let given: string | undefined
  let timer: NodeJS.Timeout | undefined
  let isClosed = false

  /** Until whoever takes it has one of the present policy, what is open may be of a former one. */
  let why: 'renewal' | 'policy' = 'renewal'
  const give = async (): Promise<void> => {
    const token = await tokens.current()
    if (isClosed || token === given) return
    await take?.(token, why)
    given = token
    why = 'renewal'
  }
  const again = (ms: number): void => {
    clearTimeout(timer)
    if (isClosed) return
    timer = setTimeout(() => {
      inTurn(give).then(
        () => again(LOOK_MS),
        () => again(RETRY_MS),
      )
    }, ms).unref()
  }
  return {
    begin: async (taker) => {
      take = taker
      await inTurn(give)
      again(LOOK_MS)
    },
    setPolicy: (next) =>
      inTurn(async () => {
        // What was closed meanwhile stays closed.
        if (isClosed) return
        const former = await tokens.setPolicy(next)
        try {
          why = 'policy'
          await give()
        } finally {
          // Also where the sandbox could not be told: then it has no way out until it is.
          await revokeAll(former, revoke)
          tokens.forget(former)
        }
      }),
    close: oneAtATime(async () => {
      isClosed = true
      clearTimeout(timer)
      await revoke({ sandbox })
    }),
  }
}

async function revokeAll(tokenIds: readonly string[], revoke: Revoke): Promise<void> {
  await Promise.all(tokenIds.map((tokenId) => revoke({ tokenId })))
}

/** Done once; one that failed is tried again by the next call. */
function oneAtATime(action: () => Promise<void>): () => Promise<void> {
  let doing: Promise<void> | undefined
  return () =>
    (doing ??= action().catch((error: unknown) => {
      doing = undefined
      throw error
    }))
}
