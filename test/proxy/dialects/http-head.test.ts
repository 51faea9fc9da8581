/** Which request heads are forwarded, and how their bodies are framed. */
import { describe, expect, test } from 'vitest'
import { readFraming, readHttpHead } from '../../../proxy/dialects/http-head.ts'

function head(fields: Record<string, string> | readonly string[], method = 'GET', httpVersion = '1.1') {
  const rawHeaders = Array.isArray(fields) ? (fields as string[]) : Object.entries(fields).flat()
  return readHttpHead({ method, httpVersion, rawHeaders })
}

describe('a head that is forwarded', () => {
  test('has no body by default', () => {
    expect(head({ Host: 'a' })).toEqual({
      ok: true,
      framing: { kind: 'none' },
      proxyAuthorization: undefined,
      expectsContinue: false,
    })
  })

  test.each([
    ['a length', { Host: 'a', 'Content-Length': '12' }, { framing: { kind: 'length', bytes: 12 } }],
    ['a length of 0', { Host: 'a', 'Content-Length': '0' }, { framing: { kind: 'length', bytes: 0 } }],
    [
      'a length with zeros before it',
      { Host: 'a', 'Content-Length': '0012' },
      { framing: { kind: 'length', bytes: 12 } },
    ],
    ['chunks', { Host: 'a', 'Transfer-Encoding': 'Chunked' }, { framing: { kind: 'chunked' } }],
    ['credentials', { Host: 'a', 'PROXY-authorization': 'Basic x' }, { proxyAuthorization: 'Basic x' }],
    ['an expectation', { Host: 'a', Expect: '100-Continue' }, { expectsContinue: true }],
  ])('with %s', (_name, fields, expected) => {
    expect(head(fields)).toMatchObject({ ok: true, ...expected })
  })

  test('of HTTP/1.0 needs no Host, and expects nothing', () => {
    expect(head({ Expect: '100-continue' }, 'GET', '1.0')).toMatchObject({ ok: true, expectsContinue: false })
  })

  test('of OPTIONS may travel while Max-Forwards lasts', () => {
    expect(head({ Host: 'a', 'Max-Forwards': '1' }, 'OPTIONS')).toMatchObject({ ok: true })
    expect(head({ Host: 'a', 'Max-Forwards': '0' }, 'GET')).toMatchObject({ ok: true })
  })
})

describe('a head that is malformed', () => {
  test.each([
    ['two Host headers', ['Host', 'a', 'host', 'a']],
    ['two Proxy-Authorization headers', ['Host', 'a', 'Proxy-Authorization', 'x', 'proxy-authorization', 'x']],
    ['two equal lengths', ['Host', 'a', 'Content-Length', '1', 'Content-Length', '1']],
    ['two encodings', ['Host', 'a', 'Transfer-Encoding', 'chunked', 'Transfer-Encoding', 'chunked']],
    ['a length and an encoding', ['Host', 'a', 'Transfer-Encoding', 'chunked', 'Content-Length', '1']],
    ['another encoding', ['Host', 'a', 'Transfer-Encoding', 'xchunked']],
    ['an encoding below chunked', ['Host', 'a', 'Transfer-Encoding', 'gzip, chunked']],
    ['chunked twice', ['Host', 'a', 'Transfer-Encoding', 'chunked, chunked']],
    ['an empty encoding', ['Host', 'a', 'Transfer-Encoding', '']],
    ['a length with a sign', ['Host', 'a', 'Content-Length', '+5']],
    ['a negative length', ['Host', 'a', 'Content-Length', '-1']],
    ['a hexadecimal length', ['Host', 'a', 'Content-Length', '0x10']],
    ['a list of lengths', ['Host', 'a', 'Content-Length', '5, 5']],
    ['an empty length', ['Host', 'a', 'Content-Length', '']],
    ['a length past what is exact', ['Host', 'a', 'Content-Length', '9007199254740993']],
    ['no Host', []],
    ['another expectation', ['Host', 'a', 'Expect', 'miracles']],
  ])('%s', (_name, fields) => {
    expect(head(fields)).toMatchObject({ ok: false, reason: 'request_malformed' })
  })

  test.each(['0.9', '1.2', '2.0'])('HTTP/%s', (version) => {
    expect(head({ Host: 'a' }, 'GET', version)).toMatchObject({ ok: false, reason: 'request_malformed' })
  })

  test('chunks in HTTP/1.0', () => {
    expect(head({ 'Transfer-Encoding': 'chunked' }, 'POST', '1.0')).toMatchObject({
      ok: false,
      reason: 'request_malformed',
    })
  })
})

describe('a method that is not served', () => {
  test.each([
    ['TRACE', { Host: 'a' }],
    ['CONNECT', { Host: 'a' }],
    ['PRI', { Host: 'a' }],
    ['OPTIONS', { Host: 'a', 'Max-Forwards': '0' }],
    ['OPTIONS', { Host: 'a', 'Max-Forwards': '-1' }],
    ['OPTIONS', { Host: 'a', 'Max-Forwards': '' }],
    ['OPTIONS', { Host: 'a', 'Max-Forwards': '9999999999999999999' }],
  ])('%s with %j', (method, fields) => {
    expect(head(fields, method)).toMatchObject({ ok: false, reason: 'method_not_allowed' })
  })
})

test('framing of an answer: an encoding that is not undone here can not be passed on', () => {
  expect(readFraming(undefined, 'gzip')).toBeUndefined()
  expect(readFraming(undefined, undefined)).toEqual({ kind: 'none' })
})
