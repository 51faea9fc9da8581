/** The gateway's own keys, and the tokens that are made with them. */
import { generateKeyPairSync, randomBytes } from 'node:crypto'
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { SallyportError } from '../../../policies/index.ts'
import { type Identifier, createIdentifier } from '../../../proxy/tokens/identify.ts'
import { type OwnKeys, openKeys } from '../../../proxy/tokens/keys.ts'
import { mintToken } from '../../../proxy/tokens/mint.ts'
import { type SigningKey, readSigningKey, secretSigningKey } from '../../../proxy/tokens/signing-key.ts'
import { ISSUER, NOT_REVOKED, newKey, outcomeOf, present, tokenOf } from './issuing.ts'

let folder: string
const cleanups: (() => void)[] = []

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'keys-'))
})

afterEach(() => {
  for (const cleanup of cleanups.splice(0)) cleanup()
  rmSync(folder, { recursive: true })
})

function gatewayOf(keys: OwnKeys, onKeys: () => void = () => undefined): Identifier {
  const identifier = createIdentifier({
    issuers: [{ issuer: ISSUER, algorithms: ['ES256', 'EdDSA'], stateKeys: true }],
    revocations: NOT_REVOKED,
    stateKeys: keys.document,
    onKeyEvent: onKeys,
  })
  cleanups.push(() => identifier.close())
  return identifier
}

async function signingKey(keys: OwnKeys): Promise<SigningKey> {
  const key = await keys.signingKey()
  if (!key) throw new Error('no key')
  return key
}

describe('own keys', () => {
  test('are files of the owner alone, and the public ones say nothing private', async () => {
    const keys = await openKeys(folder)
    const { kid } = await keys.rotate()
    expect(readdirSync(join(folder, 'keys')).sort()).toEqual([`${kid}.private.jwk`, `${kid}.public.jwk`])
    for (const name of readdirSync(join(folder, 'keys'))) {
      expect(statSync(join(folder, 'keys', name)).mode & 0o777).toBe(0o600)
    }
    const { d } = JSON.parse(readFileSync(join(folder, 'keys', `${kid}.private.jwk`), 'utf8')) as { d: string }
    expect(d.length).toBeGreaterThan(40)
    expect(JSON.stringify([keys.list(), keys.publicJwks(), await keys.signingKey()])).not.toContain(d)
    expect(keys.publicJwks()).toEqual({
      keys: [expect.objectContaining({ kid, alg: 'ES256', use: 'sig', kty: 'EC', crv: 'P-256' }) as object],
    })
  })

  test('rotate under a running gateway: the new one signs and works at once, the old one verifies until it is removed', async () => {
    const cli = await openKeys(folder)
    const old = await cli.rotate('ES256')
    let told = (): void => undefined
    const gateway = gatewayOf(await openKeys(folder), () => told())
    const before = await tokenOf(await signingKey(cli))
    expect(await outcomeOf(gateway, before)).toBe('ok')

    const fresh = await cli.rotate('EdDSA')
    expect(cli.list().map(({ kid, isSigning }) => [kid, isSigning])).toEqual([
      [fresh.kid, true],
      [old.kid, false],
    ])
    expect(existsSync(join(folder, 'keys', `${old.kid}.private.jwk`))).toBe(false)
    expect(await outcomeOf(gateway, await tokenOf(await signingKey(cli)))).toBe('ok')
    expect(await outcomeOf(gateway, before)).toBe('ok')

    const seen = new Promise<void>((resolve) => (told = resolve))
    const removedAt = performance.now()
    expect(await cli.remove(old.kid)).toBe(true)
    while ((await outcomeOf(gateway, before)) === 'ok') await seen
    expect(performance.now() - removedAt).toBeLessThan(2_000)
    expect(await outcomeOf(gateway, before)).toBe('token_signature_invalid')
    expect(await outcomeOf(gateway, await tokenOf(await signingKey(cli)))).toBe('ok')
  })

  test('are in the order of their making, also when the clock went back', async () => {
    const keys = await openKeys(folder)
    const first = await keys.rotate('ES256', 2_000_000_000_000)
    const second = await keys.rotate('ES256', 1_000_000_000_000)
    expect(keys.list().map((key) => key.kid)).toEqual([second.kid, first.kid])
  })

  test('that are all gone verify nothing, and none signs', async () => {
    const keys = await openKeys(folder)
    expect(await keys.signingKey()).toBeUndefined()
    const gateway = gatewayOf(keys)
    expect(gateway.isReady()).toBe(false)
    expect(await outcomeOf(gateway, await tokenOf(newKey()))).toBe('token_signature_invalid')
  })

  test.each(['../keys/x', '', '.', 'ffffffffffffffff', '*'])('removing %j removes nothing', async (kid) => {
    const keys = await openKeys(folder)
    await keys.rotate()
    expect(await keys.remove(kid)).toBe(false)
    expect(keys.list()).toHaveLength(1)
  })

  test('that are broken are one clear line, without the key', async () => {
    const keys = await openKeys(folder)
    const { kid } = await keys.rotate()
    const file = join(folder, 'keys', `${kid}.private.jwk`)
    const text = readFileSync(file, 'utf8')
    writeFileSync(file, text.slice(0, -20))
    const fault = await keys.signingKey().catch((error: unknown) => error)
    expect(fault).toMatchObject({ code: 'SALLYPORT_KEY_UNREADABLE' })
    expect(printed(fault)).not.toContain(text.slice(20, 40))
    writeFileSync(join(folder, 'keys', `${kid}.public.jwk`), 'x')
    expect(() => gatewayOf(keys)).toThrow(expect.objectContaining({ code: 'SALLYPORT_KEY_UNREADABLE' }) as Error)
  })
})

describe('key files of an issuer', () => {
  const withFile = (name: string, content: string | Buffer, entry: object): (() => Identifier) => {
    const path = join(folder, name)
    writeFileSync(path, content)
    const issuer = { issuer: ISSUER, algorithms: ['ES256'] as const, ...entry }
    return () => {
      const place = 'secretFile' in entry ? { secretFile: path } : { jwks: path }
      const identifier = createIdentifier({ issuers: [{ ...issuer, ...place }], revocations: NOT_REVOKED })
      cleanups.push(() => identifier.close())
      return identifier
    }
  }

  test.each([
    ['no JSON', 'keys', {}],
    ['no set', '{"kty":"EC"}', {}],
    ['too large', 'x'.repeat(600_000), {}],
    ['a short secret', Buffer.alloc(31, 1), { algorithms: ['HS256'], secretFile: '' }],
    ['a short secret and a newline', `${'s'.repeat(31)}\n`, { algorithms: ['HS256'], secretFile: '' }],
  ])('with %s stop the start in one line', (_name, content, entry) => {
    expect(withFile('file', content, entry)).toThrow(
      expect.objectContaining({
        code: 'SALLYPORT_KEY_UNREADABLE',
        message: expect.not.stringContaining('\n') as string,
      }) as Error,
    )
  })

  test('that are missing stop the start in one line', () => {
    const issuers = [{ issuer: ISSUER, algorithms: ['ES256'] as const, jwks: join(folder, 'missing') }]
    expect(() => createIdentifier({ issuers, revocations: NOT_REVOKED })).toThrow(
      /^key set `.*missing`: can't be read \(no such file\)$/,
    )
  })

  test('of a secret: one trailing newline is cut, no more', async () => {
    const secret = randomBytes(32)
    const token = await tokenOf(secretSigningKey(secret))
    const entry = { algorithms: ['HS256'], secretFile: '' }
    const outcomes = ['', '\n', '\n\n', '\r\n'].map((end) =>
      outcomeOf(withFile('secret', Buffer.concat([secret, Buffer.from(end)]), entry)(), token),
    )
    expect(await Promise.all(outcomes)).toEqual(['ok', 'ok', 'token_signature_invalid', 'token_signature_invalid'])
  })
})

describe('a token that is minted', () => {
  const key = newKey()

  test('says what was asked, and is accepted by a gateway with the key', async () => {
    const keys = await openKeys(folder)
    await keys.rotate()
    const minted = await mintToken({
      key: await signingKey(keys),
      issuer: ISSUER,
      sandbox: 'sbx_1',
      tenant: 'acme',
      egress: { kind: 'static', allowedHosts: ['API.example.com', '@github'], deniedHosts: ['x.example.com'] },
      binding: { address: '127.0.0.1' },
      lifeSeconds: 86_400,
    })
    expect(await present(gatewayOf(keys), minted.token)).toMatchObject({
      ok: true,
      tunnelExpiresAtMs: minted.expiresAtMs,
      identity: { tokenId: minted.tokenId, sandbox: 'sbx_1', tenant: 'acme', claim: { kind: 'static' } },
    })
  })

  test.each([
    ['a life above a day', { lifeSeconds: 86_401 }],
    ['no life', { lifeSeconds: 0 }],
    ['a life that is no number', { lifeSeconds: NaN }],
    ['an empty tenant', { tenant: '' }],
    ['an endless sandbox', { sandbox: 'x'.repeat(513) }],
    ['an empty binding', { binding: {} }],
    ['a binding to no address', { binding: { address: 'localhost' } }],
    ['a binding to no certificate', { binding: { certificate: 'AA' } }],
  ])('with %s is refused as the caller’s mistake', async (_name, options) => {
    await expect(mintToken({ key, issuer: ISSUER, ...options })).rejects.toThrow(TypeError)
  })

  test('with a bad policy is refused with every fault', async () => {
    const egress = { kind: 'static', allowedHosts: ['*', 'https://a.example.com', 'fine.example.com'] } as const
    const fault: unknown = await mintToken({ key, issuer: ISSUER, egress }).catch((error: unknown) => error)
    expect(fault).toMatchObject({ code: 'SALLYPORT_POLICY_INVALID' })
    expect(String(fault)).toMatch(/`\*`.*;.*`https:\/\/a\.example\.com`/)
  })

  test('that no head can hold is refused', async () => {
    const allowedHosts = Array.from({ length: 1_000 }, (_none, index) => `a-rather-long-name-${index}.example.com`)
    await expect(mintToken({ key, issuer: ISSUER, egress: { kind: 'static', allowedHosts } })).rejects.toMatchObject({
      code: 'SALLYPORT_TOKEN_INVALID',
    })
  })

  test('with a secret fits SOCKS5', async () => {
    const token = await tokenOf(secretSigningKey(randomBytes(32)), { issuer: 'urn:h', tokenId: 'j-1234567' })
    expect(token.length).toBeLessThanOrEqual(255)
  })
})

describe('a signing key', () => {
  test.each([
    ['EC', generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey, 'ES256'],
    ['Ed25519', generateKeyPairSync('ed25519').privateKey, 'EdDSA'],
    ['RSA', generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey, 'RS256'],
  ])('of type %s is read from PEM and from JWK', (_name, key, algorithm) => {
    const pem = key.export({ type: 'pkcs8', format: 'pem' }).toString()
    const jwk = JSON.stringify({ ...key.export({ format: 'jwk' }), kid: 'k1' })
    expect(readSigningKey(pem)).toMatchObject({ algorithm, kid: undefined })
    expect(readSigningKey(jwk)).toMatchObject({ algorithm, kid: 'k1' })
    expect(readSigningKey(jwk, { kid: 'k2' })).toMatchObject({ kid: 'k2' })
  })

  const publicPem = generateKeyPairSync('ed25519').publicKey.export({ type: 'spki', format: 'pem' }).toString()
  const p384 = generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey
  test.each([
    ['nothing', ''],
    ['a public key', publicPem],
    ['another curve', p384.export({ type: 'pkcs8', format: 'pem' }).toString()],
    ['a JWK of another algorithm', JSON.stringify({ ...newKey().key.export({ format: 'jwk' }), alg: 'ES512' })],
    ['half a JWK', '{"kty":"EC","d":"marker-secret'],
  ])('from %s is refused without repeating it', (_name, text) => {
    let fault: unknown
    try {
      readSigningKey(text)
    } catch (error) {
      fault = error
    }
    expect(fault).toBeInstanceOf(SallyportError)
    expect(printed(fault)).not.toContain('marker-secret')
    if (text.length > 60) expect(printed(fault)).not.toContain(text.slice(40, 60))
  })
})

/** Everything that a logger could make of an error. */
function printed(fault: unknown): string {
  if (!(fault instanceof Error)) return String(fault)
  return [
    fault.message,
    fault.stack,
    JSON.stringify(fault),
    fault.cause === undefined ? '' : printed(fault.cause),
  ].join('\n')
}
