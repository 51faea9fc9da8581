import { describe, expect, it } from 'vitest'
import { judgeAddress, judgeEndpoint, parseNetworkRules, type OwnListener } from '../../policies/index.ts'
import { address, network } from './make.ts'

/** Every row of the IANA registries (edition of October 2025): first and last address, and the neighbours if public. */
const REGISTRY: readonly (readonly [block: string, first: string, last: string, ...neighbours: string[]])[] = [
  ['0.0.0.0/8', '0.0.0.0', '0.255.255.255', '1.0.0.0'],
  ['10.0.0.0/8', '10.0.0.0', '10.255.255.255', '9.255.255.255', '11.0.0.0'],
  ['100.64.0.0/10', '100.64.0.0', '100.127.255.255', '100.63.255.255', '100.128.0.0'],
  ['127.0.0.0/8', '127.0.0.0', '127.255.255.255', '126.255.255.255', '128.0.0.0'],
  ['169.254.0.0/16', '169.254.0.0', '169.254.255.255', '169.253.255.255', '169.255.0.0'],
  ['172.16.0.0/12', '172.16.0.0', '172.31.255.255', '172.15.255.255', '172.32.0.0'],
  ['192.0.0.0/24', '192.0.0.0', '192.0.0.255', '191.255.255.255', '192.0.1.0'],
  ['192.0.0.0/29', '192.0.0.0', '192.0.0.7'],
  ['192.0.0.8/32', '192.0.0.8', '192.0.0.8'],
  ['192.0.0.9/32', '192.0.0.9', '192.0.0.9'],
  ['192.0.0.10/32', '192.0.0.10', '192.0.0.10'],
  ['192.0.0.170/32', '192.0.0.170', '192.0.0.171'],
  ['192.0.2.0/24', '192.0.2.0', '192.0.2.255', '192.0.1.255', '192.0.3.0'],
  ['192.31.196.0/24', '192.31.196.0', '192.31.196.255', '192.31.195.255', '192.31.197.0'],
  ['192.52.193.0/24', '192.52.193.0', '192.52.193.255', '192.52.192.255', '192.52.194.0'],
  ['192.88.99.0/24', '192.88.99.0', '192.88.99.255', '192.88.98.255', '192.88.100.0'],
  ['192.168.0.0/16', '192.168.0.0', '192.168.255.255', '192.167.255.255', '192.169.0.0'],
  ['192.175.48.0/24', '192.175.48.0', '192.175.48.255', '192.175.47.255', '192.175.49.0'],
  ['198.18.0.0/15', '198.18.0.0', '198.19.255.255', '198.17.255.255', '198.20.0.0'],
  ['198.51.100.0/24', '198.51.100.0', '198.51.100.255', '198.51.99.255', '198.51.101.0'],
  ['203.0.113.0/24', '203.0.113.0', '203.0.113.255', '203.0.112.255', '203.0.114.0'],
  ['224.0.0.0/4', '224.0.0.0', '239.255.255.255', '223.255.255.255'],
  ['240.0.0.0/4', '240.0.0.0', '255.255.255.255'],
  ['::/128', '::', '::'],
  ['::1/128', '::1', '::1'],
  ['100::/64', '100::', '100::ffff:ffff:ffff:ffff'],
  ['100:0:0:1::/64', '100:0:0:1::', '100::1:ffff:ffff:ffff:ffff'],
  ['2001:1::1/128', '2001:1::1', '2001:1::3'],
  ['2001:2::/48', '2001:2::', '2001:2:0:ffff:ffff:ffff:ffff:ffff'],
  ['2001:3::/32', '2001:3::', '2001:3:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['2001:4:112::/48', '2001:4:112::', '2001:4:112:ffff:ffff:ffff:ffff:ffff'],
  ['2001:10::/28', '2001:10::', '2001:1f:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['2001:20::/28', '2001:20::', '2001:2f:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['2001:30::/28', '2001:30::', '2001:3f:ffff:ffff:ffff:ffff:ffff:ffff'],
  [
    '2001::/23',
    '2001:1::',
    '2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff',
    '2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff',
    '2001:200::',
  ],
  [
    '2001:db8::/32',
    '2001:db8::',
    '2001:db8:ffff:ffff:ffff:ffff:ffff:ffff',
    '2001:db7:ffff:ffff:ffff:ffff:ffff:ffff',
    '2001:db9::',
  ],
  [
    '2620:4f:8000::/48',
    '2620:4f:8000::',
    '2620:4f:8000:ffff:ffff:ffff:ffff:ffff',
    '2620:4f:7fff:ffff:ffff:ffff:ffff:ffff',
    '2620:4f:8001::',
  ],
  [
    '3fff::/20',
    '3fff::',
    '3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff',
    '3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff',
    '3fff:1000::',
  ],
  ['5f00::/16', '5f00::', '5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['fc00::/7', 'fc00::', 'fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['fe80::/10', 'fe80::', 'febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['fec0::/10', 'fec0::', 'feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['ff00::/8', 'ff00::', 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['outside 2000::/3, below', '1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', '1fff::', '2000::'],
  ['outside 2000::/3, above', '4000::', '5eff::', '3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['64:ff9b:2::/48, beside the NAT64 prefixes', '64:ff9b:2::808:808', '64:ff9b:2::1'],
  ['between ::/96 and mapped', '::1:0:0:1', '::fffe:808:808'],
]

const METADATA = [
  '169.254.169.254',
  '100.100.100.200',
  '168.63.129.16',
  '192.0.0.192',
  'fd00:ec2::254',
  'fd20:ce::254',
  'fd00:42::42',
]

function isProhibited(text: string, rules = network()): boolean {
  return judgeAddress(address(text), rules).prohibited
}

describe('the special-purpose registries', () => {
  it.each(REGISTRY)('%s is prohibited to its ends, and not beyond', (_block, first, last, ...neighbours) => {
    expect(isProhibited(first)).toBe(true)
    expect(isProhibited(last)).toBe(true)
    for (const neighbour of neighbours) expect(isProhibited(neighbour)).toBe(false)
  })

  it.each(METADATA)('%s is a metadata service', (text) => {
    expect(judgeAddress(address(text), network())).toEqual({ prohibited: true, class: 'metadata' })
  })
})

describe('forms that embed an IPv4 address', () => {
  it.each([
    ['the last octets of the local NAT64 prefix, whatever stands between', '64:ff9b:1:ffff:ff:ffff:a00:1', true],
    ['the /48 layout below it', '64:ff9b:1:a9fe:a9:fe00:808:808', true],
    ['the /56 layout below it', '64:ff9b:1:7f:0:1:808:808', true],
    ['the /64 layout below it', '64:ff9b:1:0:a:0:108:808', true],
    ['a public address in the last octets below it', '64:ff9b:1::808:808', false],
    ['the server of a Teredo address', '2001:0:a00:1:0:ffff:f7f7:f7f7', true],
    ['the client of a Teredo address, inverted', '2001:0:808:808:0:ffff:f5ff:fffe', true],
    ['a Teredo client that is private only when not inverted', '2001:0:808:808:0:ffff:c0a8:101', false],
    ['an ISATAP address with the universal bit', '2606:4700::200:5efe:a00:1', true],
    ['an ISATAP address with the group bit', '2606:4700::100:5efe:a00:1', true],
    ['an ISATAP address of a public one', '2606:4700::5efe:808:808', false],
    ['an address that only looks like ISATAP', '2606:4700::400:5efe:a00:1', false],
    ['an ISATAP address below a 6to4 prefix', '2002:808:808::5efe:a00:1', true],
    ['an IPv4-compatible metadata address', '::169.254.169.254', true],
    ['an IPv4-compatible 0.0.0.2', '::2', true],
    ['6to4 of the wire server', '2002:a83f:8110::1', true],
  ])('%s', (_sentence, text, prohibited) => {
    expect(isProhibited(text)).toBe(prohibited)
  })

  it('an operator says the layout below the local prefix, and then nothing is guessed', () => {
    const rules = network({ nat64Prefixes: ['64:ff9b:1::/48'] })
    expect(isProhibited('64:ff9b:1:808:8:800::', rules)).toBe(false)
    expect(isProhibited('64:ff9b:1:a00:0:100:808:808', rules)).toBe(true)
  })

  it('an operator prefix does not switch off what the kernel does with mapped addresses', () => {
    expect(isProhibited('::ffff:127.0.0.1', network({ nat64Prefixes: ['::/32'] }))).toBe(true)
  })

  it('nor what a tunnel makes of an address below it', () => {
    const rules = network({ nat64Prefixes: ['2002:a00::/32'] })
    expect(isProhibited('2002:a00:808:808::', rules)).toBe(true)
  })

  it('an address below two operator prefixes is judged by both', () => {
    const rules = network({ nat64Prefixes: ['2606:4700::/32', '2606:4700:808:808::/96'] })
    expect(isProhibited('2606:4700:808:808::a00:1', rules)).toBe(true)
    expect(isProhibited('2606:4700:808:808::808:808', rules)).toBe(false)
  })

  it('a NAT64 prefix within unique-local space is judged by what it embeds', () => {
    const rules = network({ nat64Prefixes: ['fd00:64::/96'] })
    expect(isProhibited('fd00:64::808:808', rules)).toBe(false)
    expect(isProhibited('fd00:64::a00:1', rules)).toBe(true)
    expect(isProhibited('fd00:65::808:808', rules)).toBe(true)
  })
})

describe('allowPrivate', () => {
  it('lifts what it covers in every spelling of the same address', () => {
    const rules = network({ allowPrivate: ['10.20.0.0/16'], nat64Prefixes: ['2001:4860:64::/96'] })
    for (const text of ['10.20.0.5', '::ffff:10.20.0.5', '::10.20.0.5', '64:ff9b::a14:5', '2001:4860:64::a14:5']) {
      expect(isProhibited(text, rules)).toBe(false)
    }
  })

  it('does not lift by the outer address what is embedded', () => {
    const rules = network({ allowPrivate: ['64:ff9b::/96', '2002::/16', '2606:4700::/32', 'fd00::/8'] })
    for (const text of ['64:ff9b::a00:1', '2002:a00:1::', '2606:4700::5efe:a00:1', 'fd00::5efe:a00:1']) {
      expect(isProhibited(text, rules)).toBe(true)
    }
    expect(isProhibited('fd00::1', rules)).toBe(false)
  })

  it('takes a single address as a range of one', () => {
    const rules = network({ allowPrivate: ['10.1.2.3', 'fd00::7'] })
    expect(isProhibited('10.1.2.3', rules)).toBe(false)
    expect(isProhibited('10.1.2.4', rules)).toBe(true)
    expect(isProhibited('fd00::7', rules)).toBe(false)
  })
})

describe('parseNetworkRules', () => {
  it('names every fault, where it is and what would be right', () => {
    const rules = parseNetworkRules({
      allowPrivate: ['10.0.0.0/8', '10.1.1.1/8', 'intranet'],
      nat64Prefixes: ['2001:db8::/97', '2001:db8::/33', '10.0.0.0/8', '2001:db8::1/96'],
    })
    if (rules.ok) throw new Error('it should be refused')
    expect(rules.faults.map(({ path, code }) => `${path} ${code}`)).toEqual([
      'allowPrivate[1] address',
      'allowPrivate[2] address',
      'nat64Prefixes[0] nat64_prefix',
      'nat64Prefixes[1] nat64_prefix',
      'nat64Prefixes[2] nat64_prefix',
      'nat64Prefixes[3] address',
    ])
    expect(rules.faults[0]?.message).toContain('`10.0.0.0/8`')
  })
})

describe("the gateway's own listeners", () => {
  const everything = { allowPrivate: ['0.0.0.0/0', '::/0'] }
  const loopback: OwnListener = { addresses: [address('127.0.0.1')], localAddresses: [], port: 3128 }
  const wildcard: OwnListener = {
    addresses: 'any',
    localAddresses: [address('10.0.0.5'), address('2001:db8::5')],
    port: 9090,
  }

  it.each([
    ['its address', '127.0.0.1', 3128, true],
    ['its address in mapped form', '::ffff:127.0.0.1', 3128, true],
    ['its address through NAT64', '64:ff9b::7f00:1', 3128, true],
    ['the unspecified address, which leads to loopback', '0.0.0.0', 3128, true],
    ['the unspecified address in mapped form', '::ffff:0.0.0.0', 3128, true],
    ['the unspecified IPv6 address', '::', 3128, true],
    ['another loopback address, where nothing of ours listens', '127.0.0.2', 3128, false],
    ['another port', '127.0.0.1', 3129, false],
    ['a wildcard listener by any loopback address', '127.8.8.8', 9090, true],
    ['a wildcard listener by IPv6 loopback', '::1', 9090, true],
    ['a wildcard listener by an interface', '10.0.0.5', 9090, true],
    ['a wildcard listener by an interface in mapped form', '::ffff:10.0.0.5', 9090, true],
    ['a wildcard listener by an IPv6 interface', '2001:db8::5', 9090, true],
    ['another machine on the same port', '10.0.0.6', 9090, false],
  ])('%s', (_sentence, text, port, prohibited) => {
    expect(judgeEndpoint(address(text), port, network(everything, [loopback, wildcard])).prohibited).toBe(prohibited)
  })

  it('a listener bound to a mapped address is that IPv4 address', () => {
    const mapped: OwnListener = { addresses: [address('::ffff:127.0.0.1')], localAddresses: [], port: 3128 }
    expect(judgeEndpoint(address('127.0.0.1'), 3128, network(everything, [mapped])).class).toBe('own-listener')
  })
})
