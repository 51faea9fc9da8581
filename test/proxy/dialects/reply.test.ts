/** What a refusal looks like on the wire. */
import { describe, expect, test } from 'vitest'
import { parseAuthority, type Destination } from '../../../policies/index.ts'
import { CONNECT_OK, httpRefusal, originFaultReply, replyBytes } from '../../../proxy/dialects/reply.ts'
import { ALL_REASONS, describeReason, reasonPhrase } from '../../../proxy/reasons.ts'
import type { Refusal } from '../../../proxy/request.ts'

function destination(text: string): Destination {
  const parsed = parseAuthority(text)
  if (!parsed.ok) throw new Error(parsed.fault.message)
  return parsed.value
}

function read(bytes: Buffer) {
  const [head = '', body = ''] = bytes.toString('latin1').split('\r\n\r\n')
  const [statusLine = '', ...lines] = head.split('\r\n')
  const fields = lines.map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 2)] as const)
  const all = (name: string) => fields.filter(([field]) => field === name).map(([, value]) => value)
  return { statusLine, fields, all, body }
}

const refused = (refusal: Omit<Refusal, 'ok'>, options = {}) =>
  read(httpRefusal({ ok: false, ...refusal }, { requestId: 'r-1', ...options }))

describe('a refusal', () => {
  test('says the reason in the status line, the headers and one line of JSON', () => {
    const { statusLine, all, body } = refused({
      reason: 'host_not_allowed',
      destination: destination('API.example.com:443'),
    })
    expect(statusLine).toBe('HTTP/1.1 403 Host Not Allowed')
    expect(all('x-deny-reason')).toEqual(['host_not_allowed'])
    expect(all('proxy-status')).toEqual(['sallyport; error=http_request_denied; details="host not allowed"'])
    expect(all('connection')).toEqual(['close'])
    expect(all('content-length')).toEqual([String(body.length)])
    expect(body.endsWith('\n') && !body.slice(0, -1).includes('\n')).toBe(true)
    expect(JSON.parse(body)).toEqual({
      error: 'host_not_allowed',
      host: 'api.example.com',
      port: 443,
      request_id: 'r-1',
      advice: describeReason('host_not_allowed').advice,
    })
  })

  test.each(ALL_REASONS)('for %s has its status, phrase and headers', (reason) => {
    const { statusLine, all } = refused({ reason })
    const { status, proxyStatus } = describeReason(reason)
    expect(statusLine).toBe(`HTTP/1.1 ${status} ${reasonPhrase(reason)}`)
    expect(all('x-deny-reason')).toEqual([reason])
    expect(all('proxy-status')[0]).toMatch(new RegExp(`^sallyport; error=${proxyStatus}; details="[^"]+"$`))
    expect(all('proxy-authenticate')).toHaveLength(status === 407 ? 2 : 0)
    expect(all('allow')).toHaveLength(status === 405 ? 1 : 0)
    expect(all('retry-after')).toHaveLength(status === 429 || status === 503 ? 1 : 0)
  })

  test('for missing credentials offers both schemes, and can keep the connection', () => {
    const { all } = refused({ reason: 'token_missing' }, { keepOpen: true })
    expect(all('proxy-authenticate')).toEqual(['Basic realm="sallyport"', 'Bearer'])
    expect(all('connection')).toEqual(['keep-alive'])
  })

  test('for bad credentials says that another try with them is of no use', () => {
    expect(refused({ reason: 'token_expired' }).all('proxy-authenticate')).toEqual([
      'Basic realm="sallyport"',
      'Bearer error="invalid_token"',
    ])
  })

  test('for a limit says when to come back', () => {
    expect(refused({ reason: 'rate_limit', retryAfterSeconds: 7 }).all('retry-after')).toEqual(['7'])
  })

  test('of a HEAD tells the length and sends no body', () => {
    const { all, body } = refused({ reason: 'host_denied' }, { head: true })
    expect(Number(all('content-length')[0])).toBeGreaterThan(50)
    expect(body).toBe('')
  })

  test('lets no detail break out of its header or its line', () => {
    const detail = 'a "quoted" \\ back\r\nx-injected: 1\r\n\r\n<b>\x1b[31m\u2028é'
    const { fields, all, body } = refused({ reason: 'target_malformed', detail })
    expect(fields.map(([name]) => name)).not.toContain('x-injected')
    expect(all('proxy-status')).toEqual([
      'sallyport; error=http_request_error; details="a \\"quoted\\" \\\\ back??x-injected: 1????<b>?[31m??"',
    ])
    expect(body).toMatch(/^[\x20-\x7e]*\n$/)
    expect((JSON.parse(body) as { detail: string }).detail).toBe(detail)
  })

  test('cuts a long detail in the header', () => {
    expect(
      refused({ reason: 'target_malformed', detail: 'x'.repeat(10_000) }).all('proxy-status')[0]?.length,
    ).toBeLessThan(300)
  })

  test('tells nothing of what the gateway knows beside the destination', () => {
    const marker = 'marker-7f3a'
    const known = {
      resolved: [marker],
      policyVersion: marker,
      identity: { tenant: marker, sandbox: marker, tokenId: marker },
    }
    const verdict = {
      effective: 'deny',
      decision: 'deny',
      reason: 'host_denied',
      layer: 'ceiling',
      rule: marker,
    } as const
    expect(
      httpRefusal({ ok: false, reason: 'host_denied', ...known, verdict }, { requestId: 'r' }).toString(),
    ).not.toContain(marker)
  })
})

describe('other answers', () => {
  test('an accepted CONNECT has no header', () => {
    expect(CONNECT_OK.toString()).toBe('HTTP/1.1 200 Connection Established\r\n\r\n')
  })

  test('a fault of the origin is no denial', () => {
    const { statusLine, all, body } = read(
      replyBytes(originFaultReply('http_protocol_error', 'r-2', destination('a.example:80'))),
    )
    expect(statusLine).toBe('HTTP/1.1 502 Bad Gateway')
    expect(all('x-deny-reason')).toEqual([])
    expect(all('proxy-status')).toEqual(['sallyport; error=http_protocol_error'])
    expect(JSON.parse(body)).toMatchObject({
      error: 'http_protocol_error',
      host: 'a.example',
      port: 80,
      request_id: 'r-2',
    })
  })
})
