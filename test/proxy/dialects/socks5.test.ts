/** The three messages of a SOCKS5 client, each in any pieces. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  parseGreeting,
  parseSocksRequest,
  parseUserPassword,
  SOCKS_AUTH_FAILED,
  SOCKS_AUTH_OK,
  SOCKS_OK,
  socksMethodReply,
  socksRefusal,
  type SocksMessage,
} from '../../../proxy/dialects/socks5.ts'
import { ALL_REASONS, describeReason } from '../../../proxy/reasons.ts'

const hex = (text: string): Buffer => Buffer.from(text.replaceAll(' ', ''), 'hex')
const name = (text: string): string => Buffer.from([text.length, ...Buffer.from(text, 'latin1')]).toString('hex')

describe('the greeting', () => {
  test.each([
    ['user and password', '05 01 02', false, 0x02],
    ['both methods', '05 02 00 02', false, 0x02],
    ['no authentication alone', '05 01 00', false, 0xff],
    ['GSSAPI alone', '05 01 01', false, 0xff],
    ['no method', '05 00', false, 0xff],
    ['no authentication, on a bound listener', '05 01 00', true, 0x00],
    ['both methods, on a bound listener', '05 02 00 02', true, 0x00],
    ['user and password alone, on a bound listener', '05 01 02', true, 0x02],
  ])('with %s', (_name, bytes, bound, method) => {
    expect(parseGreeting(hex(bytes), bound)).toEqual({ state: 'done', length: hex(bytes).length, method })
  })

  test('of another version is refused without an answer', () => {
    expect(parseGreeting(hex('04 01'), false)).toMatchObject({
      state: 'refused',
      reason: 'request_malformed',
      reply: Buffer.alloc(0),
    })
  })

  test('is answered with the method', () => {
    expect(socksMethodReply(0x02)).toEqual(hex('05 02'))
    expect(socksMethodReply(0xff)).toEqual(hex('05 ff'))
  })
})

describe('the credentials', () => {
  test.each([
    ['a user and a password', '01 03 736278 02 7077', 'sbx', 'pw'],
    ['no user', '01 00 02 7077', '', 'pw'],
    ['no password', '01 01 75 00', 'u', ''],
  ])('with %s', (_name, bytes, user, password) => {
    const message = parseUserPassword(hex(bytes))
    expect(message).toMatchObject({ state: 'done', length: hex(bytes).length })
    if (message.state !== 'done') return
    expect([message.user.toString(), message.password.toString()]).toEqual([user, password])
  })

  test('of 255 bytes each', () => {
    const bytes = Buffer.concat([hex('01 ff'), Buffer.alloc(255, 'u'), hex('ff'), Buffer.alloc(255, 'p')])
    expect(parseUserPassword(bytes)).toMatchObject({ state: 'done', length: 513, password: Buffer.alloc(255, 'p') })
  })

  test('of another version are answered as refused', () => {
    expect(parseUserPassword(hex('05 01'))).toMatchObject({ state: 'refused', reply: SOCKS_AUTH_FAILED })
    expect(SOCKS_AUTH_FAILED).toEqual(hex('01 01'))
    expect(SOCKS_AUTH_OK).toEqual(hex('01 00'))
  })
})

describe('the request', () => {
  test.each([
    ['a name', `05 01 00 03 ${name('api.example.com')} 01bb`, 'api.example.com:443'],
    ['an IPv4 address', '05 01 00 01 c0000201 0050', '192.0.2.1:80'],
    ['an IPv6 address', '05 01 00 04 20010db8000000000000000000000001 01bb', '[2001:db8:0:0:0:0:0:1]:443'],
    ['an address written as a name', `05 01 00 03 ${name('127.1')} 01bb`, '127.1:443'],
    [
      'a NUL in the name, which cuts nothing off',
      `05 01 00 03 ${name('evil.example\0.allowed.example')} 01bb`,
      'evil.example\0.allowed.example:443',
    ],
    ['a colon in the name, which makes no port', `05 01 00 03 ${name('evil.example:80')} 01bb`, 'evil.example:80:443'],
    ['bytes above ASCII', `05 01 00 03 ${name('b\xfccher.example')} 01bb`, 'b\xfccher.example:443'],
    ['an empty name', '05 01 00 03 00 01bb', ':443'],
    ['port 0', `05 01 00 03 ${name('a.example')} 0000`, 'a.example:0'],
  ])('with %s', (_name, bytes, target) => {
    expect(parseSocksRequest(hex(bytes))).toEqual({ state: 'done', length: hex(bytes).length, target })
  })

  test('leaves early data alone', () => {
    expect(parseSocksRequest(hex('05 01 00 01 c0000201 0050 160301'))).toMatchObject({ length: 10 })
  })

  test.each([
    ['BIND', '05 02 00 01 c0000201 0050', 'method_not_allowed', 7],
    ['UDP ASSOCIATE', '05 03 00 01 00000000 0000', 'method_not_allowed', 7],
    ['an unknown command', '05 f0 00 01 c0000201 0050', 'method_not_allowed', 7],
    ['an unknown address type', '05 01 00 02', 'request_malformed', 8],
    ['another version', '06 01 00 01 c0000201 0050', 'request_malformed', 1],
    ['a reserved byte that is not 0', '05 01 01 01 c0000201 0050', 'request_malformed', 1],
  ])('for %s is refused', (_name, bytes, reason, code) => {
    expect(parseSocksRequest(hex(bytes))).toMatchObject({
      state: 'refused',
      reason,
      reply: hex(`05 0${code} 00 01 00000000 0000`),
    })
  })

  test.each(ALL_REASONS)('refused for %s is answered with the code of the reason', (reason) => {
    expect(socksRefusal(reason)).toEqual(Buffer.from([5, describeReason(reason).socks, 0, 1, 0, 0, 0, 0, 0, 0]))
  })

  test('granted is answered without an address of the gateway', () => {
    expect(SOCKS_OK).toEqual(hex('05 00 00 01 00000000 0000'))
  })
})

describe('a message in pieces', () => {
  const parsers: readonly [string, (bytes: Buffer) => SocksMessage<object>, string][] = [
    ['the greeting', (bytes) => parseGreeting(bytes, false), '05 03 00 01 02'],
    ['the credentials', parseUserPassword, '01 03 736278 02 7077'],
    ['the request by name', parseSocksRequest, `05 01 00 03 ${name('a.example')} 01bb`],
    ['the request by IPv4', parseSocksRequest, '05 01 00 01 c0000201 0050'],
    ['the request by IPv6', parseSocksRequest, '05 01 00 04 20010db8000000000000000000000001 01bb'],
    ['a refused command', parseSocksRequest, '05 02 00 01 c0000201 0050'],
    ['an unknown address type', parseSocksRequest, '05 01 00 09'],
  ]
  test.each(parsers)('%s asks for more until it is whole, and gives the same answer', (_name, parse, text) => {
    const bytes = hex(text)
    const whole = parse(bytes)
    expect(whole.state).not.toBe('more')
    for (let split = 0; split < bytes.length; split++)
      expect(parse(bytes.subarray(0, split))).toEqual({ state: 'more' })
    expect(parse(Buffer.concat([bytes, hex('ff00ff')]))).toEqual(whole)
  })

  test('of any bytes is never read past its end, and never throws', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 600 }), (raw) => {
        const bytes = Buffer.from(raw)
        for (const [, parse] of parsers) {
          const message = parse(bytes)
          if (message.state === 'done') expect(message.length).toBeLessThanOrEqual(bytes.length)
        }
      }),
      { numRuns: 2_000 },
    )
  })
})
