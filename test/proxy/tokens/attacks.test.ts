/** Tokens made to be accepted, or to cost more than they should. */
import { createHmac, randomBytes } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import type { ClientInfo } from '../../../proxy/request.ts'
import { createIdentifier } from '../../../proxy/tokens/identify.ts'
import {
  CLIENT,
  NOT_REVOKED,
  goodClaims,
  identifierOf,
  issuerOf,
  manualClock,
  newKey,
  outcomeOf,
  present,
  publicForms,
  rawToken,
  tokenOf,
} from './issuing.ts'

const key = newKey()
const N = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n
const P = 0xffffffff00000001000000000000000000000000ffffffffffffffffffffffffn

describe('a forged signature', () => {
  const edges = [0n, 1n, 2n, N - 1n, N, N + 1n, P - 1n, P, 2n ** 256n - 1n]
  const pairs = edges.flatMap((r) => edges.map((s) => [r, s] as const))

  test.each(pairs.map(([r, s]) => [`${r.toString(16)} ${s.toString(16)}`, r, s] as const))(
    'of the numbers %s is no signature',
    async (_name, r, s) => {
      const input = rawToken(key, goodClaims()).split('.').slice(0, 2).join('.')
      const bytes = [r, s].map((number) => Buffer.from(number.toString(16).padStart(64, '0'), 'hex'))
      const forged = `${input}.${Buffer.concat(bytes).toString('base64url')}`
      expect(await outcomeOf(identifierOf(key), forged)).toBe('token_signature_invalid')
    },
  )

  test('by HMAC under the public key, in any of its forms, is no signature', async () => {
    const header = { alg: 'HS256', kid: key.kid, typ: 'egress+jwt' }
    const input = [header, goodClaims()]
      .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'))
      .join('.')
    for (const secret of publicForms(key)) {
      const forged = `${input}.${createHmac('sha256', secret).update(input).digest('base64url')}`
      expect(await outcomeOf(identifierOf(key), forged)).toBe('token_signature_invalid')
      const relabelled = rawToken(key, goodClaims(), header)
      expect(await outcomeOf(identifierOf(key), relabelled)).toBe('token_signature_invalid')
    }
  })

  test.each([63, 65, 96, 128, 132])('of %i bytes is no signature', async (length) => {
    const input = rawToken(key, goodClaims()).split('.').slice(0, 2).join('.')
    const forged = `${input}.${randomBytes(length).toString('base64url')}`
    expect(await outcomeOf(identifierOf(key), forged)).toBe('token_signature_invalid')
  })

  test('by another issuer with the same kid is no signature, also when that issuer is trusted for itself', async () => {
    const [own, other] = [newKey(), newKey()]
    const shared = { ...other, kid: own.kid }
    const issuers = [issuerOf([own]), issuerOf([shared], { issuer: 'https://other.issuer.test' })]
    const identifier = createIdentifier({ issuers, revocations: NOT_REVOKED })
    expect(await outcomeOf(identifier, await tokenOf(shared, { issuer: 'https://other.issuer.test' }))).toBe('ok')
    expect(await outcomeOf(identifier, await tokenOf(shared))).toBe('token_signature_invalid')
    expect(await outcomeOf(identifier, await tokenOf(own))).toBe('ok')
  })
})

describe('a token of an unlawful make', () => {
  const good = JSON.stringify(goodClaims())
  const nested = (levels: number): string => `${good.slice(0, -1)},"x":${'['.repeat(levels)}${']'.repeat(levels)}}`

  test.each([
    ['a member twice', `${good.slice(0, -1)},"jti":"j1"}`],
    ['a member twice, once escaped', `${good.slice(0, -1)},"\\u006ati":"j2"}`],
    ['a member twice further down', `${good.slice(0, -1)},"x":[{"a":{"b":1,"b":2}}]}`],
    ['a member __proto__', `${good.slice(0, -1)},"__proto__":{"tenant":"acme"}}`],
    ['a member __proto__ further down', `${good.slice(0, -1)},"egress2":{"__proto__":{}}}`],
    ['16 levels inside the object', nested(16)],
    ['10,000 levels', nested(10_000)],
    ['a byte order mark', `\ufeff${good}`],
    ['text after the object', `${good}{}`],
    ['single quotes', good.replaceAll('"', "'")],
    ['no claims at all', 'null'],
  ])('with %s in the payload is malformed', async (_name, payload) => {
    expect(await outcomeOf(identifierOf(key), rawToken(key, payload))).toBe('token_malformed')
  })

  test('with 15 levels inside the object is fine', async () => {
    expect(await outcomeOf(identifierOf(key), rawToken(key, nested(15)))).toBe('ok')
  })

  test('with the same name at different places is fine', async () => {
    const payload = `${good.slice(0, -1)},"x":[{"jti":1},{"jti":2}],"y":{"exp":"{\\"a\\":1,\\"a\\":2}"}}`
    expect(await outcomeOf(identifierOf(key), rawToken(key, payload))).toBe('ok')
  })

  test.each([
    ['alg twice', '{"alg":"ES256","alg":"none","typ":"egress+jwt"}'],
    ['b64', '{"alg":"ES256","typ":"egress+jwt","b64":true}'],
    ['a kid of 257 characters', `{"alg":"ES256","typ":"egress+jwt","kid":"${'k'.repeat(257)}"}`],
    ['a kid null', '{"alg":"ES256","typ":"egress+jwt","kid":null}'],
    ['typ none in words', '{"alg":"ES256","typ":"none"}'],
  ])('with %s in the header is malformed', async (_name, header) => {
    const identifier = createIdentifier({
      issuers: [issuerOf([key], { typ: ['egress+jwt', 'none'] })],
      revocations: NOT_REVOKED,
    })
    expect(await outcomeOf(identifier, rawToken(key, goodClaims(), header))).toBe('token_malformed')
  })

  test('with bytes that are no UTF-8 is malformed', async () => {
    const bytes = Buffer.concat([Buffer.from('{"a":"'), Buffer.from([0xc0, 0xaf]), Buffer.from('"}')])
    const [header = '', , signature = ''] = rawToken(key, goodClaims()).split('.')
    const token = [header, bytes.toString('base64url'), signature].join('.')
    expect(await outcomeOf(identifierOf(key), token)).toBe('token_malformed')
  })

  test('spelled otherwise in base64url is malformed: each token has one spelling', async () => {
    const token = await tokenOf(key)
    // 64 bytes end in a character of which four bits are stray.
    const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
    const stray = alphabet[alphabet.indexOf(token.slice(-1)) + 1] ?? ''
    expect(await outcomeOf(identifierOf(key), token.slice(0, -1) + stray)).toBe('token_malformed')
  })

  test.each(['constructor', '__proto__', 'hasOwnProperty', ''])('naming the issuer %j is of no issuer', async (iss) => {
    expect(await outcomeOf(identifierOf(key), rawToken(key, goodClaims({ iss })))).toBe('token_issuer_unknown')
  })

  test('is read up to what a head of 32 KiB can hold, and not beyond', async () => {
    const filled = (length: number): string => rawToken(key, goodClaims({ fill: 'x'.repeat(length) }))
    const fits = filled(24_000)
    expect(fits.length).toBeGreaterThan(32_000)
    expect(fits.length).toBeLessThanOrEqual(32_768)
    expect(await outcomeOf(identifierOf(key), fits)).toBe('ok')
    expect(await outcomeOf(identifierOf(key), filled(24_500))).toBe('token_malformed')
    const huge = present(identifierOf(key), 'x'.repeat(1_000_000))
    expect(huge).toMatchObject({ ok: false, reason: 'token_malformed' })
  })

  test.each([
    ['exp', '1e400'],
    ['exp', '-1e400'],
    ['exp', '1e308'],
    ['iat', '-1e308'],
    ['nbf', '1e400'],
    ['exp', '"1"'],
    ['exp', '[1]'],
    ['tenant', 'null'],
    ['tenant', '""'],
    ['sub', '7'],
    ['jti', '""'],
    ['egress', 'null'],
    ['egress', '{"kind":"allow-all","mode":"report"}'],
    ['egress', '{"kind":"named","name":""}'],
    ['egress', '{"kind":"static","allowedHosts":["a.test"],"allowedhosts":["b.test"]}'],
    ['cnf', '{}'],
    ['cnf', '{"jkt":"x"}'],
    ['cnf', '{"ip":"127.0.0.1","jkt":"x"}'],
    ['cnf', '{"ip":"127.1"}'],
    ['cnf', 'null'],
  ])('with %s %s has bad claims', async (name, value) => {
    const { [name]: _dropped, ...others } = goodClaims()
    const payload = `${JSON.stringify(others).slice(0, -1)},"${name}":${value}}`
    expect(await outcomeOf(identifierOf(key), rawToken(key, payload))).toBe('token_claims_invalid')
  })
})

/** Signatures that may be in work when the budget runs out. */
const IN_WORK = 16

describe('a flood', () => {
  const forged = (): string => {
    const token = rawToken(key, goodClaims({ jti: randomBytes(6).toString('hex') }))
    return token.slice(0, -86) + randomBytes(64).toString('base64url')
  }

  async function tally(
    tokens: readonly string[],
    address: (index: number) => string,
    options = {},
  ): Promise<Record<string, number>> {
    const identifier = identifierOf(key, { clock: manualClock(), ...options })
    const outcomes = await Promise.all(
      tokens.map((token, index) => outcomeOf(identifier, token, { address: address(index), port: 1 })),
    )
    return Object.fromEntries(
      [...new Set(outcomes)].map((word) => [word, outcomes.filter((one) => one === word).length]),
    )
  }

  const tokens = Array.from({ length: 3_000 }, forged)

  test('of bad tokens from one address costs a burst of 200 signatures, and the rest is not read', async () => {
    const counts = await tally(tokens, () => '198.51.100.1')
    expect(counts['token_signature_invalid']).toBeLessThanOrEqual(200 + IN_WORK)
    expect(counts['token_signature_invalid']).toBeGreaterThanOrEqual(190)
    expect(counts['rate_limit']).toBe(tokens.length - (counts['token_signature_invalid'] ?? 0))
  })

  test('from one /64 of IPv6 counts as one address', async () => {
    const counts = await tally(tokens, (index) => `2001:db8::${(index + 1).toString(16)}`)
    expect(counts['token_signature_invalid']).toBeLessThanOrEqual(200 + IN_WORK)
  })

  test('from everywhere costs 2,000 signatures, and the rest finds the gateway busy', async () => {
    const counts = await tally(tokens, (index) => `10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`)
    expect(counts['token_signature_invalid']).toBeLessThanOrEqual(2_000 + IN_WORK)
    expect(counts['gateway_busy']).toBe(tokens.length - (counts['token_signature_invalid'] ?? 0))
  })

  test('does not touch tokens seen before, nor other addresses, and passes', async () => {
    const clock = manualClock()
    const identifier = identifierOf(key, { clock })
    const attacker: ClientInfo = { address: '198.51.100.1', port: 1 }
    const [known, fresh, late] = await Promise.all([tokenOf(key), tokenOf(key), tokenOf(key)])
    expect(await outcomeOf(identifier, known, attacker)).toBe('ok')
    await Promise.all(tokens.slice(0, 400).map((token) => outcomeOf(identifier, token, attacker)))
    expect(present(identifier, known, attacker)).toMatchObject({ ok: true })
    expect(await outcomeOf(identifier, fresh)).toBe('ok')
    const refused = await present(identifier, late, attacker)
    expect(refused).toMatchObject({ ok: false, reason: 'rate_limit', retryAfterSeconds: 1 })
    clock.advance(2_000)
    expect(await outcomeOf(identifier, late, attacker)).toBe('ok')
  })

  test('of the same bad token is verified once', async () => {
    const identifier = identifierOf(key, { clock: manualClock() })
    const token = forged()
    for (let turn = 0; turn < 1_000; turn++) {
      expect(await outcomeOf(identifier, token)).toBe('token_signature_invalid')
    }
    expect(await outcomeOf(identifier, await tokenOf(key))).toBe('ok')
  })

  test('of good tokens, as after a restart, is let in whole', async () => {
    const good = Array.from({ length: 2_000 }, (_none, index) => rawToken(key, goodClaims({ jti: `j${index}` })))
    expect(await tally(good, () => CLIENT.address)).toEqual({ ok: 2_000 })
  })

  test('of structures that are none is cheap and bounded too', async () => {
    const identifier = identifierOf(key, { clock: manualClock() })
    const counts: Record<string, number> = {}
    for (let sent = 0; sent < 5_000; sent++) {
      const outcome = await outcomeOf(identifier, randomBytes(300).toString('base64url'))
      counts[outcome] = (counts[outcome] ?? 0) + 1
    }
    expect(counts['token_malformed']).toBeLessThan(2_700)
    expect(counts['rate_limit']).toBeGreaterThan(2_300)
  })
})
