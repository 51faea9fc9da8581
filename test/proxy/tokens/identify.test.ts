/** What is remembered of a token, and what is asked again at every use. */
import { createPublicKey, generateKeyPairSync } from 'node:crypto'
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { createIdentifier } from '../../../proxy/tokens/identify.ts'
import type { Identity } from '../../../proxy/tokens/identity.ts'
import { readSigningKey } from '../../../proxy/tokens/signing-key.ts'
import {
  CLIENT,
  NOT_REVOKED,
  goodClaims,
  identifierOf,
  issuerOf,
  keySetOf,
  manualClock,
  newKey,
  outcomeOf,
  present,
  rawToken,
  tokenOf,
} from './issuing.ts'

const cleanups: (() => void)[] = []
afterEach(() => {
  for (const cleanup of cleanups.splice(0)) cleanup()
})

const key = newKey()

describe('a token seen before', () => {
  test('is judged without a promise', async () => {
    const identifier = identifierOf(key)
    const token = await tokenOf(key, { sandbox: 'sbx_1', tenant: 'acme' })
    const first = present(identifier, token)
    expect(first).toBeInstanceOf(Promise)
    const again = present(identifier, token)
    expect(await again).toEqual(await first)
    const third = present(identifier, token)
    expect(third).not.toBeInstanceOf(Promise)
    expect(third).toMatchObject({ ok: true, identity: { sandbox: 'sbx_1', tenant: 'acme', keyId: key.kid } })
  })

  test('expires: inside the leeway a tunnel lives until its end, after it none is opened', async () => {
    const clock = manualClock()
    const identifier = identifierOf(key, { clock })
    const nowMs = Math.ceil(clock.wallMs() / 1000) * 1000
    const token = await tokenOf(key, { lifeSeconds: 60, nowMs })
    expect(await present(identifier, token)).toMatchObject({ ok: true, tunnelExpiresAtMs: nowMs + 60_000 })
    clock.advance(62_000)
    expect(present(identifier, token)).toMatchObject({ ok: true, tunnelExpiresAtMs: nowMs + 90_000 })
    clock.advance(30_000)
    expect(present(identifier, token)).toMatchObject({ ok: false, reason: 'token_expired' })
  })

  test('that is not yet valid becomes valid, without being verified again', async () => {
    const clock = manualClock()
    const identifier = identifierOf(key, { clock })
    const token = rawToken(key, goodClaims({ nbf: Math.floor(clock.wallMs() / 1000) + 120 }))
    expect(await outcomeOf(identifier, token)).toBe('token_not_yet_valid')
    clock.advance(100_000)
    expect(present(identifier, token)).toMatchObject({ ok: true })
  })

  test('is revoked from the moment that the revocations say so, with all that is known of it', async () => {
    const revoked = new Set<string>()
    const isRevoked = (identity: Identity): boolean => revoked.has(identity.tokenId)
    const identifier = identifierOf(key, { revocations: { isRevoked, isCurrent: () => true } })
    const token = await tokenOf(key, { tokenId: 'the-one', tenant: 'acme' })
    expect(await outcomeOf(identifier, token)).toBe('ok')
    revoked.add('the-one')
    expect(present(identifier, token)).toMatchObject({
      ok: false,
      reason: 'token_revoked',
      identity: { tokenId: 'the-one', tenant: 'acme' },
    })
  })

  test('with anything around it is another, which is refused unread', async () => {
    const identifier = identifierOf(key)
    const token = await tokenOf(key)
    expect(await outcomeOf(identifier, token)).toBe('ok')
    for (const text of [
      `${token} `,
      ` ${token}`,
      `${token},`,
      `${token}\0`,
      `"${token}"`,
      `${token}\xff`,
      `${token}==x`,
    ])
      expect(present(identifier, text)).toEqual({
        ok: false,
        reason: 'token_malformed',
        detail: 'the credentials are not a token',
      })
    expect(await outcomeOf(identifier, token)).toBe('ok')
  })

  test('is bound at every use, not only at the first', async () => {
    const identifier = identifierOf(key)
    const token = await tokenOf(key, { binding: { address: '127.0.0.1' } })
    expect(await outcomeOf(identifier, token)).toBe('ok')
    expect(await outcomeOf(identifier, token, { address: '127.0.0.2', port: 1 })).toBe('token_binding_mismatch')
    expect(await outcomeOf(identifier, token, { address: 'unix', port: 0 })).toBe('token_binding_mismatch')
    expect(await outcomeOf(identifier, token, { address: '::ffff:127.0.0.1', port: 1 })).toBe('ok')
  })

  test('with both bindings needs both', async () => {
    const identifier = identifierOf(key)
    const certificate = 'bwcK0esc3ACC3DB2Y5_lESsXE8o9ltc05O89jdN-dg2'
    const token = await tokenOf(key, { binding: { address: '127.0.0.1', certificate } })
    expect(await outcomeOf(identifier, token)).toBe('token_binding_mismatch')
    expect(await outcomeOf(identifier, token, { ...CLIENT, certificateThumbprint: certificate })).toBe('ok')
    const elsewhere = { address: '10.0.0.1', port: 1, certificateThumbprint: certificate }
    expect(await outcomeOf(identifier, token, elsewhere)).toBe('token_binding_mismatch')
  })

  test('is verified anew when its key is no longer in the set, and only then', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'identify-'))
    cleanups.push(() => rmSync(folder, { recursive: true }))
    const path = join(folder, 'keys.json')
    const [staying, leaving] = [newKey(), newKey()]
    const publish = (keys: Parameters<typeof keySetOf>[0]): void => {
      writeFileSync(`${path}.new`, JSON.stringify(keySetOf(keys)))
      renameSync(`${path}.new`, path)
    }
    publish([staying, leaving])
    let changed = (): void => undefined
    const entry = { ...issuerOf([]), keySet: undefined, jwks: path }
    const identifier = createIdentifier({ issuers: [entry], revocations: NOT_REVOKED, onKeyEvent: () => changed() })
    cleanups.push(() => identifier.close())
    const [good, bad] = [await tokenOf(staying), await tokenOf(leaving)]
    expect([await outcomeOf(identifier, good), await outcomeOf(identifier, bad)]).toEqual(['ok', 'ok'])
    const seen = new Promise<void>((resolve) => (changed = resolve))
    publish([staying, newKey()])
    await seen
    expect(present(identifier, good)).toMatchObject({ ok: true })
    expect(await outcomeOf(identifier, bad)).toBe('token_signature_invalid')
  })

  test('is forgotten when the issuers are replaced, also while it is being verified', async () => {
    const identifier = identifierOf(key)
    const [known, underway] = [await tokenOf(key), await tokenOf(key)]
    expect(await outcomeOf(identifier, known)).toBe('ok')
    const pending = outcomeOf(identifier, underway)
    identifier.replace([issuerOf([key], { audience: 'another' })])
    expect(await pending).toBe('token_audience_mismatch')
    expect(await outcomeOf(identifier, known)).toBe('token_audience_mismatch')
    identifier.replace([])
    expect(await outcomeOf(identifier, known)).toBe('token_issuer_unknown')
    expect(await outcomeOf(identifier, underway)).toBe('token_issuer_unknown')
  })

  test('makes room for others: the cache is bounded', async () => {
    const identifier = identifierOf(key, { cache: { entries: 2 } })
    const tokens = await Promise.all([tokenOf(key), tokenOf(key), tokenOf(key)])
    for (const token of tokens) await present(identifier, token)
    expect(tokens.map((token) => present(identifier, token) instanceof Promise)).toEqual([true, false, false])
  })
})

describe('who is let in without a token', () => {
  const identity: Identity = {
    tokenId: 'bound-1',
    issuer: 'bound',
    keyId: undefined,
    sandbox: 'sbx_1',
    tenant: undefined,
    issuedAtMs: 0,
    expiresAtMs: Infinity,
    claim: { kind: 'deny-all' },
    binding: undefined,
  }

  test('a bound listener carries the identity, whatever credentials come', () => {
    const outcome = identifierOf(key).identify({ kind: 'malformed', detail: 'x' }, { ...CLIENT, bound: identity })
    expect(outcome).toEqual({ ok: true, identity, tunnelExpiresAtMs: Infinity })
  })

  test('a bound listener can be revoked and expire', () => {
    const clock = manualClock()
    const revoked = identifierOf(key, { revocations: { isRevoked: () => true, isCurrent: () => true } })
    const bound = { ...CLIENT, bound: identity }
    expect(revoked.identify({ kind: 'none' }, bound)).toMatchObject({ reason: 'token_revoked' })
    const short = { ...CLIENT, bound: { ...identity, expiresAtMs: clock.wallMs() } }
    clock.advance(30_000)
    expect(identifierOf(key, { clock }).identify({ kind: 'none' }, short)).toMatchObject({ reason: 'token_expired' })
  })

  test('nobody, while revocations can not be seen', async () => {
    let isCurrent = true
    const identifier = identifierOf(key, { revocations: { isRevoked: () => false, isCurrent: () => isCurrent } })
    const token = await tokenOf(key)
    expect(await outcomeOf(identifier, token)).toBe('ok')
    isCurrent = false
    expect(await outcomeOf(identifier, token)).toBe('policy_unavailable')
    expect(identifier.identify({ kind: 'none' }, { ...CLIENT, bound: identity })).toMatchObject({ ok: false })
  })
})

describe('an issuer with a shape of its own', () => {
  test('whose tokens have no jti: the id is of what was signed, so another signature of it is the same token', async () => {
    const identifier = createIdentifier({ issuers: [issuerOf([key], { optional: ['jti'] })], revocations: NOT_REVOKED })
    const token = rawToken(key, goodClaims({ jti: undefined }))
    const twin = malleate(token)
    expect(twin).not.toBe(token)
    const [one, other] = [await present(identifier, token), await present(identifier, twin)]
    expect(one).toMatchObject({ ok: true })
    expect(other.ok && other.identity.tokenId).toBe(one.ok && one.identity.tokenId)
    expect(one.ok && one.identity.tokenId).toMatch(/^sha256:[0-9a-f]{64}$/)
  })

  test('that maps the list: `egress` is not read, and without the list nothing is allowed', async () => {
    const issuers = [issuerOf([key], { claims: { allowedHosts: 'hosts', tenant: 'org', sandbox: 'box' } })]
    const identifier = createIdentifier({ issuers, revocations: NOT_REVOKED })
    const claims = { egress: { kind: 'allow-all' }, tenant: 'evil', sub: 'evil', org: 'acme', box: 'b1' }
    const listed = await present(identifier, rawToken(key, goodClaims({ ...claims, hosts: 'a.example.test' })))
    expect(listed).toMatchObject({ ok: true, identity: { tenant: 'acme', sandbox: 'b1', claim: { kind: 'static' } } })
    const bare = await present(identifier, rawToken(key, goodClaims(claims)))
    expect(bare).toMatchObject({ ok: true, identity: { claim: { kind: 'deny-all' } } })
  })

  test('that maps a claim to a name every object has: only own members count', async () => {
    const issuers = [issuerOf([key], { claims: { tenant: 'constructor', allowedHosts: 'toString' } })]
    const outcome = await present(createIdentifier({ issuers, revocations: NOT_REVOKED }), rawToken(key, goodClaims()))
    expect(outcome).toMatchObject({ ok: true, identity: { tenant: undefined, claim: { kind: 'deny-all' } } })
  })

  test('whose key could do more than its algorithms: only those are accepted', async () => {
    const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
    const pem = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
    const [rs, ps] = (['RS256', 'PS256'] as const).map((algorithm) => readSigningKey(pem, { kid: 'rsa', algorithm }))
    if (!rs || !ps) throw new Error('no keys')
    const jwk = { ...createPublicKey(privateKey).export({ format: 'jwk' }), kid: 'rsa' }
    const outcomes = async (algorithm: 'RS256' | 'PS256', more: object): Promise<string[]> => {
      const issuers = [issuerOf([], { algorithms: [algorithm], keySet: { keys: [{ ...jwk, ...more }] } })]
      const identifier = createIdentifier({ issuers, revocations: NOT_REVOKED })
      return [await outcomeOf(identifier, await tokenOf(rs)), await outcomeOf(identifier, await tokenOf(ps))]
    }
    expect(await outcomes('RS256', {})).toEqual(['ok', 'token_signature_invalid'])
    expect(await outcomes('PS256', {})).toEqual(['token_signature_invalid', 'ok'])
    expect(await outcomes('RS256', { alg: 'PS256' })).toEqual(['token_signature_invalid', 'token_signature_invalid'])
  })

  test('without aud: accepted if the operator says so, and one that is there must still fit', async () => {
    const issuers = [issuerOf([key], { unsafeNoAudience: true })]
    const identifier = createIdentifier({ issuers, revocations: NOT_REVOKED })
    expect(await outcomeOf(identifier, rawToken(key, goodClaims({ aud: undefined })))).toBe('ok')
    expect(await outcomeOf(identifier, rawToken(key, goodClaims({ aud: 'other' })))).toBe('token_audience_mismatch')
  })

  test.each([
    ['HS256 beside ES256', { algorithms: ['HS256', 'ES256'] as const }],
    ['HS256 with public keys', { algorithms: ['HS256'] as const }],
    ['ES256 with a secret', { keySet: undefined, secret: Buffer.alloc(32, 7) }],
    ['a secret of 31 bytes', { algorithms: ['HS256'] as const, keySet: undefined, secret: Buffer.alloc(31, 7) }],
    ['no keys', { keySet: undefined }],
    ['two places of keys', { jwks: '/dev/null' }],
    ['no algorithm', { algorithms: [] }],
    ['an empty audience', { audience: [] }],
    ['a URL with user info', { keySet: undefined, jwks: 'https://user:marker-word@host.test/keys' }],
    ['keys of a state folder that is not there', { keySet: undefined, stateKeys: true }],
  ])('is refused at the start with %s', (_name, entry) => {
    const build = (): unknown => createIdentifier({ issuers: [issuerOf([key], entry)], revocations: NOT_REVOKED })
    expect(build).toThrow(expect.objectContaining({ code: 'SALLYPORT_CONFIG_INVALID' }) as Error)
    expect(build).not.toThrow(/marker-word/)
  })

  test('configured twice is refused, and a replacement that fails changes nothing', async () => {
    const identifier = identifierOf(key)
    expect(() => identifier.replace([issuerOf([key]), issuerOf([newKey()])])).toThrow('is configured twice')
    expect(await outcomeOf(identifier, await tokenOf(key))).toBe('ok')
  })
})

/** The other signature that ECDSA accepts for the same text: `s` becomes `n - s`. */
function malleate(token: string): string {
  const n = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n
  const at = token.lastIndexOf('.') + 1
  const raw = Buffer.from(token.slice(at), 'base64url')
  const s = n - BigInt(`0x${raw.subarray(32).toString('hex')}`)
  const twin = Buffer.concat([raw.subarray(0, 32), Buffer.from(s.toString(16).padStart(64, '0'), 'hex')])
  return token.slice(0, at) + twin.toString('base64url')
}
