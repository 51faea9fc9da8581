/** A policy with one more entry: what becomes of each kind. */
import { expect, test } from 'vitest'
import { entryFor, withEntry } from '../../../proxy/console/allow.ts'

test.each([
  [
    'no policy becomes one of that entry',
    undefined,
    { kind: 'static', allowedHosts: ['new.example'], mode: 'enforce' },
  ],
  [
    'one that refuses all becomes one of that entry, and keeps its mode',
    { kind: 'deny-all', mode: 'report' },
    { kind: 'static', allowedHosts: ['new.example'], mode: 'report' },
  ],
  [
    'a list gets one more and keeps the rest',
    { kind: 'static', allowedHosts: ['a.example'], deniedHosts: ['b.example'], mode: 'enforce' },
    { kind: 'static', allowedHosts: ['a.example', 'new.example'], deniedHosts: ['b.example'], mode: 'enforce' },
  ],
] as const)('%s', (_what, before, after) => {
  const policy =
    before && 'allowedHosts' in before
      ? { ...before, allowedHosts: [...before.allowedHosts], deniedHosts: [...before.deniedHosts] }
      : before
  expect(withEntry(policy, 'new.example')).toEqual({ ok: true, policy: after })
})

test.each([
  ['the entry is there already', { kind: 'static', allowedHosts: ['new.example'] }, 'has this entry already'],
  ['all is allowed', { kind: 'allow-all' }, 'something else refuses it'],
  ['the policy is one that others share', { kind: 'named', name: 'shared' }, 'named policy “shared”'],
] as const)('nothing is to be put when %s', (_what, before, why) => {
  const policy = 'allowedHosts' in before ? { ...before, allowedHosts: [...before.allowedHosts] } : before
  const extended = withEntry(policy, 'new.example')
  expect(extended.ok ? '' : extended.why).toContain(why)
})

test.each([
  ['api.example.com', 443, 'api.example.com'],
  ['api.example.com', 80, 'api.example.com'],
  ['api.example.com', 8443, 'api.example.com:8443'],
  ['203.0.113.7', 22, '203.0.113.7:22'],
  ['2001:db8::7', 443, '[2001:db8::7]:443'],
  ['[2001:db8::7]', 8443, '[2001:db8::7]:8443'],
])('%s and port %i as an entry', (host, port, entry) => {
  expect(entryFor(host, port)).toBe(entry)
})
