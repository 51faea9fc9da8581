/** What of the platform's words is believed. */
import { expect, test } from 'vitest'
import { privateAddressOf } from '../../../provider/backends/fly-machines/machines-api.ts'

test.each(['fdaa:0:1:a7b:7b:0:3:2', 'FDAA::1'])('%s is an address to which a bearer may go', (address) => {
  expect(privateAddressOf({ id: 'a', state: 'started', private_ip: address })).toBe(address)
})

test.each([
  '',
  '203.0.113.9',
  '2001:db8::1',
  'fd00::1',
  'fdab::1',
  '::ffff:203.0.113.9',
  'fdaa::1%eth0',
  'fdaa.example.com',
  'localhost',
])('`%s` is none', (address) => {
  expect(() => privateAddressOf({ id: 'a', state: 'started', private_ip: address })).toThrow(/private network/)
})
