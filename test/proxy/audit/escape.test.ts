import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { escapeRequested, MAX_FIELD_CHARACTERS, quoteField, redactCredentials } from '../../../proxy/audit/escape.ts'

const JWT = 'eyJhbGciOiJFZERTQSJ9.eyJqdGkiOiJ0b2tfMSJ9.c2lnbmF0dXJlLW9mLWEtdG9rZW4'

/** As a token of ours, under a header that is written in another way. */
const jwt = (header: string) =>
  `${Buffer.from(header).toString('base64url')}.${Buffer.from('{ "jti": "tok_1", "iss": "x" }').toString('base64url')}.c2lnbmF0dXJl`

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
    ['nor is one under an unusual header', `${jwt('{ "alg": "EdDSA" }')}:443`, '[redacted]:443'],
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
    ['a JWT whose header starts with a blank', `t ${jwt('{ "alg": "ES256" }')} r`, 't [redacted] r'],
    ['a JWT whose header starts with a line feed', `t ${jwt('{\n  "alg": "ES256"\n}')} r`, 't [redacted] r'],
    ['a JWT whose header starts with a tab', `t ${jwt('{\t"alg": "ES256"}')} r`, 't [redacted] r'],
    ['a JWT whose header starts with CRLF', `t ${jwt('{\r\n"alg": "ES256"}')} r`, 't [redacted] r'],
    ['a JWT with a blank before its header', `t ${jwt(' {"alg":"ES256"}')} r`, 't [redacted] r'],
    ['a JWT with line feeds before its header', `t ${jwt('\n\n{"alg":"ES256"}')} r`, 't [redacted] r'],
    ['a JWT with a byte order mark', `t ${jwt('\ufeff{ "alg":"ES256"}')} r`, 't [redacted] r'],
    ['a JWT with many blanks', `t ${jwt(`{${' '.repeat(90)}"alg":"ES256"}`)} r`, 't [redacted] r'],
    ['such a JWT with the prefix of a password', `jwt_${jwt('{ "alg":"ES256"}')}`, '[redacted]'],
    ['such a JWT that was cut', jwt('{ "alg": "ES256" }').slice(0, 40), '[redacted]'],
    ['such a JWT as a parameter', `?t=${jwt('{ "alg": "ES256" }')}&x=1`, '?[redacted]&x=1'],
    ['a handle', 'handle sph_ABCDEFGHIJKLMNOPQRSTUVWXYZ012345', 'handle [redacted]'],
    ['a bearer value', 'Proxy-Authorization: Bearer abc.def', 'Proxy-Authorization: Bearer [redacted]'],
    ['a basic value', 'basic dXNlcjpwYXNz', 'basic [redacted]'],
    ['user info of a URL', 'http://user:pass@proxy.example:8080/x', 'http://[redacted]@proxy.example:8080/x'],
    ['a preset is none', '@github', '@github'],
    ['an address with a sandbox name is none', 'agent@example.com', 'agent@example.com'],
    ['a host is none', 'basicauth.example.com', 'basicauth.example.com'],
    ...[
      'eyes-and-ears-of-the-world.example.com:443',
      'ewok-village-production.eu-west-1.example.com',
      'example-application-server.internal.example.com',
      'Customer-Data-Platform.Internal-Services.example.com',
      'e3b0c44298fc1c149afbf4c8996fb924.cdn.example.com',
      '7f8a9b0c1d2e3f4a5b6c7d8e9f0a1b2c.example.com',
      'Institution-Directory-Index.example.com',
    ].map((host) => ['a long host is none', host, host]),
  ])('%s', (_name, text, expected) => {
    expect(redactCredentials(text)).toBe(expected)
  })

  it('costs time linear in the text, whatever it holds', () => {
    const hostile = [
      'eyJ',
      'sph_',
      ':@',
      'basic ',
      'basic\t',
      '@:',
      'eyJ.',
      'eyAgICAgICAgICAgICAg.',
      ' ',
      ':',
      'a@',
    ].map((piece) => piece.repeat(2_000_000 / piece.length))
    for (const text of hostile) {
      // The best of five: a busy machine makes any one of them slow, a quadratic pattern all of them.
      const times = Array.from({ length: 5 }, () => {
        const before = performance.now()
        quoteField(text)
        escapeRequested(text)
        return performance.now() - before
      })
      expect(Math.min(...times)).toBeLessThan(50)
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
