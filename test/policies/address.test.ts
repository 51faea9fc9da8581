import { isIP } from 'node:net'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { contains, IpAddress, judgeAddress, parseAddress, parseRange } from '../../policies/index.ts'
import { address, network, valueOf } from './make.ts'
import { readCases } from './read-cases.ts'

const addressCase = z.object({
  name: z.string(),
  address: z.string().optional(),
  answer: z.array(z.string()).optional(),
  malformed: z.literal(true).optional(),
  prohibited: z.boolean().optional(),
  class: z.string().optional(),
  allowPrivate: z.array(z.string()).optional(),
  nat64Prefixes: z.array(z.string()).optional(),
})

describe('handed cases of address.json', () => {
  it.each(readCases('address.json', addressCase).map((item) => [item.name, item] as const))('%s', (_name, item) => {
    if (item.malformed === true) {
      expect(parseAddress(item.address ?? '').ok).toBe(false)
      return
    }
    const { allowPrivate = [], nat64Prefixes = [] } = item
    const rules = network({ allowPrivate, nat64Prefixes })
    const verdicts = (item.answer ?? [item.address ?? '']).map((text) => judgeAddress(address(text), rules))
    expect(verdicts.some(({ prohibited }) => prohibited)).toBe(item.prohibited)
    if (item.class !== undefined) expect(verdicts[0]?.class).toBe(item.class)
  })
})

describe('parseAddress', () => {
  const groups = fc.array(fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 0xffff })), { minLength: 8, maxLength: 8 })

  it('reads back what it prints, for every address', () => {
    const any = fc.oneof(
      fc.ipV4(),
      groups.map((list) => list.map((group) => group.toString(16)).join(':')),
    )
    fc.assert(
      fc.property(any, (text) => {
        const first = address(text)
        const second = address(first.text)
        expect(second.text).toBe(first.text)
        expect(second.bytes).toEqual(first.bytes)
      }),
    )
  })

  it('takes only what the platform takes as an address', () => {
    const piece = fc.constantFrom(
      '0',
      '1',
      'ffff',
      '10',
      '255',
      '256',
      '01',
      ':',
      '::',
      '.',
      '1.2.3.4',
      'g',
      '%',
      '-1',
      'NaN',
      '1e2',
      ' ',
      '/',
      '0x1',
    )
    const noise = fc.array(piece, { maxLength: 14 }).map((pieces) => pieces.join(''))
    fc.assert(
      fc.property(fc.oneof(noise, fc.ipV6(), fc.ipV4()), (text) => {
        const parsed = parseAddress(text)
        expect(parsed.ok ? parsed.value.family : 0).toBe(text.includes('%') ? 0 : isIP(text))
      }),
      { numRuns: 5000 },
    )
  })

  it.each([
    ['the longest run of zeros is compressed', '1:0:0:2:0:0:0:3', '1:0:0:2::3'],
    ['of two runs as long the first is', '1:0:0:2:3:0:0:4', '1::2:3:0:0:4'],
    ['a single zero group is not', '1:0:2:3:4:5:6:7', '1:0:2:3:4:5:6:7'],
    ['a run at the end', '1:2:3:4:5:6:0:0', '1:2:3:4:5:6::'],
    ['a run at the start', '0:0:3:4:5:6:7:8', '::3:4:5:6:7:8'],
    ['a compression of one group is written out', '1::3:4:5:6:7:8', '1:0:3:4:5:6:7:8'],
    ['zeros alone', '0:0:0:0:0:0:0:0', '::'],
    ['a mapped address ends in dots', '::FFFF:7F00:1', '::ffff:127.0.0.1'],
    ['other embedded addresses do not', '64:ff9b::1.2.3.4', '64:ff9b::102:304'],
  ])('%s', (_sentence, text, canonical) => {
    expect(address(text).text).toBe(canonical)
  })

  it.each([
    'NaN.NaN.NaN.NaN',
    'NaN.0.0.1',
    '-1.0.0.1',
    '1e2.0.0.1',
    '+1.0.0.1',
    '1.2.3.4 ',
    '1.2.3.4\n',
    '00.0.0.0',
    '1.2.3.0x4',
    '\u0661.0.0.1',
  ])('refuses %j', (text) => {
    expect(parseAddress(text).ok).toBe(false)
  })

  it.each([
    '::1.2.3.4:5',
    '1.2.3.4::',
    '::1.2.3',
    '::1.2.3.4.5',
    '::01.2.3.4',
    '1:2:3:4:5:6:7:1.2.3.4',
    ':',
    ':1',
    '1:',
    '::1::',
    '1:2:3:4:5:6:7:8::',
    '[::1]',
    '::g',
  ])('refuses %j', (text) => {
    expect(parseAddress(text).ok).toBe(false)
  })

  it('makes addresses that cannot be changed, and only here', () => {
    const parsed = address('192.0.2.1')
    expect(() => Object.assign(parsed, { text: '10.0.0.1' })).toThrow(TypeError)
    expect(() => (parsed.bytes as number[]).fill(10)).toThrow(TypeError)
    expect(IpAddress.isAddress(parsed)).toBe(true)
    expect(IpAddress.isAddress({ family: 4, bytes: parsed.bytes, text: parsed.text, bits: parsed.bits })).toBe(false)
  })
})

describe('parseRange', () => {
  it('prints what it read, and contains exactly the addresses with its prefix', () => {
    const block = fc.tuple(
      fc.oneof(fc.ipV4(), fc.ipV6()).map(address),
      fc.nat(128),
      fc.oneof(fc.ipV4(), fc.ipV6()).map(address),
    )
    fc.assert(
      fc.property(block, ([base, someLength, other]) => {
        const length = someLength % (base.bits.length + 1)
        const parsed = parseRange(`${base.text}/${length}`)
        const text = parsed.ok ? parsed.value.text : parsed.fault.hint
        const range = valueOf(parseRange(text ?? ''))
        expect(range.text).toBe(text)
        const isSameBits = (one: IpAddress): boolean =>
          one.family === range.family &&
          Number(BigInt(`0b${one.bits}0`) >> BigInt(one.bits.length + 1 - range.length)) ===
            Number(BigInt(`0b0${range.bits}`))
        expect(contains(range, other)).toBe(isSameBits(other))
      }),
    )
  })

  it.each([
    ['host bits', '198.51.100.7/24', '198.51.100.0/24'],
    ['host bits in IPv6', '2001:db8::1/32', '2001:db8::/32'],
    ['a padded length', '10.0.0.0/08', '10.0.0.0/8'],
    ['a netmask', '10.0.0.0/255.0.0.0', '10.0.0.0/8'],
    ['upper case', '2001:DB8::/32', '2001:db8::/32'],
    ['a mapped range', '::ffff:10.0.0.0/104', '10.0.0.0/8'],
    ['all mapped addresses', '::ffff:0:0/96', '0.0.0.0/0'],
  ])('refuses %s and says the right form', (_sentence, text, hint) => {
    const parsed = parseRange(text)
    expect(parsed.ok ? 'ok' : parsed.fault.hint).toBe(hint)
  })

  it.each([
    '10.0.0.0',
    '10.0.0.0/',
    '10.0.0.0/33',
    '10.0.0.0/-1',
    '10.0.0.0/1e1',
    '10.0.0.0/8/8',
    '/8',
    '::/129',
    '10/8',
    '10.0.0.0/255.0.255.0',
    '10.0.0.0/ 8',
  ])('refuses %j without one', (text) => {
    const parsed = parseRange(text)
    expect(parsed.ok ? 'ok' : parsed.fault.hint).toBeUndefined()
  })
})
