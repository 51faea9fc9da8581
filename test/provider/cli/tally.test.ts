/** What is said of decisions: the `--allow` that would have helped, and none where none would. */
import { expect, test } from 'vitest'
import { parseEntry, parseNetworkRules } from '../../../policies/index.ts'
import type { DecisionLine } from '../../../provider/cli/decision-feed.ts'
import { allowOptions, createTally } from '../../../provider/cli/tally.ts'
import { createTeller } from '../../../provider/cli/tell.ts'

const rules = parseNetworkRules({ allowPrivate: ['10.1.0.0/16'] })
if (!rules.ok) throw new Error('rules')
const network = rules.value

function line(fields: Partial<DecisionLine>): DecisionLine {
  const refused = { decision: 'deny', effective: 'deny', reason: 'host_not_allowed', layer: 'claim' } as const
  const common = {
    kind: 'decision',
    seq: 1,
    time: '2026-01-01T00:00:00.000Z',
    instance: 'i',
    prev: '0'.repeat(64),
  } as const
  return { ...common, host: 'a.example', port: 443, ...refused, ...fields }
}

test.each([
  ['a name on a usual port', {}, 'a.example'],
  ['a name on http', { port: 80 }, 'a.example'],
  ['a name on another port', { port: 8443 }, 'a.example:8443'],
  ['a port that was left out', { port: 22, reason: 'port_not_allowed' }, 'a.example:22'],
  ['a public address', { host: '192.0.9.1', reason: 'address_not_allowed' }, '192.0.9.1'],
  ['a public IPv6 address', { host: '2606:4700::1', reason: 'address_not_allowed' }, '[2606:4700::1]'],
  ['and with a port', { host: '2606:4700::1', port: 22, reason: 'address_not_allowed' }, '[2606:4700::1]:22'],
  ['a private address that the gateway may reach', { host: '10.1.2.3', reason: 'address_not_allowed' }, '10.1.2.3'],
  ['one that it may not', { host: '10.2.2.3', reason: 'address_not_allowed' }, undefined],
  ['a name that leads to one', { reason: 'address_prohibited', resolved: ['10.2.2.3'] }, undefined],
  ['a denied name', { reason: 'host_denied', rule: 'a.example' }, undefined],
  ['the ceiling', { layer: 'ceiling' }, undefined],
  ['a limit', { reason: 'rate_limit' }, undefined],
] as const)('%s', (_name, fields, expected) => {
  const outcome = createTally(network).add(line(fields as Partial<DecisionLine>))
  expect(outcome).toMatchObject({ kind: 'refused', allow: expected, count: 1 })
  if (expected !== undefined) expect(parseEntry(expected, { from: 'file' })).toMatchObject({ ok: true })
})

test('what was let out, reported or not reached is told apart', () => {
  const kindOf = (fields: Partial<DecisionLine>) => createTally(network).add(line(fields))?.kind
  expect(kindOf({ decision: 'allow', effective: 'allow', reason: undefined })).toBe('allowed')
  expect(kindOf({ effective: 'allow' })).toBe('reported')
  expect(kindOf({ decision: 'allow', effective: 'allow', reason: 'dns_failed' })).toBe('failed')
})

test('outcomes are counted within bounds', () => {
  const tally = createTally(network)
  for (let index = 0; index < 1_005; index++) tally.add(line({ host: `h${index}.example` }))
  tally.add(line({ host: 'h0.example' }))
  expect(tally.outcomes()).toHaveLength(1_000)
  expect(tally.outcomes()[0]?.count).toBe(2)
  expect(tally.uncounted()).toBe(5)
})

test('one line lifts all refusals', () => {
  const tally = createTally(network)
  for (const fields of [{}, {}, { port: 80 }, { port: 8443 }]) tally.add(line(fields))
  expect(allowOptions(tally.outcomes())).toBe('--allow a.example --allow a.example:8443')
  expect(allowOptions([])).toBeUndefined()
})

test('a client that tries again and again does not drown the rest', () => {
  const said: string[] = []
  const teller = createTeller((text) => said.push(text), network, { json: false, quiet: false })
  teller.tell(Array.from({ length: 100 }, () => line({})))
  expect(said).toHaveLength(5)
  expect(said[4]).toContain('more of these are only counted')
  teller.summary({ exitCode: 0, timedOut: false })
  expect(said.slice(5)).toEqual([
    'sallyport: connections: 100 refused',
    'sallyport: to let it through, add: --allow a.example',
  ])
})

test('nothing is said of a run without connections, and nothing at all when quiet', () => {
  const said: string[] = []
  createTeller((text) => said.push(text), network, { json: false, quiet: false }).summary({
    exitCode: 0,
    timedOut: false,
  })
  const quiet = createTeller((text) => said.push(text), network, { json: false, quiet: true })
  quiet.tell([line({})])
  quiet.summary({ exitCode: 0, timedOut: false })
  expect(said).toEqual([])
})

test('where something was allowed, nothing asked for it and it went wrong, one line says so', () => {
  const told = (
    style: { readonly json?: boolean; readonly quiet?: boolean },
    lines: readonly DecisionLine[],
    exitCode = 1,
  ) => {
    const said: string[] = []
    const teller = createTeller((text) => said.push(text), network, {
      json: false,
      quiet: false,
      expectsSome: true,
      ...style,
    })
    teller.tell(lines)
    teller.summary({ exitCode, timedOut: false })
    return said
  }
  expect(told({}, [])).toEqual([
    expect.stringMatching(/^sallyport: connections: none came to the gateway; .*proxy variables/),
  ])
  expect([0, 126, 127].flatMap((exitCode) => told({}, [], exitCode))).toEqual([])
  expect(told({ quiet: true }, [])).toEqual([])
  expect(told({ json: true }, [])).toEqual([expect.stringMatching(/^\{"event":"summary"/)])
  expect(told({}, [line({})]).join()).not.toContain('none came')
})
