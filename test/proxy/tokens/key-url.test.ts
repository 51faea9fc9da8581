/** Keys over HTTP, from real servers on loopback that rotate, lie, stall and fail. */
import { createPublicKey, generateKeyPairSync } from 'node:crypto'
import { once } from 'node:events'
import { type RequestListener, type ServerResponse, createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { gzipSync } from 'node:zlib'
import { afterEach, describe, expect, test } from 'vitest'
import { fetchDocument } from '../../../proxy/tokens/fetch-document.ts'
import { type Identifier, type IdentifierOptions, createIdentifier } from '../../../proxy/tokens/identify.ts'
import type { KeyEvent } from '../../../proxy/tokens/key-source.ts'
import { type SigningKey, publicJwk } from '../../../proxy/tokens/signing-key.ts'
import {
  ISSUER,
  NOT_REVOKED,
  goodClaims,
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
  for (const cleanup of cleanups.splice(0).reverse()) cleanup()
})

/** A server whose answer the test changes as it goes. */
interface KeyServer {
  readonly url: string
  asked: number
  answer: (response: ServerResponse) => void
}

async function keyServer(answer: (response: ServerResponse) => void): Promise<KeyServer> {
  const server = { url: '', asked: 0, answer }
  server.url = `${await listen((_request, response) => {
    server.asked++
    server.answer(response)
  })}/keys`
  return server
}

async function listen(listener: RequestListener): Promise<string> {
  const http = createServer(listener)
  http.listen(0, '127.0.0.1')
  await once(http, 'listening')
  cleanups.push(() => {
    http.close()
    http.closeAllConnections()
  })
  return `http://127.0.0.1:${(http.address() as AddressInfo).port}`
}

function serving(...keys: readonly SigningKey[]): (response: ServerResponse) => void {
  return servingJson(keySetOf(keys))
}

function servingJson(document: unknown): (response: ServerResponse) => void {
  return (response) => void response.end(JSON.stringify(document))
}

/** An identifier on a URL, and a way to wait for what becomes of its keys. */
function watch(
  url: string,
  more: Partial<IdentifierOptions> = {},
): { readonly identifier: Identifier; readonly events: KeyEvent[]; readonly event: () => Promise<KeyEvent> } {
  const events: KeyEvent[] = []
  const waiting: ((event: KeyEvent) => void)[] = []
  const identifier = createIdentifier({
    issuers: [{ issuer: ISSUER, algorithms: ['ES256', 'EdDSA', 'RS256'], jwks: url }],
    revocations: NOT_REVOKED,
    onKeyEvent: (_issuer, event) => {
      events.push(event)
      waiting.shift()?.(event)
    },
    ...more,
  })
  cleanups.push(() => identifier.close())
  return { identifier, events, event: () => new Promise((resolve) => waiting.push(resolve)) }
}

const stranger = newKey()
const named = (kid: string): SigningKey => ({ ...stranger, kid })

describe('a key set from a URL', () => {
  test('is waited for by the first tokens, and fetched once for all of them', async () => {
    const key = newKey()
    const server = await keyServer(serving(key))
    const { identifier } = watch(server.url)
    expect(identifier.isReady()).toBe(false)
    const tokens = await Promise.all(Array.from({ length: 20 }, () => tokenOf(key)))
    expect(new Set(await Promise.all(tokens.map((token) => outcomeOf(identifier, token))))).toEqual(new Set(['ok']))
    expect(server.asked).toBe(1)
    expect(identifier.isReady()).toBe(true)
  })

  test('is fetched again for a key it does not have: a rotated key works at once', async () => {
    const [old, fresh] = [newKey(), newKey()]
    const server = await keyServer(serving(old))
    const { identifier } = watch(server.url)
    expect(await outcomeOf(identifier, await tokenOf(old))).toBe('ok')
    server.answer = serving(old, fresh)
    expect(await outcomeOf(identifier, await tokenOf(fresh))).toBe('ok')
    expect(await outcomeOf(identifier, await tokenOf(old))).toBe('ok')
    expect(server.asked).toBe(2)
  })

  test('is fetched once for a thousand unknown kids, and again when the cooldown is over', async () => {
    const key = newKey()
    const clock = manualClock()
    const server = await keyServer(serving(key))
    const { identifier } = watch(server.url, { clock, failures: { addressBurstUs: 1e9, totalBurstUs: 1e9 } })
    expect(await outcomeOf(identifier, await tokenOf(key))).toBe('ok')
    const before = server.asked
    const bogus = async (from: number, to: number): Promise<string[]> => {
      const outcomes: string[] = []
      for (let index = from; index < to; index++) {
        outcomes.push(await outcomeOf(identifier, rawToken(named(`bogus-${index}`), goodClaims())))
      }
      return outcomes
    }
    expect(new Set(await bogus(0, 500))).toEqual(new Set(['token_signature_invalid']))
    const parallel = Array.from({ length: 500 }, (_none, index) =>
      outcomeOf(identifier, rawToken(named(`more-${index}`), goodClaims())),
    )
    expect(new Set(await Promise.all(parallel))).toEqual(new Set(['token_signature_invalid']))
    expect(server.asked - before).toBe(1)
    clock.advance(29_000)
    await bogus(1_000, 1_010)
    expect(server.asked - before).toBe(1)
    clock.advance(1_000)
    await bogus(2_000, 2_010)
    expect(server.asked - before).toBe(2)
  })

  test('is fetched once for a thousand tokens of an unknown kid that come before the first set', async () => {
    const server = await keyServer(serving(newKey()))
    const { identifier } = watch(server.url, { failures: { addressBurstUs: 1e9, totalBurstUs: 1e9 } })
    const parallel = Array.from({ length: 1_000 }, (_none, index) =>
      outcomeOf(identifier, rawToken(named(`bogus-${index}`), goodClaims())),
    )
    expect(new Set(await Promise.all(parallel))).toEqual(new Set(['token_signature_invalid']))
    expect(server.asked).toBe(1)
  })

  test('is fetched again for a token without kid whose signature does not hold, since such keys change unnoticed', async () => {
    const [old, fresh] = [newKey(), newKey()].map((key) => ({ ...key, kid: undefined }))
    if (!old || !fresh) throw new Error('no keys')
    const server = await keyServer(serving(old))
    const { identifier } = watch(server.url)
    const before = await tokenOf(old)
    expect(await outcomeOf(identifier, before)).toBe('ok')
    server.answer = serving(fresh)
    expect(await outcomeOf(identifier, await tokenOf(fresh))).toBe('ok')
    expect(await outcomeOf(identifier, before)).toBe('token_signature_invalid')
    expect(server.asked).toBe(2)
  })

  test('is not fetched again for bad signatures under a known kid', async () => {
    const key = newKey()
    const server = await keyServer(serving(key))
    const { identifier } = watch(server.url)
    const forged = rawToken({ ...stranger, kid: key.kid }, goodClaims())
    expect(await outcomeOf(identifier, forged)).toBe('token_signature_invalid')
    expect(server.asked).toBe(1)
  })

  test('is fetched again by itself, and a key that is gone verifies nothing more, not even what was remembered', async () => {
    const [staying, leaving] = [newKey(), newKey()]
    const server = await keyServer(serving(staying, leaving))
    const { identifier, event } = watch(server.url, { refreshTimes: { refreshMs: 20 } })
    const [good, bad] = [await tokenOf(staying), await tokenOf(leaving)]
    expect([await outcomeOf(identifier, good), await outcomeOf(identifier, bad)]).toEqual(['ok', 'ok'])
    server.answer = serving(staying)
    while ((await event()).result !== 'loaded');
    expect(present(identifier, good)).toMatchObject({ ok: true })
    expect(await outcomeOf(identifier, bad)).toBe('token_signature_invalid')
  })

  test('is stale after a day without a fetch that succeeds: then nothing is verified by it', async () => {
    const clock = manualClock()
    const key = newKey()
    const server = await keyServer(serving(key))
    const { identifier } = watch(server.url, { clock })
    const nowMs = clock.wallMs() + 86_000_000
    expect(await outcomeOf(identifier, await tokenOf(key))).toBe('ok')
    const later = await tokenOf(key, { nowMs, lifeSeconds: 86_400 })
    server.answer = (response) => void response.writeHead(500).end()
    clock.advance(86_000_000)
    expect(await outcomeOf(identifier, later)).toBe('ok')
    clock.advance(400_000)
    expect(await outcomeOf(identifier, later)).toBe('token_signature_invalid')
    expect(identifier.isReady()).toBe(false)
  })
})

describe('a bad answer keeps the last good set, and says what was wrong:', () => {
  const broken: readonly [string, (response: ServerResponse) => void, RegExp][] = [
    ['an error', (response) => void response.writeHead(500).end('{"keys":[]}'), /status 500/],
    ['not found', (response) => void response.writeHead(404).end(), /status 404/],
    ['no JSON', (response) => void response.end('<html>'), /not JSON/],
    ['a list', servingJson([]), /not a JSON object/],
    ['no keys', servingJson({}), /no list/],
    ['keys that are no list', servingJson({ keys: { 0: 'x' } }), /no list/],
    ['a body without end', (response) => void response.write('x'.repeat(600_000)), /larger than/],
    [
      'a small body that unpacks to a large one',
      (response) => void response.writeHead(200, { 'content-encoding': 'gzip' }).end(gzipSync(Buffer.alloc(5_000_000))),
      /larger than/,
    ],
    ['a broken connection', (response) => void response.destroy(), /connection failed/],
    [
      'a body cut short',
      (response) => {
        response.writeHead(200, { 'content-length': '100' }).write('{"keys":[]}')
        setImmediate(() => response.destroy())
      },
      /connection failed/,
    ],
  ]
  test.each(broken)('%s', async (_name, answer, message) => {
    const key = newKey()
    const server = await keyServer(serving(key))
    const { identifier, event } = watch(server.url)
    await event()
    server.answer = answer
    const outcome = outcomeOf(identifier, rawToken(named('unknown'), goodClaims()))
    expect(await event()).toMatchObject({ result: 'failed', keys: 1, detail: expect.stringMatching(message) as string })
    expect(await outcome).toBe('token_signature_invalid')
    expect(await outcomeOf(identifier, await tokenOf(key))).toBe('ok')
  })

  test('a redirect, also to a good set', async () => {
    const [key, lured] = [newKey(), newKey()]
    const target = await keyServer(serving(lured))
    const server = await keyServer((response) => void response.writeHead(302, { location: target.url }).end())
    const { identifier, event } = watch(server.url)
    expect(await event()).toMatchObject({ result: 'failed', detail: expect.stringMatching(/not followed/) as string })
    server.answer = serving(key)
    expect(await outcomeOf(identifier, await tokenOf(key))).toBe('ok')
    expect(await outcomeOf(identifier, await tokenOf(lured))).toBe('token_signature_invalid')
    expect(target.asked).toBe(0)
  })

  test('no answer in time', async () => {
    const server = await keyServer(() => undefined)
    const fetch = (url: URL, signal: AbortSignal): Promise<Uint8Array> => fetchDocument(url, signal, undefined, 50)
    const { event } = watch(server.url, { fetch })
    expect(await event()).toMatchObject({ result: 'failed', detail: expect.stringMatching(/within 50 ms/) as string })
  })

  test('a body that drips', async () => {
    const server = await keyServer((response) => {
      const drip = setInterval(() => response.write(' '), 5)
      response.on('close', () => clearInterval(drip))
    })
    const fetch = (url: URL, signal: AbortSignal): Promise<Uint8Array> => fetchDocument(url, signal, undefined, 100)
    const { event } = watch(server.url, { fetch })
    expect(await event()).toMatchObject({ result: 'failed', detail: expect.stringMatching(/within 100 ms/) as string })
  })

  test('nobody there at the start: tried again until there is', async () => {
    let up = false
    const key = newKey()
    const fetch = (): Promise<Uint8Array> =>
      up ? Promise.resolve(Buffer.from(JSON.stringify(keySetOf([key])))) : Promise.reject(new Error('down'))
    const { identifier, event } = watch('http://127.0.0.1:9/keys', { fetch, refreshTimes: { retryMs: 5 } })
    expect((await event()).result).toBe('failed')
    expect((await event()).result).toBe('failed')
    up = true
    while ((await event()).result !== 'loaded');
    expect(await outcomeOf(identifier, await tokenOf(key))).toBe('ok')
  })
})

describe('of a set with other keys beside good ones, the good are used:', () => {
  const rsa = (modulusLength: number): object =>
    generateKeyPairSync('rsa', { modulusLength }).publicKey.export({ format: 'jwk' })
  const other = newKey()
  const privateJwk = { ...other.key.export({ format: 'jwk' }), kid: other.kid }
  const off = { ...publicJwk(other), y: publicJwk(newKey()).y }
  const ignored: readonly [string, SigningKey, object][] = [
    ['a private key', other, privateJwk],
    ['an encryption key', other, { ...publicJwk(other), use: 'enc' }],
    ['a key for signing only', other, { ...publicJwk(other), use: undefined, key_ops: ['sign'] }],
    ['a key of another algorithm', other, { ...publicJwk(other), alg: 'ES384' }],
    ['a key with a kid that is a number', other, { ...publicJwk(other), kid: 7 }],
    ['a point that is not on the curve', other, off],
    ['null', other, null as unknown as object],
    ['a secret', other, { kty: 'oct', k: 'AAAA', kid: other.kid }],
  ]
  test.each(ignored)('%s is left out', async (_name, signer, jwk) => {
    const key = newKey()
    const server = await keyServer(servingJson({ keys: [jwk, publicJwk(key)] }))
    const { identifier, event } = watch(server.url)
    expect(await event()).toMatchObject({ keys: 1, detail: expect.stringMatching(/^1 keys left out/) as string })
    expect(await outcomeOf(identifier, await tokenOf(key))).toBe('ok')
    expect(await outcomeOf(identifier, await tokenOf(signer))).toBe('token_signature_invalid')
  })

  test.each([
    ['an RSA key of 1024 bits', rsa(1024)],
    ['an RSA key of 2040 bits', rsa(2040)],
    ['an RSA key with exponent 1', { ...rsa(2048), e: 'AQ' }],
    [
      'the Ed25519 point of order 1',
      { kty: 'OKP', crv: 'Ed25519', x: Buffer.from([1, ...Array<number>(31).fill(0)]).toString('base64url') },
    ],
    ['the Ed25519 point of order 4', { kty: 'OKP', crv: 'Ed25519', x: Buffer.alloc(32).toString('base64url') }],
    [
      'an Ed25519 point of order 8',
      {
        kty: 'OKP',
        crv: 'Ed25519',
        x: Buffer.from('c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa', 'hex').toString('base64url'),
      },
    ],
    [
      'a curve that is not served',
      { ...createPublicKey(generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey).export({ format: 'jwk' }) },
    ],
  ])('%s is left out', async (_name, jwk) => {
    const server = await keyServer(servingJson({ keys: [jwk, publicJwk(other)] }))
    expect(await watch(server.url).event()).toMatchObject({ keys: 1 })
  })

  test('of 101 keys the first 100 count', async () => {
    const keys = Array.from({ length: 101 }, newKey)
    const server = await keyServer(serving(...keys))
    const { identifier, event } = watch(server.url)
    expect(await event()).toMatchObject({ keys: 100, detail: expect.stringMatching(/more than 100 keys/) as string })
    const [first, hundredth, last] = [keys[0], keys[99], keys[100]]
    if (!first || !hundredth || !last) throw new Error('no keys')
    expect(await outcomeOf(identifier, await tokenOf(first))).toBe('ok')
    expect(await outcomeOf(identifier, await tokenOf(hundredth))).toBe('ok')
    expect(await outcomeOf(identifier, await tokenOf(last))).toBe('token_signature_invalid')
  })

  test('of two keys with one kid the first counts', async () => {
    const [first, second] = [newKey(), newKey()]
    const server = await keyServer(serving(first, { ...second, kid: first.kid }))
    const { identifier } = watch(server.url)
    expect(await outcomeOf(identifier, await tokenOf(first))).toBe('ok')
    expect(await outcomeOf(identifier, await tokenOf({ ...second, kid: first.kid }))).toBe('token_signature_invalid')
  })

  test('without kid a token is good only where one key fits', async () => {
    const [first, second] = [newKey(), newKey()]
    const server = await keyServer(serving(first, second))
    const { identifier } = watch(server.url)
    expect(await outcomeOf(identifier, await tokenOf({ ...first, kid: undefined }))).toBe('token_signature_invalid')
  })
})

test('a replacement that keeps the URL keeps its keys, and fetches nothing', async () => {
  const key = newKey()
  const server = await keyServer(serving(key))
  const { identifier } = watch(server.url)
  const token = await tokenOf(key, { audience: 'another' })
  expect(await outcomeOf(identifier, token)).toBe('token_audience_mismatch')
  server.answer = (response) => void response.writeHead(500).end()
  identifier.replace([{ issuer: ISSUER, algorithms: ['ES256'], jwks: server.url, audience: 'another' }])
  expect(await outcomeOf(identifier, token)).toBe('ok')
  expect(server.asked).toBe(1)
})
