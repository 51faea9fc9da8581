import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { parseEntry, parseSets, runPolicyCases } from '../../policies/index.ts'
import { allowing, codeOf, layers, network } from './make.ts'
import { readCases, readDocument } from './read-cases.ts'

const namedCase = z.object({ name: z.string(), where: z.string().optional(), entry: z.string().optional() })

describe.each(['host-pattern.json', 'policy.json'])('handed cases of %s', (file) => {
  const cases = readCases(file, namedCase)
  const results = runPolicyCases(readDocument(file))

  it('are all run', () => {
    expect(results.map(({ name }) => name)).toEqual(cases.map(({ name }) => name))
  })

  it.each(results.map((result) => [result.name, result] as const))('%s', (_name, result) => {
    expect(result.detail).toBeUndefined()
    expect(result.ok).toBe(true)
  })
})

describe('what the cases grant to files only', () => {
  const granted = readCases('host-pattern.json', namedCase).filter(({ where }) => where === 'file')
  it.each(granted.map(({ name, entry }) => [name, entry ?? ''] as const))(
    'is refused in a token: %s',
    (_name, entry) => {
      expect(codeOf(parseEntry(entry, { from: 'token' }))).toBe('unicode')
    },
  )
})

describe('runPolicyCases', () => {
  const target = { host: 'api.example.com', port: 443 }
  const claim = { kind: 'static', allowedHosts: ['api.example.com'] }
  const open = { ceiling: { kind: 'allow-all' }, claim }

  function detailOf(item: Record<string, unknown>, document: Record<string, unknown> = {}): string | undefined {
    return runPolicyCases({ ...document, cases: [{ name: 'it', ...item }] })[0]?.detail
  }

  it.each([
    [
      'a wrong decision',
      { layers: open, target, expect: { decision: 'deny' } },
      'expected decision "deny", got "allow"',
    ],
    [
      'a wrong reason',
      { layers: {}, target, expect: { reason: ['host_denied', 'port_not_allowed'] } },
      'got "host_not_allowed"',
    ],
    ['a wrong layer', { layers: { ...open, claim: undefined }, target, expect: { layer: 'tenant' } }, 'got "claim"'],
    [
      'a rule that is not there',
      { layers: { ...open, claim: { kind: 'allow-all' } }, target, expect: { rule: 'x' } },
      'got none',
    ],
    [
      'a faulty layer',
      { layers: { ...open, tenant: { kind: 'static', allowedHosts: ['*'] } }, target, expect: {} },
      'tenant.allowedHosts[0]',
    ],
    [
      'a mode in a claim',
      { layers: { ...open, claim: { kind: 'deny-all', mode: 'report' } }, target, expect: {} },
      'claim.',
    ],
    ['an address that is none', { layers: open, target, addresses: ['127.1'], expect: {} }, 'addresses'],
    ['a faulty allowPrivate', { layers: open, target, allowPrivate: ['10.0.0.1/8'], expect: {} }, 'allowPrivate[0]'],
    ['a target that is none', { layers: open, target: { host: 'a b', port: 443 }, expect: {} }, 'target'],
    ['an unknown member', { layers: open, target, expect: { verdict: 'allow' } }, 'expect.verdict: unknown key'],
    ['no case at all', {}, 'a case has a `name`, a `target` and what to `expect`'],
    [
      'a target without a port',
      { layers: open, target: { host: 'a.example' }, expect: {} },
      'target.port: is required',
    ],
    ['a match without a target', { entry: 'a.example', match: true }, 'target: is required'],
    ['a refusal of no entry', { refused: 'port' }, 'entry: is required'],
    ['an entry of no kind', { entry: 'a.example', canonical: 'a.example' }, 'kind: is required'],
    ['a match that is none', { entry: 'a.example', target, match: true }, 'expected match true, got false'],
    ['an entry that should be refused', { entry: 'a.example', refused: 'port' }, 'loads as `a.example`'],
    ['a wrong fault', { entry: 'a.example:0', refused: 'path' }, 'got "port"'],
    ['a wrong hint', { entry: 'a.example:0443', refused: 'port', hint: 'a.example' }, 'expected hint'],
    [
      'wrong ports',
      { entry: 'a.example', kind: 'exact', canonical: 'a.example', ports: [[443, 443]] },
      'expected ports',
    ],
  ])('fails on %s, and says what came', (_sentence, item, detail) => {
    expect(detailOf(item)).toContain(detail)
  })

  it.each([null, 'text', {}, { cases: 'x' }, { cases: [] }])(
    'a document that holds no cases is a failure: %j',
    (document) => {
      expect(runPolicyCases(document)).toMatchObject([{ name: 'the document', ok: false }])
    },
  )

  it('takes layers and addresses of the document where a case has none', () => {
    expect(
      detailOf({ target, expect: { decision: 'allow', rule: 'api.example.com' } }, { layers: open }),
    ).toBeUndefined()
    const lifted = { layers: open, allowPrivate: ['10.0.0.0/8'] }
    expect(detailOf({ target, addresses: ['10.0.0.1'], expect: { decision: 'allow' } }, lifted)).toBeUndefined()
    expect(
      detailOf({ target, addresses: ['10.0.0.1'], allowPrivate: [], expect: { reason: 'address_prohibited' } }, lifted),
    ).toBeUndefined()
  })

  it("takes the caller's layers, settings and sets where the document has none", () => {
    const sets = parseSets({ corp: ['git.corp.example'] })
    if (!sets.ok) throw new Error('the set should load')
    const cases = [
      {
        name: 'layers and settings',
        target: { host: 'db.internal', port: 5432 },
        addresses: ['10.0.0.1'],
        expect: { decision: 'allow' },
      },
      { name: 'sets', entry: '@corp', target: { host: 'git.corp.example', port: 443 }, match: true },
    ]
    const defaults = {
      layers: layers(['claim', allowing(['db.internal:5432'])]),
      network: network({ allowPrivate: ['10.0.0.0/8'] }),
    }
    expect(runPolicyCases({ cases }, { ...defaults, sets: sets.value }).map(({ ok }) => ok)).toEqual([true, true])
    expect(runPolicyCases({ cases }).map(({ ok }) => ok)).toEqual([false, false])
  })
})
