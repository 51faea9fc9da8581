import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { escapeRequested, MAX_FIELD_CHARACTERS, quoteField, redactCredentials } from '../../../proxy/audit/escape.ts'

const JWT = 'eyJhbGciOiJFZERTQSJ9.eyJqdGkiOiJ0b2tfMSJ9.c2lnbmF0dXJlLW9mLWEtdG9rZW4'

describe('the requested target', () => {
  it.each([
    ['printable ASCII stays', 'api.example.com:443', 'api.example.com:443'],
    ['a control byte is shown as hex', 'a\x00b\r\nc', String.raw`a\x00b\x0d\x0ac`],
    ['a terminal sequence is disarmed', '\x1b[31mred', String.raw`\x1b[31mred`],
    ['a C1 control is shown as hex', 'a\x9bb', String.raw`a\x9bb`],
    ['a latin1 byte is shown as hex', 'caf\xe9:1', String.raw`caf\xe9:1`],
    ['a backslash is doubled, so that an escape can not be faked', String.raw`a\x00`, String.raw`a\\x00`],
    ['user info is not written down', 'user:secret@example.com:443', '[redacted]@example.com:443'],
    ['a token as a host is not written down', `${JWT}:443`, '[redacted]:443'],
    ['the empty target stays empty', '', ''],
  ])('%s', (_name, raw, expected) => {
    expect(escapeRequested(raw)).toBe(expected)
  })

  it('is cut at the longest length with a mark that nothing else makes', () => {
    const cut = escapeRequested('a'.repeat(100_000))
    expect(cut).toHaveLength(MAX_FIELD_CHARACTERS)
    expect(cut.endsWith(String.raw`a\...`)).toBe(true)
    expect(escapeRequested('a'.repeat(MAX_FIELD_CHARACTERS))).toBe('a'.repeat(MAX_FIELD_CHARACTERS))
  })

  it('never cuts an escape in two', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 255 }), { minLength: 200, maxLength: 900 }), (codes) => {
        const escaped = escapeRequested(String.fromCharCode(...codes))
        expect(escaped.length).toBeLessThanOrEqual(MAX_FIELD_CHARACTERS)
        expect(escaped).toMatch(/^(?:[ -[\]-~]|\\\\|\\x[0-9a-f]{2})*(?:\\\.\.\.)?$/)
      }),
    )
  })
})

describe('credentials in a text', () => {
  it.each([
    ['a JWT', `token ${JWT} refused`, 'token [redacted] refused'],
    ['a JWT with the prefix of a password', `jwt_${JWT}`, 'jwt_[redacted]'],
    ['a JWT that was cut', JWT.slice(0, 60), '[redacted]'],
    ['a handle', 'handle sph_ABCDEFGHIJKLMNOPQRSTUVWXYZ012345', 'handle [redacted]'],
    ['a bearer value', 'Proxy-Authorization: Bearer abc.def', 'Proxy-Authorization: Bearer [redacted]'],
    ['a basic value', 'basic dXNlcjpwYXNz', 'basic [redacted]'],
    ['user info of a URL', 'http://user:pass@proxy.example:8080/x', 'http://[redacted]@proxy.example:8080/x'],
    ['a preset is none', '@github', '@github'],
    ['an address with a sandbox name is none', 'agent@example.com', 'agent@example.com'],
    ['a host is none', 'basicauth.example.com', 'basicauth.example.com'],
  ])('%s', (_name, text, expected) => {
    expect(redactCredentials(text)).toBe(expected)
  })

  it('costs time linear in the text, whatever it holds', () => {
    const hostile = ['eyJ', 'sph_', ':@', 'basic ', 'basic\t', '@:', 'eyJ.', ' ', ':', 'a@'].map((piece) =>
      piece.repeat(2_000_000 / piece.length),
    )
    for (const text of hostile) {
      // The best of five: a busy machine makes any one of them slow, a quadratic pattern all of them.
      const times = Array.from({ length: 5 }, () => {
        const before = performance.now()
        quoteField(text)
        escapeRequested(text)
        return performance.now() - before
      })
      expect(Math.min(...times)).toBeLessThan(5)
    }
  })
})

describe('a text in a line', () => {
  it('reads back as it was, and is printable ASCII', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 100 }), (text) => {
        const quoted = quoteField(text)
        expect(quoted).toMatch(/^"[ -~]*"$/)
        expect(JSON.parse(quoted)).toBe(redactCredentials(text))
      }),
      { numRuns: 2000 },
    )
  })

  it('is bounded', () => {
    expect((JSON.parse(quoteField('\u{1F512}'.repeat(50_000))) as string).length).toBeLessThanOrEqual(
      MAX_FIELD_CHARACTERS,
    )
  })
})
