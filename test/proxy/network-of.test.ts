/** Which addresses count as one. */
import { expect, test } from 'vitest'
import { networkOf } from '../../proxy/network-of.ts'

test.each([
  ['192.0.2.1', '192.0.2.1'],
  ['unix', 'unix'],
  ['unknown', 'unknown'],
  ['2001:db8:0:1::5', '2001:db8:0:1::/64'],
  ['2001:db8:0:1:5:6:7:8', '2001:db8:0:1::/64'],
  ['2001:db8::1:5:6:7:8', '2001:db8:0:1::/64'],
  ['2001:db8::5', '2001:db8:0:0::/64'],
  ['::1', '0:0:0:0::/64'],
  ['1::', '1:0:0:0::/64'],
  ['::', '0:0:0:0::/64'],
])('%s is of %s', (address, network) => {
  expect(networkOf(address)).toBe(network)
})
