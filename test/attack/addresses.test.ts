/** Attacks by address: whatever leads to a special-purpose address is refused, in every form that can carry one. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { decideAddresses, decideName, decideUnresolved, parseAuthority } from '../../policies/index.ts'
import { address, destination, layers, network, policy } from '../policies/make.ts'

const OPEN = layers(['ceiling', policy({ kind: 'allow-all' })], ['claim', policy({ kind: 'allow-all' })])
const RULES = network({
  nat64Prefixes: ['2a00:1::/32', '2a00:2:64::/48', '2a00:3:64:100::/56', '2a00:4:64:1::/64', '2a00:5:64::/96'],
})
const RULES_40 = network({ nat64Prefixes: ['2a00:6:100::/40'] })

type Octets = readonly [number, number, number, number]

/** One IPv4 address of each special-purpose block, at its start, its end and somewhere inside. */
const special = fc
  .tuple(
    fc.constantFrom<readonly [base: string, length: number]>(
      ['0.0.0.0', 8],
      ['10.0.0.0', 8],
      ['100.64.0.0', 10],
      ['127.0.0.0', 8],
      ['169.254.0.0', 16],
      ['172.16.0.0', 12],
      ['192.0.0.0', 24],
      ['192.0.2.0', 24],
      ['192.31.196.0', 24],
      ['192.52.193.0', 24],
      ['192.88.99.0', 24],
      ['192.168.0.0', 16],
      ['192.175.48.0', 24],
      ['198.18.0.0', 15],
      ['198.51.100.0', 24],
      ['203.0.113.0', 24],
      ['224.0.0.0', 4],
      ['240.0.0.0', 4],
      ['169.254.169.254', 32],
      ['100.100.100.200', 32],
      ['168.63.129.16', 32],
      ['192.0.0.192', 32],
    ),
    fc.oneof(fc.constant(0), fc.constant(0xffff_ffff), fc.nat(0xffff_ffff)),
  )
  .map(([[base, length], noise]): Octets => {
    const host = length === 32 ? 0 : (noise & (0xffff_ffff >>> length)) >>> 0
    const value = (base.split('.').reduce((sum, octet) => sum * 256 + Number(octet), 0) + host) >>> 0
    return [value >>> 24, (value >>> 16) & 0xff, (value >>> 8) & 0xff, value & 0xff]
  })

const open = fc.constantFrom<Octets>(
  [8, 8, 8, 8],
  [1, 1, 1, 1],
  [93, 184, 216, 34],
  [168, 63, 129, 17],
  [223, 255, 255, 255],
  [9, 255, 255, 255],
)

/** Sixteen octets with the four at their places; `noise` fills what the form leaves free. */
function form(prefix: readonly number[], places: Octets, mask = 0): (octets: Octets, noise: number) => string {
  return (octets, noise) => {
    const bytes = Array.from({ length: 16 }, (_unused, index) => prefix[index] ?? noise)
    places.forEach((place, index) => (bytes[place] = (octets[index] ?? 0) ^ mask))
    return groups(bytes)
  }
}

function groups(bytes: readonly number[]): string {
  return Array.from({ length: 8 }, (_unused, index) =>
    (((bytes[2 * index] ?? 0) << 8) | (bytes[2 * index + 1] ?? 0)).toString(16),
  ).join(':')
}

const ZEROS = Array<number>(12).fill(0)
const WELL_KNOWN = [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0]
const LAST: Octets = [12, 13, 14, 15]

const FORMS: Readonly<Record<string, (octets: Octets, noise: number) => string>> = {
  'the address itself': (octets) => octets.join('.'),
  'IPv4-mapped in dots': (octets) => `::ffff:${octets.join('.')}`,
  'IPv4-mapped in dots, in full': (octets) => `0000:0000:0000:0000:0000:FFFF:${octets.join('.')}`,
  'IPv4-mapped in groups': form([...Array<number>(10).fill(0), 0xff, 0xff], LAST),
  'IPv4-compatible in dots': (octets) => `::${octets.join('.')}`,
  'IPv4-compatible in groups': form(ZEROS, LAST),
  NAT64: form(WELL_KNOWN, LAST),
  'NAT64 in dots': (octets) => `64:ff9b::${octets.join('.')}`,
  'the local NAT64 prefix': form([0, 0x64, 0xff, 0x9b, 0, 1, 0, 0, 0, 0, 0, 0], LAST),
  '6to4': form([0x20, 0x02], [2, 3, 4, 5]),
  'a Teredo client': form([0x20, 0x01, 0, 0, 8, 8, 8, 8], LAST, 0xff),
  'a Teredo server': form([0x20, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xf7, 0xf7, 0xf7, 0xf7], [4, 5, 6, 7]),
  ISATAP: form([0x26, 0x06, 0x47, 0, 0, 0, 0, 0, 0, 0, 0x5e, 0xfe], LAST),
  'ISATAP with the universal bit': form([0x26, 0x06, 0x47, 0, 0, 0, 0, 0, 2, 0, 0x5e, 0xfe], LAST),
  'an operator prefix of 32 bits': form([0x2a, 0, 0, 1], [4, 5, 6, 7]),
  'an operator prefix of 48 bits': form([0x2a, 0, 0, 2, 0, 0x64], [6, 7, 9, 10]),
  'an operator prefix of 56 bits': form([0x2a, 0, 0, 3, 0, 0x64, 1], [7, 9, 10, 11]),
  'an operator prefix of 64 bits': form([0x2a, 0, 0, 4, 0, 0x64, 0, 1], [9, 10, 11, 12]),
  'an operator prefix of 96 bits': form([0x2a, 0, 0, 5, 0, 0x64, 0, 0, 0, 0, 0, 0], LAST),
}

/** RFC 6052 lets no octet but the prefix, the address and zeros stand; an attacker may put anything in their place. */
const noise = fc.constantFrom(0, 0, 1, 0x7f, 0xff)

function literalReason(text: string, rules = RULES): string {
  const target = parseAuthority(text.includes(':') ? `[${text}]:443` : `${text}:443`)
  if (!target.ok) return 'malformed'
  const verdicts = [
    decideName(OPEN, target.value, rules),
    decideAddresses(
      OPEN,
      target.value,
      [target.value.kind === 'address' ? target.value.address : address('8.8.8.8')],
      rules,
    ),
    decideUnresolved(OPEN, target.value, rules),
  ]
  const reasons = new Set(verdicts.map((verdict) => (verdict.effective === 'deny' ? verdict.reason : 'allowed')))
  return [...reasons].join(' or ')
}

describe.each(Object.keys(FORMS).map((name) => [name, FORMS[name]] as const))('%s', (_name, write = () => '') => {
  it('of a special-purpose address is refused, as a literal and in an answer', () => {
    fc.assert(
      fc.property(special, noise, fc.boolean(), (octets, filler, isFirst) => {
        const text = write(octets, filler)
        expect(literalReason(text)).toBe('address_prohibited')
        const answer = isFirst ? [address(text), address('8.8.8.8')] : [address('8.8.8.8'), address(text)]
        const verdict = decideAddresses(OPEN, destination('rebind.example:443'), answer, RULES)
        expect(verdict).toMatchObject({ effective: 'deny', reason: 'address_prohibited' })
      }),
      { numRuns: 300 },
    )
  })

  it('of a public address is let through, so that the test above can fail', () => {
    fc.assert(
      fc.property(open, (octets) => {
        expect(literalReason(write(octets, 0))).toBe('allowed')
      }),
    )
  })
})

describe('an operator prefix of 40 bits', () => {
  const write = form([0x2a, 0, 0, 6, 1], [5, 6, 7, 9])

  it('is judged by what it embeds', () => {
    fc.assert(
      fc.property(special, noise, (octets, filler) => {
        expect(literalReason(write(octets, filler), RULES_40)).toBe('address_prohibited')
      }),
    )
    fc.assert(
      fc.property(open, (octets) => {
        expect(literalReason(write(octets, 0), RULES_40)).toBe('allowed')
      }),
    )
  })
})

describe('the local NAT64 prefix, whose layout is not known', () => {
  it.each<readonly [number, Octets]>([
    [48, [6, 7, 9, 10]],
    [56, [7, 9, 10, 11]],
    [64, [9, 10, 11, 12]],
    [96, LAST],
  ])('does not carry a special-purpose address in the layout of %i bits', (_length, places) => {
    const write = form([0, 0x64, 0xff, 0x9b, 0, 1], places)
    const routed = special.filter(([first]) => first !== 0)
    fc.assert(
      fc.property(routed, fc.constantFrom(1, 8, 99), (octets, filler) => {
        expect(literalReason(write(octets, filler))).toBe('address_prohibited')
      }),
    )
  })
})

describe('IPv6', () => {
  it('outside 2000::/3 nothing passes that embeds no IPv4 address', () => {
    const first = fc.nat(0xffff).filter((group) => group >> 13 !== 1 && group !== 0 && group !== 0x64)
    fc.assert(
      fc.property(first, fc.array(fc.nat(0xffff), { minLength: 7, maxLength: 7 }), (group, rest) => {
        expect(literalReason([group, ...rest].map((part) => part.toString(16)).join(':'))).toBe('address_prohibited')
      }),
    )
  })

  it.each([
    '::',
    '::1',
    '0:0:0:0:0:0:0:1',
    '0000::0001',
    '::0.0.0.1',
    '::0.0.0.0',
    '::ffff:0:0',
    'fe80::1',
    'fd00:ec2::254',
    'FD00:0EC2:0:0:0:0:0:254',
    'ff02::1',
    '64:ff9b:1::',
    '2002::',
    '2001::',
  ])('%s is refused', (text) => {
    expect(literalReason(text)).toBe('address_prohibited')
  })

  it.each([
    'fe80::1%eth0',
    '::1%',
    '::1%25lo',
    '::ffff:127.0.0.1%1',
    '::1/128',
    '[::1]',
    '::1]',
    '1::2::3',
    '::ffff:127.1',
    '::ffff:0x7f.0.0.1',
    '::ffff:127.0.0.01',
    '00001::',
  ])('%s is no address', (text) => {
    expect(literalReason(text)).toBe('malformed')
  })
})
