/** What a client presented, in every spelling that clients are known for; the cases of `token.json` are tested beside this. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  isToken68,
  MAX_TOKEN_BYTES,
  readProxyAuthorization,
  readSocksPassword,
} from '../../../proxy/tokens/credentials.ts'

const token = fc
  .stringMatching(/^[A-Za-z0-9_-]{1,40}\.[A-Za-z0-9_-]{1,40}\.[A-Za-z0-9_-]{1,40}$/)
  .filter((text) => !text.startsWith('jwt_'))
const user = fc.string({ unit: 'binary', maxLength: 60 }).filter((text) => !text.includes(':'))

describe('Basic', () => {
  test('is read in either alphabet, padded or not, whatever the user name', () => {
    fc.assert(
      fc.property(user, token, fc.boolean(), fc.boolean(), fc.boolean(), (name, text, urlSafe, padded, prefixed) => {
        let encoded = Buffer.from(`${name}:${prefixed ? 'jwt_' : ''}${text}`).toString('base64')
        if (urlSafe) encoded = encoded.replaceAll('+', '-').replaceAll('/', '_')
        if (!padded) encoded = encoded.replaceAll('=', '')
        expect(readProxyAuthorization(`Basic ${encoded}`)).toEqual({ kind: 'token', token: text })
      }),
    )
  })

  test.each([
    ['both alphabets in one', 'Basic c2J4Onh4-+A='],
    ['a blank inside', 'Basic c2J4 Onh4'],
    ['one digit too many', 'Basic c2J4Onh4A'],
    ['padding where none belongs', 'Basic c2J4Onh4='],
    ['padding in the middle', 'Basic c2J=Onh4'],
    ['nothing but the prefix', `Basic ${Buffer.from('sbx:jwt_').toString('base64')}`],
  ])('with %s is malformed', (_name, value) => {
    expect(readProxyAuthorization(value)).toMatchObject({ kind: 'malformed' })
  })

  test.each([
    ['a blank behind it', 'sbx:a.b.c '],
    ['a NUL behind it', 'sbx:a.b.c\0'],
    ['a carriage return before it', 'sbx:\ra.b.c'],
    ['a colon in it, since what is before the first one is the user', 'a:b:c.d.e'],
  ])('a token with %s is none', (_name, pair) => {
    const read = readProxyAuthorization(`Basic ${Buffer.from(pair).toString('base64')}`)
    expect(read).toEqual({ kind: 'token', token: pair.slice(pair.indexOf(':') + 1) })
    expect(isToken68(pair.slice(pair.indexOf(':') + 1))).toBe(false)
  })
})

describe('Bearer', () => {
  test.each([
    ['tab for a blank', 'Bearer\ta.b.c'],
    ['no blank', 'Bearera.b.c'],
  ])('with %s is malformed', (_name, value) => {
    expect(readProxyAuthorization(value)).toMatchObject({ kind: 'malformed' })
  })

  test.each(['a.b.c, Bearer d.e.f', 'a.b.c,', '"a.b.c"', 'token=a.b.c', 'a.b.c=x'])('`%s` is no token', (text) => {
    expect(readProxyAuthorization(`Bearer ${text}`)).toEqual({ kind: 'token', token: text })
    expect(isToken68(text)).toBe(false)
  })

  test('may have several blanks before the token', () => {
    expect(readProxyAuthorization(' \tbEaReR   a.b.c\t ')).toEqual({ kind: 'token', token: 'a.b.c' })
  })
})

test('without the header there are none', () => {
  expect(readProxyAuthorization(undefined)).toEqual({ kind: 'none' })
})

test('the longest token fits, in each way, and one byte more does not', () => {
  const longest = 'x'.repeat(MAX_TOKEN_BYTES)
  const basic = (text: string): string => `Basic ${Buffer.from(`sbx:${text}`).toString('base64')}`
  expect(readProxyAuthorization(`Bearer ${longest}`)).toEqual({ kind: 'token', token: longest })
  expect(readProxyAuthorization(basic(longest))).toEqual({ kind: 'token', token: longest })
  expect(readProxyAuthorization(`Bearer ${longest}x`)).toMatchObject({ kind: 'malformed' })
  expect(readProxyAuthorization(basic(`${longest}x`))).toMatchObject({ kind: 'malformed' })
  expect(readProxyAuthorization(' '.repeat(1_000_000))).toMatchObject({ kind: 'malformed' })
})

test('SOCKS5 takes a token or a handle as password', () => {
  const handle = `sph_${'a'.repeat(32)}`
  expect(readSocksPassword(Buffer.from('x'), Buffer.from(handle))).toEqual({ kind: 'token', token: handle })
  expect(readSocksPassword(Buffer.alloc(0), Buffer.from('jwt_a.b.c'))).toEqual({ kind: 'token', token: 'a.b.c' })
  expect(readSocksPassword(Buffer.from('a.b.c'), Buffer.alloc(0))).toMatchObject({ kind: 'malformed' })
  expect(readSocksPassword(Buffer.from('x'), Buffer.from([0xff, 0xfe]))).toEqual({ kind: 'token', token: 'ÿþ' })
  expect(isToken68('ÿþ')).toBe(false)
})

test('nothing of the value is in what is said about it', () => {
  fc.assert(
    fc.property(fc.constantFrom('Bearer ', 'Basic ', 'Digest ', ''), fc.string({ minLength: 8 }), (scheme, rest) => {
      const read = readProxyAuthorization(scheme + rest)
      if (read.kind === 'malformed') expect(read.detail).not.toContain(rest)
    }),
  )
})
