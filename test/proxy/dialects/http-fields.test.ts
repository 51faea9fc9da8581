/** Which header fields pass to the origin and back. */
import { describe, expect, test } from 'vitest'
import { parseAuthority, type Destination } from '../../../policies/index.ts'
import {
  hostField,
  interimFields,
  requestFields,
  responseFields,
  trailerFields,
} from '../../../proxy/dialects/http-fields.ts'
import type { Framing, HttpHead } from '../../../proxy/dialects/http-head.ts'

function destination(text: string): Destination {
  const parsed = parseAuthority(text)
  if (!parsed.ok) throw new Error(parsed.fault.message)
  return parsed.value
}
const headWith = (framing: Framing, expectsContinue = false): HttpHead => ({
  ok: true,
  framing,
  proxyAuthorization: undefined,
  expectsContinue,
  traceparent: undefined,
})
const NONE = headWith({ kind: 'none' })
const ROUTE = { method: 'GET', httpVersion: '1.1', destination: destination('a.example:8080') }
const asText = (fields: readonly string[]): string[] =>
  fields.flatMap((name, index) => (index % 2 === 0 ? [`${name}: ${fields[index + 1] ?? ''}`] : []))

describe('a request', () => {
  test('gets its Host from the target, and keeps what is meant for the origin, in order and as often as it came', () => {
    const raw = [
      'Host',
      'evil.example',
      'Cookie',
      'a=1',
      'X-One',
      '1',
      'cookie',
      'b=2',
      'Authorization',
      'Bearer x',
      'Via',
      '1.1 agent',
    ]
    expect(asText(requestFields(raw, NONE, ROUTE))).toEqual([
      'Host: a.example:8080',
      'Cookie: a=1',
      'X-One: 1',
      'cookie: b=2',
      'Authorization: Bearer x',
      'Via: 1.1 agent, 1.1 sallyport',
      'Connection: keep-alive',
    ])
  })

  test.each([
    'Connection',
    'Keep-Alive',
    'Proxy-Connection',
    'Proxy-Authorization',
    'Proxy-Authenticate',
    'Proxy-Anything',
    'TE',
    'Trailer',
    'Upgrade',
    'Proxy',
    'HTTP2-Settings',
    'X-Deny-Reason',
    'Proxy-Status',
    'Expect',
    'Transfer-Encoding',
    'Content-Length',
  ])('loses %s', (name) => {
    expect(asText(requestFields([name, 'marker'], NONE, ROUTE)).join('\n')).not.toContain('marker')
  })

  test('loses what Connection names, in every Connection header and any case', () => {
    const raw = [
      'Connection',
      'close, X-Secret',
      'X-SECRET',
      '1',
      'X-Other',
      '2',
      'connection',
      'x-other,, ',
      'X-Kept',
      '3',
    ]
    expect(asText(requestFields(raw, NONE, ROUTE))).toEqual([
      'Host: a.example:8080',
      'X-Kept: 3',
      'Via: 1.1 sallyport',
      'Connection: keep-alive',
    ])
  })

  test('keeps its Host, its framing and its Via whatever Connection names', () => {
    const raw = [
      'Connection',
      'host, content-length, transfer-encoding, via, connection',
      'Content-Length',
      '5',
      'Via',
      '1.0 x',
    ]
    expect(asText(requestFields(raw, headWith({ kind: 'length', bytes: 5 }), ROUTE))).toEqual([
      'Host: a.example:8080',
      'Content-Length: 5',
      'Via: 1.0 x, 1.1 sallyport',
      'Connection: keep-alive',
    ])
    expect(asText(requestFields(raw, headWith({ kind: 'chunked' }), ROUTE))).toContain('Transfer-Encoding: chunked')
  })

  test('that usually has a body says when it has none', () => {
    expect(asText(requestFields([], NONE, { ...ROUTE, method: 'POST' }))).toContain('Content-Length: 0')
    expect(asText(requestFields([], NONE, { ...ROUTE, method: 'DELETE' })).join()).not.toContain('Content-Length')
  })

  test('passes an expectation on, and counts Max-Forwards down for OPTIONS alone', () => {
    expect(asText(requestFields([], headWith({ kind: 'none' }, true), ROUTE))).toContain('Expect: 100-continue')
    expect(asText(requestFields(['Max-Forwards', '3'], NONE, { ...ROUTE, method: 'OPTIONS' }))).toContain(
      'Max-Forwards: 2',
    )
    expect(asText(requestFields(['Max-Forwards', '3'], NONE, ROUTE))).toContain('Max-Forwards: 3')
  })

  test('gets the credentials of an upstream proxy, and never those of the client', () => {
    const raw = ['Proxy-Authorization', 'Bearer client']
    expect(
      asText(requestFields(raw, NONE, { ...ROUTE, upstreamAuthorization: 'Basic ours' })).filter((line) =>
        line.startsWith('Proxy'),
      ),
    ).toEqual(['Proxy-Authorization: Basic ours'])
  })

  test.each([
    ['a.example:80', 'a.example'],
    ['A.Example.:80', 'a.example'],
    ['a.example:443', 'a.example:443'],
    ['192.0.2.1:80', '192.0.2.1'],
    ['[2001:DB8::1]:80', '[2001:db8::1]'],
    ['[2001:db8::1]:8080', '[2001:db8::1]:8080'],
  ])('to %s has Host: %s', (target, host) => {
    expect(hostField(destination(target))).toBe(host)
  })
})

describe('a response', () => {
  const response = (rawHeaders: string[], framing: Framing = { kind: 'none' }, statusCode = 200) =>
    asText(responseFields({ statusCode, httpVersion: '1.1', rawHeaders }, framing))

  test('keeps what is meant for the client, in order and as often as it came', () => {
    expect(response(['Set-Cookie', 'a=1', 'Server', 'x', 'set-cookie', 'b=2'], { kind: 'length', bytes: 3 })).toEqual([
      'Set-Cookie: a=1',
      'Server: x',
      'set-cookie: b=2',
      'Content-Length: 3',
      'Via: 1.1 sallyport',
    ])
  })

  test.each([
    'Connection',
    'Keep-Alive',
    'Proxy-Connection',
    'Proxy-Authenticate',
    'Proxy-Authentication-Info',
    'Proxy-Status',
    'X-Deny-Reason',
    'x-dEnY-reason',
    'TE',
    'Trailer',
    'Transfer-Encoding',
    'Upgrade',
    'Content-Length',
  ])('loses %s', (name) => {
    expect(response([name, 'marker']).join('\n')).not.toContain('marker')
  })

  test('loses what Connection names, never its length', () => {
    expect(
      response(['Connection', 'x-gone, content-length', 'X-Gone', '1', 'Content-Length', '3'], {
        kind: 'length',
        bytes: 3,
      }),
    ).toEqual(['Content-Length: 3', 'Via: 1.1 sallyport'])
  })

  test('of 204 has no length, one of 304 keeps it', () => {
    expect(response([], { kind: 'length', bytes: 0 }, 204)).toEqual(['Via: 1.1 sallyport'])
    expect(response([], { kind: 'length', bytes: 9 }, 304)).toContain('Content-Length: 9')
  })

  test('of 1xx loses the same', () => {
    expect(asText(interimFields(['Link', '</a>', 'X-Deny-Reason', 'x', 'Content-Length', '3']))).toEqual(['Link: </a>'])
  })
})

test('trailers lose what frames, routes, authenticates or is ours', () => {
  const raw = [
    'X-Sum',
    '1',
    'Content-Length',
    '3',
    'Host',
    'x',
    'Authorization',
    'x',
    'X-Deny-Reason',
    'x',
    'Proxy-Status',
    'x',
    'Set-Cookie',
    'x',
    'x-sum',
    '2',
  ]
  expect(trailerFields(raw)).toEqual([
    ['X-Sum', '1'],
    ['x-sum', '2'],
  ])
})
