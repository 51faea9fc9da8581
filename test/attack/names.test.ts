/** Attacks by spelling: a name that is refused in one spelling is refused in all, and none passes for an allowed one. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { decideName, parseAuthority } from '../../policies/index.ts'
import { allowing, layers, network, operatorDenies, policy } from '../policies/make.ts'

const GRANTED = layers(
  ['ceiling', policy({ kind: 'allow-all' })],
  ['claim', allowing(['allowed.example', '*.allowed.example'])],
)
const DENIED = layers(
  operatorDenies('evil.example', '*.evil.example'),
  ['ceiling', policy({ kind: 'allow-all' })],
  ['claim', policy({ kind: 'allow-all' })],
)

function outcome(bytes: string, which: typeof GRANTED): string {
  const target = parseAuthority(Buffer.from(bytes, 'utf8').toString('latin1'))
  if (!target.ok) return target.fault.code
  const verdict = decideName(which, target.value, network())
  return verdict.effective === 'deny' ? verdict.reason : 'allowed'
}

describe('a name that is not granted does not pass for one that is', () => {
  it.each([
    'evil.example:443',
    'notallowed.example:443',
    'allowed.example.evil.example:443',
    'xallowed.example:443',
    'allowed-example:443',
    'allowed.exampl:443',
    'allowed.example0:443',
    'llowed.example:443',
    'evil.example#.allowed.example:443',
    'evil.example?.allowed.example:443',
    'evil.example/.allowed.example:443',
    'evil.example\\.allowed.example:443',
    'evil.example\u0000.allowed.example:443',
    'evil.example%00.allowed.example:443',
    'evil.example\n.allowed.example:443',
    'evil.example\t.allowed.example:443',
    'evil.example .allowed.example:443',
    'evil.example;.allowed.example:443',
    'evil.example,allowed.example:443',
    'evil.example:443@allowed.example:443',
    'evil.example:443:allowed.example:443',
    'allowed.example@evil.example:443',
    'allowed.example:pw@evil.example:443',
    'allowed.example:443@evil.example:443',
    'allowed.example:443#@evil.example:443',
    'allowed.example%40evil.example:443',
    'allowed.example:443/@evil.example:443',
    '[evil.example].allowed.example:443',
    '[::1].allowed.example:443',
    '[::1%25.allowed.example]:443',
    '[fe80::1%allowed.example]:443',
    '127.0.0.1%.allowed.example:443',
    '*.allowed.example:443',
    '.allowed.example:443',
    'evil..allowed.example:443',
    '127.0.0.1.allowed.example.:8443',
    'allowed.example:8443',
    'allowed.example:4430',
    'allowed.example:0443',
    'allowed.example:443 ',
    ' allowed.example:443',
    'allowed.example :443',
    'allowed.example: 443',
    'allowed.example:0x1bb',
    'allowed.example:443.0',
    'allowed.example:4.43e2',
    'allowed.example:\u0664\u0664\u0663',
    'allowed\u3002example:443',
    'allowed\uff0eexample:443',
    'allowed.\u212aexample:443',
    '\u0430llowed.example:443',
    'xn--llowed-4nf.example:443',
    'al\u00adlowed.example:443',
    'allowed.example\u200d:443',
    '\ufeffallowed.example:443',
    'http://allowed.example:443',
    '//allowed.example:443',
    'allowed.example:443, evil.example:443',
    "allowed.example':443",
    'allowed.example"@evil.example:443',
  ])('%j', (bytes) => {
    expect(outcome(bytes, GRANTED)).not.toBe('allowed')
  })

  it.each(['allowed.example:443', 'ALLOWED.Example.:443', 'a.b.allowed.example:80', '127.0.0.1.allowed.example:443'])(
    'while %j, which is, does',
    (bytes) => {
      expect(outcome(bytes, GRANTED)).toBe('allowed')
    },
  )

  it('and no bytes around, between or instead make another name pass', () => {
    const noise = fc
      .array(
        fc.oneof(
          fc.constantFrom(
            '.',
            ':',
            '@',
            '/',
            '\\',
            '#',
            '?',
            '%',
            '[',
            ']',
            '*',
            '\u0000',
            '\r',
            '\n',
            ' ',
            '443',
            'allowed.example',
            'evil.example',
            '-',
            '_',
          ),
          fc.string({ unit: 'binary', maxLength: 2 }),
        ),
        { maxLength: 6 },
      )
      .map((pieces) => pieces.join(''))
    fc.assert(
      fc.property(noise, noise, noise, (before, between, behind) => {
        const bytes = `${before}allowed.example${between}:443${behind}`
        if (outcome(bytes, GRANTED) !== 'allowed') return
        expect(bytes.toLowerCase()).toMatch(/^([a-z0-9_-]+\.)*allowed\.example\.?:(443|80)$/)
      }),
      { numRuns: 5000 },
    )
  })
})

describe('a name that is denied is denied in every spelling that means it', () => {
  it.each([
    ['evil.example:443', 'host_denied'],
    ['EVIL.example:443', 'host_denied'],
    ['evil.EXAMPLE.:443', 'host_denied'],
    ['evil.example:22', 'host_denied'],
    ['evil.example:65535', 'host_denied'],
    ['a.evil.example:443', 'host_denied'],
    ['A.B.Evil.Example.:8443', 'host_denied'],
    ['evil.example..:443', 'target_malformed'],
    ['evil%2eexample:443', 'target_malformed'],
    ['%65vil.example:443', 'target_malformed'],
    ['evil\u3002example:443', 'target_malformed'],
    ['evil\uff61example:443', 'target_malformed'],
    ['\uff45vil.example:443', 'target_malformed'],
    ['ev\u0131l.example:443', 'target_malformed'],
    ['e\u00advil.example:443', 'target_malformed'],
    ['xn--evil-.example:443', 'target_malformed'],
    ['[evil.example]:443', 'target_malformed'],
    ['evil.example\u0000:443', 'target_malformed'],
    ['user@evil.example:443', 'target_malformed'],
    ['evil.example:443/', 'target_malformed'],
  ])('%j', (bytes, reason) => {
    expect(outcome(bytes, DENIED)).toBe(reason)
  })
})

describe('an address in a spelling that a resolver would read is never a name', () => {
  const radix = fc.constantFrom<(value: number) => string>(
    (value) => String(value),
    (value) => `0x${value.toString(16)}`,
    (value) => `0X${value.toString(16).toUpperCase()}`,
    (value) => `0${value.toString(8)}`,
    (value) => `000${value.toString(8)}`,
  )
  const octet = fc.nat(255)

  it('in one, two, three or four parts of any base', () => {
    fc.assert(
      fc.property(
        octet,
        octet,
        octet,
        octet,
        fc.tuple(radix, radix, radix, radix),
        fc.constantFrom(1, 2, 3, 4),
        fc.constantFrom('', '.'),
        (a, b, c, d, print, count, dot) => {
          const values =
            [[((a * 256 + b) * 256 + c) * 256 + d], [a, (b * 256 + c) * 256 + d], [a, b, c * 256 + d], [a, b, c, d]][
              count - 1
            ] ?? []
          const text = values.map((value, index) => print[index]?.(value) ?? '').join('.') + dot
          const target = parseAuthority(`${text}:443`)
          if (target.ok)
            expect(target.value).toMatchObject({ kind: 'address', address: { text: `${a}.${b}.${c}.${d}` } })
          if (target.ok) expect(text).toBe(`${a}.${b}.${c}.${d}`)
        },
      ),
      { numRuns: 3000 },
    )
  })

  it.each([
    '0:80',
    '1:80',
    '127.1:80',
    '127.0.1:80',
    '0x7f.1:80',
    '0177.1:80',
    '017700000001:80',
    '0x7f000001:80',
    '2130706433:80',
    '127.0.0.0x1:80',
    '127.0.0.01:80',
    'a.0x7f000001:80',
    'x.1:80',
    '1.1.1.1.1:80',
    '256.256.256.256:80',
    '0x.0x.0:80',
    '0xg:80',
  ])('%s', (bytes) => {
    expect(parseAuthority(bytes).ok).toBe(false)
  })
})
