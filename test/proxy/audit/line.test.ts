import { Ajv2020 } from 'ajv/dist/2020.js'
import fc from 'fast-check'
import { readFileSync } from 'node:fs'
import { describe, expect, expectTypeOf, it } from 'vitest'
import type { LogEntry } from '../../../proxy/audit/line.ts'
import type { AdminEntry, AuditEntry, AuthEntry, CloseEntry, DecisionEntry } from '../../../proxy/audit/record.ts'
import { auditJsonSchema, type AuditLine } from '../../../proxy/audit/schema.ts'
import { chainLine, GENESIS } from '../../../proxy/audit/chain.ts'
import { formatEntry } from '../../../proxy/audit/line.ts'
import { decision } from './support.ts'

const published = JSON.parse(
  readFileSync(new URL('../../../schemas/audit.schema.json', import.meta.url), 'utf8'),
) as object
const isLine = new Ajv2020({ strict: true, validateFormats: false }).compile(published)

function print(entry: LogEntry): string {
  return chainLine(formatEntry(entry, 1, 0, '"gw"'), GENESIS.head)
}

const close: CloseEntry = {
  kind: 'close',
  close_reason: 'client_closed',
  bytes_in: 1,
  bytes_out: 2,
  duration_ms: 3.25,
  sni: 'api.example.com',
  policy_version: 'v1',
  request_id: 'req_1',
}
const auth: AuthEntry = {
  kind: 'auth',
  decision: 'deny',
  effective: 'deny',
  reason: 'token_expired',
  token_id: 'tok_1',
  client: '127.0.0.1:1',
}
const admin: AdminEntry = { kind: 'admin', action: 'reload', detail: 'by signal', policy_version: 'v2' }

describe('the published schema', () => {
  it('is current: `node scripts/write-audit-schema.ts` makes it', () => {
    expect(published).toEqual(JSON.parse(JSON.stringify(auditJsonSchema())))
  })

  it('holds for a line of every kind', () => {
    for (const entry of [
      decision(),
      decision({ decision: 'deny', effective: 'deny', reason: 'host_not_allowed', layer: 'claim' }),
      close,
      auth,
      admin,
    ]) {
      const line: unknown = JSON.parse(print(entry))
      expect(isLine(line), JSON.stringify(isLine.errors)).toBe(true)
    }
  })

  it.each([
    ['an unknown field', { extra: 1 }],
    ['a reason that is none', { reason: 'because' }],
    ['a hash that is none', { prev: 'abc' }],
    ['a port that is none', { port: 70_000 }],
  ])('refuses %s', (_name, change) => {
    const line = JSON.parse(print(decision())) as object
    expect(isLine({ ...line, ...change })).toBe(false)
  })

  it('has the fields of the entries', () => {
    type Own<Kind extends AuditEntry['kind']> = Omit<
      Extract<AuditLine, { kind: Kind }>,
      'seq' | 'time' | 'instance' | 'prev'
    >
    expectTypeOf<keyof Own<'decision'>>().toEqualTypeOf<keyof DecisionEntry>()
    expectTypeOf<keyof Own<'close'>>().toEqualTypeOf<keyof CloseEntry>()
    expectTypeOf<keyof Own<'auth'>>().toEqualTypeOf<keyof AuthEntry>()
    expectTypeOf<keyof AdminEntry>().toExtend<keyof Own<'admin'>>()
  })
})

describe('a line', () => {
  it('has its fields in one order, whatever the order of the entry', () => {
    const entries = Object.entries(decision()).reverse()
    expect(print(Object.fromEntries(entries) as unknown as DecisionEntry)).toBe(print(decision()))
    expect(Object.keys(JSON.parse(print(decision())) as object)).toEqual(
      (
        'seq time instance kind request_id decision effective rule policy_version tenant sandbox token_id issuer key_id dialect requested host port ' +
        'resolved dialled client dns_ms connect_ms prev'
      ).split(' '),
    )
  })

  it('has no room for a field that entries do not have', () => {
    const sneaky = { ...decision(), authorization: 'Bearer MARKER', token: 'MARKER', headers: { a: 'MARKER' } }
    expect(print(sneaky)).not.toContain('MARKER')
  })

  it('holds no credential, whichever field it was put into', () => {
    const secrets = [
      'eyJhbGciOiJFZERTQSJ9.eyJNQVJLRVIiOjF9.TUFSS0VS-MARKER',
      'sph_MARKERMARKERMARKERMARKERMARKER12',
      'Bearer MARKER',
      'Basic MARKER',
      'user:MARKER@host',
    ]
    for (const secret of secrets) {
      for (const entry of [decision(), close, auth, admin]) {
        const stuffed = Object.fromEntries(
          Object.entries(entry).map(([name, value]) => [
            name,
            name !== 'kind' && typeof value === 'string' ? secret : Array.isArray(value) ? [secret] : value,
          ]),
        )
        const line = print(stuffed as unknown as AuditEntry)
        expect(line).not.toContain('MARKER')
        expect(line).toContain('[redacted]')
      }
    }
  })

  it('is one line of printable ASCII that JSON reads, whatever its texts and numbers', () => {
    const text = fc.oneof(
      fc.string({ unit: 'binary', maxLength: 40 }),
      fc.constantFrom('\n', '\u2028', '"}\n{"seq":9', '\x1b]0;x\x07', '\ud800', ',"prev":"', ',"signature":"'),
    )
    const number = fc.oneof(fc.double(), fc.constantFrom(NaN, Infinity, -1, 2 ** 60))
    fc.assert(
      fc.property(
        fc.record({
          rule: text,
          tenant: text,
          sandbox: text,
          requested: text,
          host: text,
          client: text,
          dialled: text,
          resolved: fc.array(text, { maxLength: 40 }),
        }),
        number,
        (texts, amount) => {
          for (const entry of [
            decision({ ...texts, dns_ms: amount, port: 443 }),
            { ...close, sni: texts.host, tenant: texts.tenant, bytes_in: amount, duration_ms: amount },
            { ...admin, detail: texts.rule },
          ]) {
            const line = print(entry)
            expect(line).toMatch(/^\{[ -~]*\}\n$/)
            const value: unknown = JSON.parse(line)
            if (entry.kind !== 'close' || Number.isInteger(amount))
              expect(isLine(value), JSON.stringify(isLine.errors)).toBe(true)
          }
        },
      ),
      { numRuns: 500 },
    )
  })
})
