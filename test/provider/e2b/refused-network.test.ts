/** What stands for E2B refuses the networks that E2B refuses: what is made against it would be taken there. */
import { expect, test } from 'vitest'
import type { E2bNetwork } from './contract-server.ts'
import { refusedNetwork } from './refused-network.ts'

const ALL = ['0.0.0.0/0']
const by = (egressProxy: NonNullable<E2bNetwork['egressProxy']>): E2bNetwork => ({ denyOut: ALL, allowOut: ['*'], egressProxy }) // prettier-ignore
const address = '203.0.113.7:3128'

test.each<[string, E2bNetwork]>([
  ['nothing', {}],
  ['one address', { denyOut: ALL, allowOut: ['203.0.113.7/32'] }],
  ['names, and all else denied', { denyOut: ALL, allowOut: ['*.example.com'] }],
  ['a proxy without credentials', by({ address })],
  ['a proxy with credentials of 255 bytes', by({ address, username: 'u'.repeat(255), password: 'p'.repeat(255) })],
  ['a user without a password', by({ address, username: 'u' })],
  ['none', { egressProxy: null }],
])('takes %s', async (_what, network) => {
  expect(await refusedNetwork(network, {})).toBeUndefined()
})

test.each<[string, E2bNetwork, RegExp]>([
  ['names with nothing denied', { allowOut: ['*'] }, /must include 'ALL_TRAFFIC'/],
  ['a denied name', { denyOut: ['example.com'] }, /invalid denied CIDR/],
  ['a password without a user', by({ address, password: 'p' }), /must be empty when username is empty/],
  ['a user of 256 bytes', by({ address, username: 'u'.repeat(256) }), /username must not exceed 255/],
  ['a password of 256 bytes, such as a token', by({ address, username: 'u', password: 'é'.repeat(128) }), /password must not exceed 255/], // prettier-ignore
  ['no port', by({ address: '203.0.113.7' }), /host:port/],
  ['port 0', by({ address: '203.0.113.7:0' }), /host:port/],
  ['a port that is none', by({ address: '203.0.113.7:70000' }), /host:port/],
  ['a name that nobody has', by({ address: 'nobody.invalid:1080' }), /does not resolve/],
  ...['10.1.2.3', '100.64.0.1', '127.0.0.1', '169.254.169.254', '172.31.0.1', '192.168.1.1', '0.0.0.0', '[::1]', '[fd00::1]', 'localhost'].map((host): [string, E2bNetwork, RegExp] => [`a proxy at ${host}`, by({ address: `${host}:1080` }), /internal/]), // prettier-ignore
])('refuses %s', async (_what, network, said) => {
  const [status, body] = (await refusedNetwork(network, {})) ?? []
  expect(status).toBe(400)
  expect(JSON.stringify(body)).toMatch(said)
})

test('says of a team that may name no proxy what it is', async () => {
  expect(await refusedNetwork(by({ address }), { egressProxies: false })).toEqual([403, { code: 403, message: 'Egress proxy (network.egressProxy) is not enabled for this team' }]) // prettier-ignore
})

test('takes a proxy on loopback from a test that says so', async () => {
  expect(await refusedNetwork(by({ address: '127.0.0.1:1080' }), { internalProxies: true })).toBeUndefined()
})
