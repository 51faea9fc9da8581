/** Turns the cases of `test/cases/token.json` into tokens and credentials, for the identifier and for a running gateway alike. */
import {
  type KeyObject,
  constants,
  createHmac,
  createPublicKey,
  generateKeyPairSync,
  randomBytes,
  randomUUID,
  sign,
} from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { IssuerOptions } from '../../../proxy/tokens/issuers.ts'

interface CaseFile {
  readonly issuers: Readonly<Record<string, CaseIssuer>>
  readonly base: { readonly mappedClaims: Members }
  readonly target: string
  readonly cases: readonly TokenCase[]
}

interface CaseIssuer {
  readonly issuer: string
  readonly audience?: string
  readonly algorithms: IssuerOptions['algorithms']
  readonly keys?: readonly string[]
  readonly secret?: string
  readonly claims?: NonNullable<IssuerOptions['claims']>
}

type Members = Readonly<Record<string, unknown>>

/** One case, as the file has it. */
export interface TokenCase {
  readonly name: string
  readonly issuer?: string
  readonly header?: Members
  readonly claims?: Members
  readonly headerText?: string
  readonly headerBase64?: string
  readonly payload?: string
  readonly token?: string
  readonly key?: string
  readonly tamper?: readonly string[]
  readonly transport?: 'bearer' | 'basic' | 'socks5' | 'raw'
  readonly user?: string
  readonly prefix?: string
  readonly header1?: string | null
  readonly headers?: Readonly<Record<string, string>>
  readonly trap?: boolean
  readonly accepted?: true
  readonly reason?: string | readonly string[]
  readonly denied?: string
  readonly orReason?: string | readonly string[]
}

/** What the client sends. */
export type SentCredentials =
  | {
      readonly kind: 'http'
      /** The whole value of `Proxy-Authorization`; `undefined` for no such header. */
      readonly proxyAuthorization: string | undefined
      readonly headers: Readonly<Record<string, string>>
    }
  | { readonly kind: 'socks5'; readonly user: Buffer; readonly password: Buffer }

/** The file. */
export const tokenCases = JSON.parse(
  readFileSync(new URL('../../cases/token.json', import.meta.url), 'utf8'),
) as CaseFile

/** The reasons that are right for a case; empty when the token is good. */
export function expectedReasons(tokenCase: TokenCase): readonly string[] {
  return [tokenCase.reason ?? [], tokenCase.orReason ?? []].flat()
}

/** The keys of one run. */
export interface CaseKeys {
  readonly privateKeys: Readonly<Record<string, KeyObject>>
  readonly secret: Buffer
}

/** Makes every key that the cases name. */
export function createCaseKeys(): CaseKeys {
  const ec = (): KeyObject => generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey
  return {
    privateKeys: {
      'es-1': ec(),
      'es-2': ec(),
      'map-1': ec(),
      'ed-1': generateKeyPairSync('ed25519').privateKey,
      'rs-1': generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey,
      stranger: ec(),
    },
    secret: randomBytes(48),
  }
}

/** The issuers as `issuers` of the configuration has them, their keys in files below `folder`. */
export function writeCaseIssuers(keys: CaseKeys, folder: string): IssuerOptions[] {
  return Object.entries(tokenCases.issuers).map(([name, { keys: names = [], secret, ...entry }]) => {
    const path = join(folder, `${name}.keys`)
    // Some cases need this, and none of this issuer's is about a `typ` that is not accepted.
    const typ = name === 'mapped' ? (['egress+jwt', 'JWT', 'none'] as const) : undefined
    if (secret !== undefined) {
      writeFileSync(path, Buffer.concat([keys.secret, Buffer.from('\n')]), { mode: 0o600 })
      return { ...entry, secretFile: path }
    }
    writeFileSync(path, JSON.stringify({ keys: names.map((kid) => publicKey(keys, kid, { kid })) }))
    return { ...entry, jwks: path, ...(typ && { typ }) }
  })
}

/** The finished token of a case. `trapUrl` is an HTTP server that must never be asked. */
export function buildToken(tokenCase: TokenCase, keys: CaseKeys, trapUrl: string): string {
  if (tokenCase.token !== undefined) return tokenCase.token
  const name = tokenCase.issuer ?? 'es'
  const issuer = tokenCases.issuers[name]
  if (!issuer) throw new Error(`no issuer ${name}`)
  const header = headerOf(tokenCase, issuer, keys, trapUrl)
  const payload = payloadOf(tokenCase, name, issuer, keys)
  const input = `${header.encoded}.${base64url(payload)}`
  const signed = `${input}.${signature(input, header.alg, tokenCase.key ?? issuer.keys?.[0], keys).toString('base64url')}`
  return (tokenCase.tamper ?? []).reduce(tamper, signed)
}

/** How the client sends the token. */
export function sendToken(tokenCase: TokenCase, token: string): SentCredentials {
  const { transport = 'bearer', user = 'sbx_test', prefix = '', headers = {} } = tokenCase
  const http = (proxyAuthorization: string | undefined): SentCredentials => ({
    kind: 'http',
    proxyAuthorization,
    headers: Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, fillIn(value, token)])),
  })
  switch (transport) {
    case 'bearer':
      return http(`Bearer ${token}`)
    case 'basic':
      return http(`Basic ${Buffer.from(`${user}:${prefix}${token}`).toString('base64')}`)
    case 'socks5':
      if (token.length > 255) throw new Error('the token does not fit SOCKS5')
      return { kind: 'socks5', user: Buffer.from(user), password: Buffer.from(prefix + token) }
    case 'raw':
      return http(typeof tokenCase.header1 === 'string' ? fillIn(tokenCase.header1, token) : undefined)
  }
}

function fillIn(template: string, token: string): string {
  return template
    .replaceAll('{TOKEN}', token)
    .replace(/\{B64:([^}]*)\}/gs, (_all, text: string) => Buffer.from(text).toString('base64'))
    .replace(/\{B64U:([^}]*)\}/gs, (_all, text: string) =>
      Buffer.from(text).toString('base64').replaceAll('+', '-').replaceAll('/', '_'),
    )
    .replace(/\{B64NP:([^}]*)\}/gs, (_all, text: string) => Buffer.from(text).toString('base64').replaceAll('=', ''))
}

function headerOf(
  tokenCase: TokenCase,
  issuer: CaseIssuer,
  keys: CaseKeys,
  trapUrl: string,
): { readonly encoded: string; readonly alg: string } {
  const base = { alg: issuer.algorithms[0], kid: issuer.keys?.[0] ?? null, typ: 'egress+jwt' }
  const members = overlay(base, tokenCase.header ?? {}, keys)
  const alg = typeof members['alg'] === 'string' ? members['alg'] : ''
  if (tokenCase.headerBase64 !== undefined) return { encoded: tokenCase.headerBase64, alg }
  const text = tokenCase.headerText ?? JSON.stringify(members).replaceAll('{TRAP}', trapUrl)
  return { encoded: base64url(text), alg }
}

function payloadOf(tokenCase: TokenCase, name: string, issuer: CaseIssuer, keys: CaseKeys): string {
  if (tokenCase.payload !== undefined) {
    return tokenCase.payload
      .replaceAll('{ISS}', issuer.issuer)
      .replace(/\{\{now([+-]\d+)\}\}/g, (_all, seconds: string) => String(nowPlus(Number(seconds))))
  }
  const egress = name === 'hs' ? { kind: 'allow-all' } : { kind: 'static', allowedHosts: ['ok.example.test:*'] }
  const base = {
    iss: issuer.issuer,
    aud: issuer.audience ?? 'sallyport',
    iat: { now: -5 },
    exp: { now: 600 },
    jti: randomUUID().slice(0, name === 'hs' ? 8 : 36),
    sub: name === 'hs' ? null : 'sbx_test',
    egress: issuer.claims ? null : egress,
    ...(issuer.claims && tokenCases.base.mappedClaims),
  }
  return JSON.stringify(overlay(base, tokenCase.claims ?? {}, keys))
}

/** Lays members over others; `null` takes one away. */
function overlay(base: Members, over: Members, keys: CaseKeys): Members {
  const entries = Object.entries({ ...base, ...over }).filter(([, value]) => value !== null)
  return Object.fromEntries(entries.map(([name, value]) => [name, expand(value, keys)]))
}

/** Stands in for `{"now": n}` and its like, at any depth. */
function expand(value: unknown, keys: CaseKeys): unknown {
  if (Array.isArray(value)) return value.map((item) => expand(item, keys))
  if (typeof value !== 'object' || value === null) return value
  const [first, ...more] = Object.entries(value)
  if (first === undefined) return value
  const [word, content] = first as [string, unknown]
  if (more.length === 0 && typeof content === 'number') {
    if (word === 'now') return nowPlus(content)
    if (word === 'nowText') return String(nowPlus(content))
    if (word === 'nowFloat') return nowPlus(content) + 0.5
    if (word === 'nowMillis') return nowPlus(content) * 1000
    if (word === 'generate') return generateNames(content)
    if (word === 'generateCsv') return generateNames(content).join(',')
  }
  if (word === 'pub' && typeof content === 'string') return publicKey(keys, content, {})
  if (word === 'fill' && 'times' in value) return String(content).repeat(Number(value.times))
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, expand(item, keys)]))
}

function nowPlus(seconds: number): number {
  return Math.floor(Date.now() / 1000) + seconds
}

function generateNames(count: number): string[] {
  return [...Array.from({ length: count - 1 }, (_none, index) => `host-${index}.example.test`), 'ok.example.test:*']
}

function publicKey(keys: CaseKeys, name: string, more: Members): object {
  return { ...createPublicKey(privateKey(keys, name)).export({ format: 'jwk' }), ...more }
}

function privateKey(keys: CaseKeys, name: string): KeyObject {
  const key = keys.privateKeys[name]
  if (!key) throw new Error(`no key ${name}`)
  return key
}

/** Signs as the key can, whatever the header says. */
function signature(input: string, alg: string, signer: string | undefined, keys: CaseKeys): Buffer {
  const bytes = Buffer.from(input)
  if (signer === undefined) return hmac(alg, keys.secret, bytes)
  const [, name, form] = /^hmac:(.+)\.(pem|jwk|der)$/.exec(signer) ?? []
  if (name !== undefined) return hmac(alg, publicBytes(createPublicKey(privateKey(keys, name)), form), bytes)
  const key = privateKey(keys, signer)
  if (key.asymmetricKeyType === 'ed25519') return sign(null, bytes, key)
  if (key.asymmetricKeyType === 'ec') return sign('sha256', bytes, { key, dsaEncoding: 'ieee-p1363' })
  const padding = alg.startsWith('PS') ? constants.RSA_PKCS1_PSS_PADDING : constants.RSA_PKCS1_PADDING
  return sign(alg.endsWith('512') ? 'sha512' : 'sha256', bytes, { key, padding, saltLength: 32 })
}

function hmac(alg: string, secret: Buffer, bytes: Buffer): Buffer {
  return createHmac(alg === 'HS512' ? 'sha512' : 'sha256', secret)
    .update(bytes)
    .digest()
}

function publicBytes(key: KeyObject, form: string | undefined): Buffer {
  if (form === 'jwk') return Buffer.from(JSON.stringify(key.export({ format: 'jwk' })))
  if (form === 'der') return key.export({ type: 'spki', format: 'der' })
  return Buffer.from(key.export({ type: 'spki', format: 'pem' }))
}

function tamper(token: string, how: string): string {
  const [header = '', payload = '', sent = ''] = token.split('.')
  const bytes = Buffer.from(sent, 'base64url')
  const signedWith = (other: Buffer): string => `${header}.${payload}.${other.toString('base64url')}`
  switch (how) {
    case 'signature-empty':
      return `${header}.${payload}.`
    case 'signature-zero':
      return signedWith(Buffer.alloc(bytes.length))
    case 'signature-flip':
      bytes[10] = (bytes[10] ?? 0) ^ 1
      return signedWith(bytes)
    case 'signature-short':
      return signedWith(bytes.subarray(0, -1))
    case 'signature-der':
      return signedWith(derSignature(bytes))
    case 'payload-swap':
      return `${header}.${base64url(JSON.stringify({ ...(JSON.parse(Buffer.from(payload, 'base64url').toString()) as object), sub: 'sbx_other' }))}.${sent}`
    case 'two-parts':
      return `${header}.${payload}`
    case 'bad-character':
      return `${header}.${payload.slice(0, -1)}*.${sent}`
    case 'padding':
      return `${token}=`
    default:
      throw new Error(`unknown tampering ${how}`)
  }
}

/** The ASN.1 form of `r` and `s`. */
function derSignature(raw: Buffer): Buffer {
  const integer = (half: Buffer): Buffer => {
    const trimmed = half.subarray(half.findIndex((byte) => byte !== 0))
    const positive = (trimmed[0] ?? 0) > 0x7f ? Buffer.concat([Buffer.from([0]), trimmed]) : trimmed
    return Buffer.concat([Buffer.from([2, positive.length]), positive])
  }
  const body = Buffer.concat([integer(raw.subarray(0, 32)), integer(raw.subarray(32))])
  return Buffer.concat([Buffer.from([0x30, body.length]), body])
}

function base64url(text: string): string {
  return Buffer.from(text).toString('base64url')
}
