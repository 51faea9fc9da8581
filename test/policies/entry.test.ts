import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { parseEntry, parseSets, type EntryContext } from '../../policies/index.ts'
import { codeOf, valueOf } from './make.ts'

const FILE: EntryContext = { from: 'file' }
const TOKEN: EntryContext = { from: 'token' }

function hintOf(text: string, context = FILE): string | undefined {
  const entry = parseEntry(text, context)
  return entry.ok ? 'it loads' : entry.fault.hint
}

describe('entries that load', () => {
  it.each([
    ['a range of one port is that port', 'example.com:443-443', 'example.com:443'],
    ['a range of all ports is the star', 'example.com:1-65535', 'example.com:*'],
    ['an IPv4 range with a port', '198.51.100.0/24:443', '198.51.100.0/24:443'],
    ['an IPv6 range with a port', '2001:db8::/32:8000-8100', '2001:db8::/32:8000-8100'],
    ['a range of one address', '198.51.100.7/32', '198.51.100.7/32'],
    ['every IPv4 address', '0.0.0.0/0', '0.0.0.0/0'],
    ['a wildcard below an exception of the Public Suffix List', '*.www.ck', '*.www.ck'],
    ['a wildcard below a name under an unlisted label', '*.corp.internal', '*.corp.internal'],
    ['a wildcard with a trailing dot', '*.example.com.', '*.example.com'],
  ])('%s', (_sentence, text, canonical) => {
    expect(valueOf(parseEntry(text, FILE)).text).toBe(canonical)
    expect(valueOf(parseEntry(canonical, TOKEN)).text).toBe(canonical)
  })
})

describe('entries that are refused', () => {
  it.each([
    ['a bare IPv6 address', '2001:db8::7', 'address', '[2001:db8::7]'],
    ['a bare IPv6 address not in canonical form', '2001:DB8:0::7', 'address', '[2001:db8::7]'],
    ['a mapped address in brackets', '[::ffff:192.0.2.1]:443', 'address', '192.0.2.1:443'],
    ['an IPv4 address in brackets', '[192.0.2.1]', 'address', '192.0.2.1'],
    ['a range in brackets', '[2001:db8::]/32', 'address', '2001:db8::/32'],
    ['an unclosed bracket', '[2001:db8::7', 'address', undefined],
    ['text behind a bracket', '[2001:db8::7]x', 'address', undefined],
    ['a zone id', '[fe80::1%eth0]', 'address', undefined],
    ['a trailing dot behind an address', '203.0.113.7.', 'address', '203.0.113.7'],
    ['an octal octet that resolvers disagree on', '010.0.0.1', 'address', undefined],
    ['an octet that no address has, whose hint once asked for itself forever', '10.0.0.1443', 'address', undefined],
    ['a short address', '127.1', 'address', undefined],
    ['a number above all addresses', '4294967296', 'address', undefined],
    ['a wildcard on an address', '*.0.0.1', 'address', undefined],
    ['a wildcard on a suffix of a wildcard rule', '*.anything.ck', 'wildcard_too_wide', undefined],
    ['a wildcard on the base of a wildcard rule', '*.kawasaki.jp', 'wildcard_too_wide', undefined],
    ['a wildcard on a Unicode suffix', '*.\u516c\u53f8.cn', 'wildcard_too_wide', undefined],
    ['a wildcard on the A-label of that suffix', '*.xn--55qx5d.cn', 'wildcard_too_wide', undefined],
    ['a wildcard on an upper-case suffix', '*.CO.UK', 'wildcard_too_wide', undefined],
    ['a wildcard on a suffix with a trailing dot', '*.com.', 'wildcard_too_wide', undefined],
    ['two stars', '**', 'wildcard_form', undefined],
    ['two stars and a name', '**.example.com', 'wildcard_form', '*.example.com'],
    ['a star behind a dot', '.*.example.com', 'wildcard_form', '*.example.com'],
    ['a full-width star', '\uff0a.example.com', 'character', undefined],
    ['a leading dot on a suffix', '.com', 'leading_dot', undefined],
    [
      'a scheme with credentials, a port and a path',
      'https://user:pw@API.example.com:8443/v1?x#y',
      'scheme',
      'api.example.com:8443',
    ],
    ['a scheme with a name only', 'HTTP://example.com', 'scheme', 'example.com'],
    ['a query', 'example.com?x', 'path', 'example.com'],
    ['a fragment', 'example.com#x', 'path', 'example.com'],
    ['a path behind a port', 'example.com:443/', 'path', 'example.com:443'],
    ['a backslash', 'example.com\\evil.example', 'character', undefined],
    ['a space inside', 'example.com evil.example', 'space', undefined],
    ['a line break', 'example.com\n', 'space', 'example.com'],
    ['a no-break space', '\u00a0example.com', 'space', 'example.com'],
    ['a port list', 'example.com:80,443', 'port', undefined],
    ['two ports', 'example.com:80:443', 'port', undefined],
    ['a port with a sign', 'example.com:+443', 'port', undefined],
    ['port http', 'example.com:http', 'port', 'example.com:80'],
    ['a preset with a port', '@github:443', 'preset', '@github'],
    ['a preset in upper case', '@GitHub', 'preset', undefined],
    ['an at sign alone', '@', 'preset', undefined],
    ['a preset of the machine where none was read', '@npm', 'preset', undefined],
    ['an oversized entry', 'a'.repeat(513), 'length', undefined],
  ])('%s', (_sentence, text, code, hint) => {
    expect(codeOf(parseEntry(text, FILE))).toBe(code)
    expect(hintOf(text)).toBe(hint)
  })

  it.each(['b\u00fccher.example', '*.b\u00fccher.example', 'B\u00dcCHER.example:8443'])(
    '%s in a token, with its A-labels as hint',
    (text) => {
      expect(codeOf(parseEntry(text, TOKEN))).toBe('unicode')
      expect(hintOf(text, TOKEN)).toContain('xn--bcher-kva.example')
    },
  )

  it('a hint always loads, and means itself', () => {
    const piece = fc.constantFrom(
      '*',
      '.',
      'a',
      'example.com',
      ':',
      '443',
      '0443',
      '/',
      '24',
      '[',
      ']',
      '@',
      'https://',
      '::1',
      '10.0.0.1',
      ' ',
      '-',
      'x',
      '\u00fc',
      '#',
    )
    const text = fc.array(piece, { maxLength: 8 }).map((pieces) => pieces.join(''))
    fc.assert(
      fc.property(fc.oneof(text, fc.string({ unit: 'binary' })), fc.constantFrom(FILE, TOKEN), (entry, context) => {
        const parsed = parseEntry(entry, context)
        const right = parsed.ok ? parsed.value.text : parsed.fault.hint
        if (right !== undefined) expect(valueOf(parseEntry(right, context)).text).toBe(right)
        if (!parsed.ok) expect(parsed.fault.message).toMatch(/^[\x20-\x7e\u2026]+$/)
      }),
      { numRuns: 5000 },
    )
  })

  it('a message never repeats credentials', () => {
    for (const text of [
      'user:SECRET@example.com',
      'https://u:SECRET@example.com/x',
      'https://SECRET@',
      'a@SECRET@b.example',
    ]) {
      expect(JSON.stringify(parseEntry(text, FILE))).not.toContain('SECRET')
    }
  })

  it('a message quotes control characters harmlessly and cuts what is long', () => {
    const parsed = parseEntry(`\u001b[31m${'a'.repeat(300)}\u0000`, FILE)
    expect(parsed.ok ? '' : parsed.fault.message).toMatch(/^`\\u001b\[31ma{75}\u2026` is refused/)
  })
})

describe("the operator's own sets", () => {
  it('an entry names them like a shipped one, in files and in tokens', () => {
    const sets = parseSets({
      corp: ['git.corp.example', '*.corp.example:8443', '@pypi'],
      npm: ['registry.corp.example'],
    })
    if (!sets.ok) throw new Error(JSON.stringify(sets.faults))
    for (const from of ['file', 'token'] as const) {
      const entry = valueOf(parseEntry('@corp', { from, sets: sets.value }))
      expect(entry.kind === 'preset' && entry.entries.map(({ text }) => text)).toEqual([
        'git.corp.example',
        '*.corp.example:8443',
        'pypi.org',
        'files.pythonhosted.org',
      ])
      expect(codeOf(parseEntry('@npm', { from, sets: sets.value }))).toBe('ok')
      expect(codeOf(parseEntry('@apt', { from, sets: sets.value }))).toBe('preset')
    }
  })

  it('every fault is named, with its place', () => {
    const sets = parseSets({ github: ['example.com'], 'Bad Name': [], corp: ['*', 'ok.example', '@corp', '*.com'] })
    expect(sets.ok ? [] : sets.faults.map(({ path, code }) => `${path} ${code}`)).toEqual([
      'github preset',
      'Bad Name preset',
      'corp[0] wildcard_too_wide',
      'corp[2] preset',
      'corp[3] wildcard_too_wide',
    ])
  })

  it('a fault in a token does not tell the names of them', () => {
    const sets = parseSets({ secretproject: ['git.corp.example'] })
    if (!sets.ok) throw new Error('the set should load')
    expect(JSON.stringify(parseEntry('@nosuch', { from: 'token', sets: sets.value }))).not.toContain('secretproject')
    expect(JSON.stringify(parseEntry('@nosuch', { from: 'file', sets: sets.value }))).toContain('secretproject')
  })

  it('a name of the object prototype is no set', () => {
    for (const name of ['constructor', '__proto__', 'toString'])
      expect(codeOf(parseEntry(`@${name}`, FILE))).toBe('preset')
  })
})
