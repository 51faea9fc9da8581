/** Whose tokens are accepted, with which keys and in which shape. A mistake in an entry stops the start; it never loosens anything. */
import { SallyportError } from '../../policies/error.ts'
import type { EgressPolicyData } from '../../policies/index.ts'
import type { Clock } from '../clock.ts'
import type { FetchDocument } from './fetch-document.ts'
import { type KeyDocument, fileKeys, keySetFile, secretFile } from './key-file.ts'
import { BOUND_ISSUER } from './identity.ts'
import { TOKEN_ALGORITHMS, type TokenAlgorithm, parseKeySet } from './key-set.ts'
import { type KeyEvent, type KeySource, MIN_SECRET_BYTES, fixedKeys, secretKey } from './key-source.ts'
import { type RefreshTimes, urlKeys } from './key-url.ts'

/** A `typ` that tokens may carry; `none` is a token without one, `admin+jwt` one for the control API, which no entry of a configuration accepts. */
export type TokenType = 'egress+jwt' | 'JWT' | 'none' | 'admin+jwt'

/** Issuer and audience of tokens for the control API. No issuer of a configuration has this name or this audience. */
export const ADMIN_AUDIENCE = 'sallyport-admin'

/** An entry of `issuers`. Exactly one of `jwks`, `secretFile`, `stateKeys`, `keySet` and `secret` says where the keys are. */
export interface IssuerOptions {
  /** The `iss` of its tokens, compared exactly. */
  readonly issuer: string
  /** What `aud` must hold: one of these. Default `sallyport`. */
  readonly audience?: string | readonly string[] | undefined
  /** Algorithms that its signatures may use; `HS256` stands alone. */
  readonly algorithms: readonly TokenAlgorithm[]
  /** A JWK set: an `http:` or `https:` URL, or a file. */
  readonly jwks?: string | undefined
  /** A file with a bearer token for the URL in `jwks`; read again for every fetch. */
  readonly jwksTokenFile?: string | undefined
  /** A file that holds the secret of HS256. */
  readonly secretFile?: string | undefined
  /** The gateway's own keys, from the state folder. */
  readonly stateKeys?: boolean | undefined
  /** A JWK set as data. */
  readonly keySet?: { readonly keys: readonly object[] } | undefined
  /** The secret of HS256 as bytes. */
  readonly secret?: Uint8Array | undefined
  /** Accepted `typ` headers. Default `egress+jwt` alone. */
  readonly typ?: readonly TokenType[] | undefined
  /** Names of claims, for issuers with a shape of their own. With `allowedHosts`, the claim `egress` is not read. */
  readonly claims?: ClaimNames | undefined
  /** The claim layer of tokens that bring none. Default `deny-all`. */
  readonly egress?: EgressPolicyData | undefined
  /** Claims that may be missing: without `jti` the token's hash is its id. */
  readonly optional?: readonly 'jti'[] | undefined
  /** Accepts tokens without `aud`, which may be meant for somebody else. An `aud` that is there must still fit. */
  readonly unsafeNoAudience?: boolean | undefined
}

/** Names of the claims that an issuer may call otherwise: the claim's, or the names on the way to one inside others. */
export interface ClaimNames {
  /** Default `tenant`. */
  readonly tenant?: string | readonly string[] | undefined
  /** Default `sub`. */
  readonly sandbox?: string | readonly string[] | undefined
  /** A list, or comma-separated text, of entries; by default there is none and `egress` is read. */
  readonly allowedHosts?: string | readonly string[] | undefined
}

/** The names on the way to a claim; one at least. */
export type ClaimPath = readonly string[]

/** An issuer, ready to judge tokens. */
export interface Issuer {
  readonly issuer: string
  readonly audiences: readonly string[]
  readonly algorithms: ReadonlySet<string>
  readonly types: readonly TokenType[]
  readonly claims: {
    readonly tenant: ClaimPath
    readonly sandbox: ClaimPath
    readonly allowedHosts: ClaimPath | undefined
  }
  /** The claim layer of tokens that bring none. */
  readonly egress: EgressPolicyData
  readonly optionalTokenId: boolean
  readonly optionalAudience: boolean
  readonly keys: KeySource
}

/** What issuers need of the world. */
export interface IssuerWorld {
  readonly fetch: FetchDocument
  readonly clock: Clock
  /** The gateway's own public keys, for `stateKeys`. */
  readonly stateKeys: KeyDocument | undefined
  readonly refreshTimes?: Partial<RefreshTimes> | undefined
  readonly onKeyEvent: (issuer: string, event: KeyEvent) => void
}

/**
 * Makes the issuers by name. A key source that `previous` already has is kept, so that a reload neither fetches nor forgets.
 * @throws SallyportError `SALLYPORT_CONFIG_INVALID` for an entry that contradicts itself, `SALLYPORT_KEY_UNREADABLE` for keys that can't be read;
 * then nothing was kept and `previous` still works
 */
export function createIssuers(
  entries: readonly IssuerOptions[],
  world: IssuerWorld,
  previous: IssuerRegistry = EMPTY,
): IssuerRegistry {
  const issuers = new Map<string, Issuer>()
  const sources = new Map<string, KeySource>()
  try {
    for (const entry of entries) {
      if (issuers.has(entry.issuer)) throw invalid(entry, 'is configured twice')
      checkEntry(entry)
      const place = describeSource(entry)
      const keys = previous.sources.get(place) ?? openSource(entry, world)
      sources.set(place, keys)
      issuers.set(entry.issuer, createIssuer(entry, keys))
    }
  } catch (error) {
    closeUnshared(sources, previous.sources)
    throw error
  }
  return { issuers, sources }
}

/** Closes what a registry opened, except what `next` still uses. */
export function closeIssuers(registry: IssuerRegistry, next: IssuerRegistry = EMPTY): void {
  closeUnshared(registry.sources, next.sources)
}

/** Issuers by name, and their key sources by what they read. */
export interface IssuerRegistry {
  readonly issuers: ReadonlyMap<string, Issuer>
  readonly sources: ReadonlyMap<string, KeySource>
}

const EMPTY: IssuerRegistry = { issuers: new Map(), sources: new Map() }

function closeUnshared(sources: ReadonlyMap<string, KeySource>, kept: ReadonlyMap<string, KeySource>): void {
  for (const [place, keys] of sources) if (kept.get(place) !== keys) keys.close()
}

function createIssuer(entry: IssuerOptions, keys: KeySource): Issuer {
  const { audience = 'sallyport', claims = {} } = entry
  return {
    issuer: entry.issuer,
    audiences: typeof audience === 'string' ? [audience] : audience,
    algorithms: new Set(entry.algorithms),
    types: entry.typ ?? ['egress+jwt'],
    claims: {
      tenant: pathOf(claims.tenant ?? 'tenant'),
      sandbox: pathOf(claims.sandbox ?? 'sub'),
      allowedHosts: claims.allowedHosts === undefined ? undefined : pathOf(claims.allowedHosts),
    },
    egress: entry.egress ?? { kind: 'deny-all' },
    optionalTokenId: entry.optional?.includes('jti') ?? false,
    optionalAudience: entry.unsafeNoAudience ?? false,
    keys,
  }
}

function pathOf(name: string | readonly string[]): ClaimPath {
  return typeof name === 'string' ? [name] : name
}

function checkEntry(entry: IssuerOptions): void {
  const { algorithms, jwks, secretFile: file, stateKeys, keySet, secret } = entry
  if (entry.issuer === '') throw invalid(entry, 'has no name')
  const audiences = typeof entry.audience === 'string' ? [entry.audience] : (entry.audience ?? [])
  if (entry.typ?.includes('admin+jwt') !== true && [entry.issuer, ...audiences].includes(ADMIN_AUDIENCE))
    throw invalid(entry, `has \`${ADMIN_AUDIENCE}\` as its name or audience, which is for the control API`)
  if (entry.issuer === BOUND_ISSUER) throw invalid(entry, 'has the name that bound listeners have')
  const sources = [jwks, file, stateKeys || undefined, keySet, secret].filter((source) => source !== undefined)
  if (sources.length !== 1) throw invalid(entry, 'needs exactly one of `jwks`, `secretFile` and `stateKeys`')
  if (algorithms.length === 0) throw invalid(entry, 'has no `algorithms`')
  const stranger = algorithms.find((name) => !TOKEN_ALGORITHMS.includes(name))
  if (stranger !== undefined) throw invalid(entry, `names an algorithm that is not served: \`${stranger}\``)
  const symmetric = algorithms.includes('HS256')
  if (symmetric && algorithms.length > 1) throw invalid(entry, 'has `HS256` beside an asymmetric algorithm')
  if (symmetric !== (file !== undefined || secret !== undefined)) {
    throw invalid(entry, symmetric ? 'has `HS256` without a secret' : 'has a secret without `HS256`')
  }
  if (secret && secret.length < MIN_SECRET_BYTES) {
    throw invalid(entry, `has a secret of ${secret.length} bytes; HS256 needs ${MIN_SECRET_BYTES} or more`)
  }
  if (entry.jwksTokenFile !== undefined && !isUrl(jwks)) throw invalid(entry, 'has a `jwksTokenFile` without a URL')
  const { tenant, sandbox, allowedHosts } = entry.claims ?? {}
  if ([tenant, sandbox, allowedHosts].some((name) => name?.length === 0)) throw invalid(entry, 'names an empty claim')
  if (entry.audience?.length === 0) throw invalid(entry, 'has an empty `audience`')
}

/** Equal for entries that read the same keys in the same way. Holds no key: what is given as data is never shared. */
function describeSource(entry: IssuerOptions): string {
  if (entry.jwks !== undefined) return `jwks ${entry.issuer} ${entry.jwks} ${entry.jwksTokenFile ?? ''}`
  if (entry.secretFile !== undefined) return `secret ${entry.issuer} ${entry.secretFile}`
  if (entry.stateKeys) return `state ${entry.issuer}`
  unshared++
  return `data ${entry.issuer} ${unshared}`
}

let unshared = 0

function openSource(entry: IssuerOptions, world: IssuerWorld): KeySource {
  const onEvent = (event: KeyEvent): void => world.onKeyEvent(entry.issuer, event)
  if (entry.secret) return fixedKeys([secretKey(entry.secret)])
  if (entry.secretFile !== undefined) return fileKeys(secretFile(entry.secretFile), onEvent)
  if (entry.keySet) return fixedKeySet(entry, entry.keySet)
  if (entry.stateKeys) {
    if (!world.stateKeys) throw invalid(entry, 'has `stateKeys`, but there is no state folder')
    return fileKeys(world.stateKeys, onEvent)
  }
  const place = entry.jwks ?? ''
  if (!isUrl(place)) return fileKeys(keySetFile(place), onEvent)
  const url = parseKeyUrl(entry, place)
  const { fetch, clock, refreshTimes: times } = world
  const { jwksTokenFile: tokenFile } = entry
  return urlKeys({ url, tokenFile, fetch, clock, onEvent, ...(times && { times }) })
}

function isUrl(place: string | undefined): boolean {
  return place !== undefined && /^https?:/i.test(place)
}

function fixedKeySet(entry: IssuerOptions, keySet: object): KeySource {
  const set = parseKeySet(Buffer.from(JSON.stringify(keySet)))
  if (!set.ok) throw invalid(entry, set.fault.message)
  if (set.value.firstIgnored !== undefined) {
    throw invalid(entry, `has a key that can't be used: ${set.value.firstIgnored}`)
  }
  return fixedKeys(set.value.keys)
}

function parseKeyUrl(entry: IssuerOptions, text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (!url) throw invalid(entry, 'has a `jwks` that is not a URL')
  if (url.username !== '' || url.password !== '') throw invalid(entry, 'has a `jwks` URL with user info')
  return url
}

function invalid(entry: IssuerOptions, what: string): SallyportError {
  return new SallyportError('SALLYPORT_CONFIG_INVALID', `issuer \`${entry.issuer.slice(0, 200)}\` ${what}`)
}
