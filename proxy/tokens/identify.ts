/**
 * Who is behind these credentials? Verifies a token once and remembers the verdict by its hash; time, revocation and binding are asked at every use.
 * Strangers' bad tokens cost bounded work. Nothing of a token leaves this file but what its verified claims say.
 */
import { hash } from 'node:crypto'
import type { EntrySets } from '../../policies/index.ts'
import type { CacheCounts } from '../cache-counts.ts'
import { type Clock, systemClock } from '../clock.ts'
import type { CredentialReason } from '../reasons.ts'
import type { ClientInfo, Credentials } from '../request.ts'
import { type Handles, isHandle } from '../state/handles.ts'
import type { Revocations } from '../state/revocations.ts'
import { isToken68, MAX_TOKEN_BYTES } from './credentials.ts'
import { FAILURE_COST_US, type FailureLimits, createFailureBudget } from './failure-budget.ts'
import { type FetchDocument, fetchDocument } from './fetch-document.ts'
import type { Identity } from './identity.ts'
import { type IssuerOptions, closeIssuers, createIssuers } from './issuers.ts'
import { type VerifiedToken, refuseNow, tunnelExpiresAtMs } from './judge.ts'
import type { KeyDocument } from './key-file.ts'
import type { VerificationKey } from './key-set.ts'
import type { KeyEvent } from './key-source.ts'
import type { RefreshTimes } from './key-url.ts'
import { type CacheLimits, VerdictCache } from './verdict-cache.ts'
import { createVerifyGate } from './verify-gate.ts'
import { type Refused, type Verdict, type Verified, verifyToken } from './verify-token.ts'

/** Who it is, or why not. */
export type Identified =
  | {
      readonly ok: true
      readonly identity: Identity
      /** `exp`, or `exp` and 30 s for a tunnel that is opened inside the leeway. */
      readonly tunnelExpiresAtMs: number
    }
  | NotIdentified

/** Credentials that are not accepted. */
export interface NotIdentified {
  readonly ok: false
  /**
   * Besides the reasons of credentials: `rate_limit` and `gateway_busy` when the budget for bad tokens is spent and this one was not read, and
   * `policy_unavailable` while revocations can't be seen. A gateway that closes says `draining` in the place of an answer.
   */
  readonly reason: CredentialReason | 'rate_limit' | 'gateway_busy' | 'policy_unavailable' | 'draining'
  /** What was wrong, for the bearer; holds nothing of the credentials but the bearer's own entries. */
  readonly detail?: string | undefined
  /** What is known for sure: set only once the signature was verified. */
  readonly identity?: Partial<Identity> | undefined
  /** With `rate_limit` and `gateway_busy`. */
  readonly retryAfterSeconds?: number | undefined
}

/** Turns credentials into identities. */
export interface Identifier {
  /** Not a promise when the verdict is remembered or needs no work. Rejects only for a fault of the gateway itself; nobody is let out then. */
  readonly identify: (credentials: Credentials, client: ClientInfo) => Identified | Promise<Identified>
  /**
   * Takes over other issuers and sets, and forgets every verdict; key sources that stay are kept with their keys.
   * @throws SallyportError as {@link createIdentifier} does; then everything stays as it was
   */
  readonly replace: (issuers: readonly IssuerOptions[], sets?: EntrySets) => void
  /** Whether the key that verified somebody's token was taken out since, or the issuer itself: nothing may stay open for him. Cheap. */
  readonly isKeyGone: (identity: Identity) => boolean
  /** Whether tokens of every issuer can be verified: `false` while a key set was never fetched, or not for a day. */
  readonly isReady: () => boolean
  /** Stops watching keys; idempotent. */
  readonly close: () => void
}

/** What an identifier is made of. */
export interface IdentifierOptions {
  readonly issuers: readonly IssuerOptions[]
  readonly revocations: Pick<Revocations, 'isRevoked' | 'isCurrent'>
  /** Without them, every handle is unknown. */
  readonly handles?: Pick<Handles, 'open'> | undefined
  /** The gateway's own public keys, for an issuer with `stateKeys`. */
  readonly stateKeys?: KeyDocument | undefined
  /** The named sets that an entry of a token may mean. */
  readonly sets?: EntrySets | undefined
  readonly clock?: Clock | undefined
  readonly fetch?: FetchDocument | undefined
  readonly refreshTimes?: Partial<RefreshTimes> | undefined
  readonly cache?: Partial<CacheLimits> | undefined
  /** Counts tokens whose verdict was remembered, and those that were not. */
  readonly cacheCounts?: CacheCounts | undefined
  readonly failures?: Partial<FailureLimits> | undefined
  /** Told when keys came, stayed or failed to come. */
  readonly onKeyEvent?: ((issuer: string, event: KeyEvent) => void) | undefined
}

/**
 * Makes an identifier; files are read now, URLs fetched in the background.
 * @throws SallyportError `SALLYPORT_CONFIG_INVALID` for an issuer that contradicts itself, `SALLYPORT_KEY_UNREADABLE` for keys that can't be read
 */
export function createIdentifier(options: IdentifierOptions): Identifier {
  const { revocations, handles, clock = systemClock, cacheCounts = { hits: 0, misses: 0 } } = options
  const world = {
    fetch: options.fetch ?? fetchDocument,
    clock,
    stateKeys: options.stateKeys,
    refreshTimes: options.refreshTimes,
    onKeyEvent: options.onKeyEvent ?? (() => undefined),
  }
  let registry = createIssuers(options.issuers, world)
  let sets: EntrySets = options.sets ?? new Map()
  let generation = 0
  const verified = new VerdictCache<Verified>(options.cache)
  const refused = new VerdictCache<Refused>(REFUSED_LIMITS)
  /** What verified the tokens of those who may still have something open. */
  const signers = new WeakMap<Identity, VerificationKey>()
  const underway = new Map<string, Promise<Verdict | NotIdentified>>()
  const budget = createFailureBudget(clock.monotonicMs, options.failures)
  const gate = createVerifyGate()

  function identify(credentials: Credentials, client: ClientInfo): Identified | Promise<Identified> {
    if (!revocations.isCurrent())
      return { ok: false, reason: 'policy_unavailable', detail: 'revocations are not known' }
    if (client.bound) return judge({ identity: client.bound, notBeforeMs: -Infinity }, client)
    if (credentials.kind === 'none') return { ok: false, reason: 'token_missing' }
    if (credentials.kind === 'malformed') return { ok: false, reason: 'token_malformed', detail: credentials.detail }
    const { token } = credentials
    if (token.length > MAX_TOKEN_BYTES) return { ok: false, reason: 'token_malformed', detail: 'the token is too long' }

    const id = hash('sha256', token, 'base64url')
    const known = recall(id)
    if (known === undefined && !isToken68(token))
      return { ok: false, reason: 'token_malformed', detail: 'the credentials are not a token' }
    cacheCounts[known ? 'hits' : 'misses']++
    return known ? conclude(known, client) : identifyNew(id, token, client)
  }

  /** A verdict that still stands. */
  function recall(id: string): Verdict | undefined {
    const good = verified.get(id)
    if (good?.source.keys.holds(good.source.key)) return good
    if (good) verified.delete(id)
    const bad = refused.get(id)
    if (!bad || !bad.source || bad.source.keys.holds(bad.source.key)) return bad
    refused.delete(id)
    return undefined
  }

  async function identifyNew(id: string, token: string, client: ClientInfo): Promise<Identified> {
    const spent = refuseUnread(client)
    if (spent) return spent
    const asked = generation
    let work = underway.get(id)
    if (work === undefined) {
      // Callers with the same token share the work, and only the first is charged for it.
      work = verifyAndRemember(id, token, client).finally(() => underway.delete(id))
      underway.set(id, work)
    }
    const verdict = await work
    if (asked !== generation) return identify({ kind: 'token', token }, client)
    return conclude(verdict, client)
  }

  async function verifyAndRemember(id: string, token: string, client: ClientInfo): Promise<Verdict | NotIdentified> {
    const asked = generation
    const takeTurn = (): ReturnType<typeof enterGate> => enterGate(client)
    const sent = isHandle(token) ? await openHandle(token, takeTurn) : token
    const trust = { issuers: registry.issuers, sets }
    const verdict = typeof sent === 'string' ? await verifyToken<NotIdentified>(sent, trust, takeTurn) : sent
    if (!('costUs' in verdict || 'source' in verdict)) return verdict
    if (!verdict.ok) budget.charge(payerOf(client), verdict.costUs + token.length * FAILURE_COST_US.perByte)
    if (asked !== generation) return verdict
    if (verdict.ok) {
      const { claim } = verdict.identity
      verified.set(id, verdict, token.length, claim.kind === 'static' ? claim : undefined)
      signers.set(verdict.identity, verdict.source.key)
    } else if (verdict.settled) refused.set(id, verdict, token.length)
    return verdict
  }

  async function openHandle(
    handle: string,
    takeTurn: () => ReturnType<typeof enterGate>,
  ): Promise<string | Refused | NotIdentified> {
    const turn = await takeTurn()
    if (typeof turn !== 'function') return turn.instead
    try {
      return (await handles?.open(handle)) ?? UNKNOWN_HANDLE
    } finally {
      turn()
    }
  }

  /** Waits for a turn; the failures before it may have spent the budget meanwhile. */
  async function enterGate(client: ClientInfo): Promise<(() => void) | { readonly instead: NotIdentified }> {
    const leave = await gate.enter()
    if (!leave) return { instead: { ok: false, reason: 'gateway_busy', retryAfterSeconds: 1 } }
    const spent = refuseUnread(client)
    if (!spent) return leave
    leave()
    return { instead: spent }
  }

  function refuseUnread(client: ClientInfo): NotIdentified | undefined {
    const spent = budget.exhausted(payerOf(client))
    return spent && { ok: false, detail: 'too many bad credentials; these were not read', ...spent }
  }

  function conclude(verdict: Verdict | NotIdentified, client: ClientInfo): Identified {
    if (verdict.ok) return judge(verdict, client)
    const { reason, detail, identity } = verdict
    const retryAfterSeconds = 'retryAfterSeconds' in verdict ? verdict.retryAfterSeconds : undefined
    return { ok: false, reason, detail, identity, retryAfterSeconds }
  }

  function judge(token: VerifiedToken, client: ClientInfo): Identified {
    const now = clock.wallMs()
    const reason = refuseNow(token, client, now, revocations.isRevoked)
    if (reason) return { ok: false, reason, identity: token.identity }
    return { ok: true, identity: token.identity, tunnelExpiresAtMs: tunnelExpiresAtMs(token.identity, now) }
  }

  return {
    identify,
    replace: (issuers, newSets) => {
      const next = createIssuers(issuers, world, registry)
      closeIssuers(registry, next)
      registry = next
      sets = newSets ?? sets
      generation++
      verified.clear()
      refused.clear()
    },
    isKeyGone: (identity) => {
      const key = signers.get(identity)
      return key !== undefined && registry.issuers.get(identity.issuer)?.keys.lacks(key) !== false
    },
    isReady: () => [...registry.issuers.values()].every((issuer) => issuer.keys.size() > 0),
    close: () => closeIssuers(registry),
  }
}

/** Whose budget bad tokens are charged to: those who ask about clients have one together, which is no client's. */
function payerOf({ isAskedAbout, address }: ClientInfo): string {
  return isAskedAbout ? 'asked about' : address
}

/** Refused tokens that are remembered, so that a client that retries the same one costs next to nothing. */
const REFUSED_LIMITS = { entries: 2_000, tokenBytes: Infinity }

/** Not settled: it may be minted yet. */
const UNKNOWN_HANDLE: Refused = {
  ok: false,
  reason: 'token_signature_invalid',
  detail: 'the handle is not known here',
  costUs: FAILURE_COST_US.cheap * 4,
  settled: false,
}
