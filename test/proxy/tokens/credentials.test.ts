/** What a client presented, in every spelling that clients are known for; the cases of `token.json` are tested beside this. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { MAX_TOKEN_BYTES, readProxyAuthorization, readSocksPassword } from '../../../proxy/tokens/credentials.ts'

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
    ['a token with a blank behind it', `Basic ${Buffer.from('sbx:a.b.c ').toString('base64')}`],
    ['a token with a NUL behind it', `Basic ${Buffer.from('sbx:a.b.c\0').toString('base64')}`],
    ['a carriage return before the token', `Basic ${Buffer.from('sbx:\ra.b.c').toString('base64')}`],
    ['nothing but the prefix', `Basic ${Buffer.from('sbx:jwt_').toString('base64')}`],
  ])('with %s is malformed', (_name, value) => {
    expect(readProxyAuthorization(value)).toMatchObject({ kind: 'malformed' })
  })

  test('a password with colons is no token, and what is before the first colon is the user', () => {
    const encoded = Buffer.from('a:b:c.d.e').toString('base64')
    expect(readProxyAuthorization(`Basic ${encoded}`)).toMatchObject({ kind: 'malformed' })
  })
})

describe('Bearer', () => {
  test.each([
    ['tab for a blank', 'Bearer\ta.b.c'],
    ['two tokens', 'Bearer a.b.c, Bearer d.e.f'],
    ['a comma', 'Bearer a.b.c,'],
    ['no blank', 'Bearera.b.c'],
    ['quotes', 'Bearer "a.b.c"'],
    ['a parameter', 'Bearer token=a.b.c'],
  ])('with %s is malformed', (_name, value) => {
    expect(readProxyAuthorization(value)).toMatchObject({ kind: 'malformed' })
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
  expect(readSocksPassword(Buffer.from('x'), Buffer.from([0xff, 0xfe]))).toMatchObject({ kind: 'malformed' })
})

test('nothing of the value is in what is said about it', () => {
  fc.assert(
    fc.property(fc.constantFrom('Bearer ', 'Basic ', 'Digest ', ''), fc.string({ minLength: 8 }), (scheme, rest) => {
      const read = readProxyAuthorization(scheme + rest)
      if (read.kind === 'malformed') expect(read.detail).not.toContain(rest)
    }),
  )
})
