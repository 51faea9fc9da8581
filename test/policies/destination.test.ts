import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { authorityText, destinationOf, hostText, parseAuthority } from '../../policies/index.ts'
import { readCases } from './read-cases.ts'

const authorityCase = z.object({
  name: z.string(),
  target: z.string().optional(),
  targetBase64: z.string().optional(),
  host: z.string().optional(),
  port: z.number().optional(),
  reason: z.string().optional(),
  or: z.object({ reason: z.string() }).optional(),
})

function rawOf({ target, targetBase64 }: z.infer<typeof authorityCase>): string {
  const bytes = targetBase64 === undefined ? Buffer.from(target ?? '', 'utf8') : Buffer.from(targetBase64, 'base64')
  return bytes.toString('latin1')
}

describe('handed cases of authority.json', () => {
  it.each(readCases('authority.json', authorityCase).map((item) => [item.name, item] as const))('%s', (_name, item) => {
    const parsed = parseAuthority(rawOf(item))
    const answer = parsed.ok ? { host: hostText(parsed.value), port: parsed.value.port } : { reason: parsed.fault.code }
    const right = item.reason === undefined ? [{ host: item.host, port: item.port }] : [{ reason: item.reason }]
    expect([...right, ...(item.or === undefined ? [] : [item.or])]).toContainEqual(answer)
  })
})

describe('parseAuthority', () => {
  const label = fc.stringMatching(/^[a-z_][a-z0-9_-]{0,20}$/)
  const name = fc
    .array(
      label.filter((text) => !text.startsWith('xn--')),
      { minLength: 1, maxLength: 6 },
    )
    .map((labels) => labels.join('.'))
  const ipv4 = fc.ipV4()
  const ipv6 = fc.ipV6().map((text) => `[${text}]`)
  const port = fc.integer({ min: 1, max: 65_535 })

  it('reads back what it prints as the same', () => {
    fc.assert(
      fc.property(fc.oneof(name, ipv4, ipv6), port, (host, number) => {
        const first = parseAuthority(`${host}:${number}`)
        if (!first.ok) throw new Error(first.fault.message)
        const printed = authorityText(first.value)
        const second = parseAuthority(printed)
        expect(second.ok && authorityText(second.value)).toBe(printed)
        expect(second.ok && second.value.kind).toBe(first.value.kind)
      }),
    )
  })

  it('never throws, and what it takes is canonical and short', () => {
    const bytes = fc.string({ unit: 'binary', maxLength: 300 })
    const spliced = fc
      .tuple(fc.oneof(name, ipv4, ipv6), bytes, port)
      .map(([host, noise, number]) => `${host}${noise}:${number}`)
    fc.assert(
      fc.property(fc.oneof(bytes, spliced), (raw) => {
        const parsed = parseAuthority(raw)
        if (!parsed.ok) {
          expect(parsed.fault.code).toBe('target_malformed')
          return
        }
        expect(hostText(parsed.value)).toMatch(/^[a-z0-9._:-]{1,253}$/)
        expect(hostText(parsed.value)).not.toMatch(/\.$|\.\.|^\./)
      }),
      { numRuns: 2000 },
    )
  })

  it('says nothing of the input in its faults, which may hold credentials', () => {
    for (const raw of [
      'user:SECRET@example.com:443',
      'SECRET%41.example:443',
      'SECRET SECRET:1',
      'SECRET:x',
      'SECRET',
    ]) {
      const parsed = parseAuthority(raw)
      expect(parsed.ok).toBe(false)
      expect(JSON.stringify(parsed)).not.toContain('SECRET')
    }
  })

  it('refuses an oversized target without reading it', () => {
    expect(parseAuthority(`${'a.'.repeat(1_000_000)}:443`).ok).toBe(false)
  })
})

describe('destinationOf', () => {
  it.each([0, -1, 65_536, 1.5, Number.NaN, Number.POSITIVE_INFINITY])('refuses port %s', (port) => {
    expect(destinationOf('example.com', port).ok).toBe(false)
  })

  it('takes an IPv6 address only in brackets', () => {
    expect(destinationOf('2001:db8::1', 443).ok).toBe(false)
    expect(destinationOf('[2001:db8::1]', 443).ok).toBe(true)
  })
})
