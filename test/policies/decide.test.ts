import { describe, expect, it } from 'vitest'
import {
  compilePolicy,
  decideAddresses,
  decideName,
  decideUnresolved,
  isPermit,
  parseSets,
  stillAllowed,
  type Allow,
  type Deny,
} from '../../policies/index.ts'
import { address, allowing, destination, layers, network, operatorDenies, policy } from './make.ts'

const OPEN = policy({ kind: 'allow-all' })
const CLOSED = policy({ kind: 'deny-all' })
const PUBLIC = [address('8.8.8.8')]
const API = destination('api.example.com:443')

function factsOf(verdict: Deny | Allow | { effective: 'allow' }): Record<string, unknown> {
  return Object.fromEntries(Object.entries(verdict).filter(([name]) => name !== 'permit'))
}

describe('a decision on a name', () => {
  it('no layers at all deny', () => {
    expect(decideName(layers(), API, network())).toMatchObject({ effective: 'deny', reason: 'policy_unavailable' })
  })

  it('names the first enforcing layer that refuses, behind a reporting one', () => {
    const verdict = decideName(
      layers(['ceiling', CLOSED, 'report'], ['tenant', CLOSED], ['claim', CLOSED]),
      API,
      network(),
    )
    expect(verdict).toEqual({ effective: 'deny', decision: 'deny', reason: 'host_not_allowed', layer: 'tenant' })
  })

  it('reports the first of the reporting layers that would have refused', () => {
    const verdict = decideName(
      layers(
        ['ceiling', allowing(['*.example.com'], ['api.example.com']), 'report'],
        ['tenant', CLOSED, 'report'],
        ['claim', OPEN],
      ),
      API,
      network(),
    )
    expect(verdict).toEqual({
      effective: 'allow',
      decision: 'deny',
      report: { layer: 'ceiling', reason: 'host_denied', rule: 'api.example.com' },
    })
  })

  it('a claim enforces, even where somebody put it in report mode', () => {
    expect(decideName(layers(['ceiling', OPEN], ['claim', CLOSED, 'report']), API, network()).effective).toBe('deny')
  })

  it('the rule is the entry of the innermost static layer', () => {
    const exact = allowing(['api.example.com'])
    const wildcard = allowing(['*.example.com'])
    const rules = [
      layers(['ceiling', exact], ['tenant', wildcard], ['claim', OPEN]),
      layers(['ceiling', wildcard], ['tenant', OPEN], ['claim', exact]),
      layers(['ceiling', OPEN], ['claim', OPEN]),
    ].map((list) => factsOf(decideName(list, API, network()))['rule'])
    expect(rules).toEqual(['*.example.com', 'api.example.com', undefined])
  })

  it('of a set, the rule is the set', () => {
    const verdict = decideName(layers(['claim', allowing(['@pypi'])]), destination('pypi.org:443'), network())
    expect(verdict).toMatchObject({ effective: 'allow', rule: '@pypi' })
  })

  it("the operator's list of denied hosts wins, and grants nothing", () => {
    const list = operatorDenies('api.example.com', '*.bad.example')
    expect(decideName(layers(list, ['ceiling', OPEN], ['claim', OPEN]), API, network())).toEqual({
      effective: 'deny',
      decision: 'deny',
      reason: 'host_denied',
      layer: 'ceiling',
      rule: 'api.example.com',
    })
    const other = destination('www.example.com:443')
    expect(decideName(layers(list, ['ceiling', CLOSED], ['claim', OPEN]), other, network()).effective).toBe('deny')
    expect(decideName(layers(list, ['ceiling', OPEN], ['claim', OPEN]), other, network()).effective).toBe('allow')
  })

  it("the operator's list is enforced though the ceiling only reports", () => {
    const list = layers(operatorDenies('api.example.com'), ['ceiling', OPEN, 'report'], ['claim', OPEN])
    expect(decideName(list, API, network()).effective).toBe('deny')
  })

  it.each([
    ['an entry with a port denies that port only', 'api.example.com:22', false],
    ['an entry without one denies every port', 'api.example.com', true],
    ['a wildcard without one denies every port', '*.example.com', true],
  ])('%s', (_sentence, entry, isDenied) => {
    const claim = layers(['claim', allowing(['api.example.com:*'], [entry])])
    for (const port of [1, 443, 65_535]) {
      expect(decideName(claim, destination(`api.example.com:${port}`), network()).effective).toBe(
        isDenied ? 'deny' : 'allow',
      )
    }
  })

  it('a denied set covers every port of its hosts', () => {
    const claim = layers(['claim', allowing(['github.com:*'], ['@github'])])
    expect(decideName(claim, destination('github.com:22'), network())).toMatchObject({
      reason: 'host_denied',
      rule: '@github',
    })
  })

  it('also where the set itself has entries with a port', () => {
    const sets = parseSets({ corp: ['git.corp.example:8443'] })
    if (!sets.ok) throw new Error('the set should load')
    const data = { kind: 'static', allowedHosts: ['git.corp.example:*'], deniedHosts: ['@corp'] } as const
    const compiled = compilePolicy(data, { from: 'file', sets: sets.value })
    if (!compiled.ok) throw new Error('the policy should load')
    const verdict = decideName(layers(['claim', compiled.value]), destination('git.corp.example:22'), network())
    expect(verdict).toMatchObject({ reason: 'host_denied', rule: '@corp' })
  })

  it('a policy that is not there denies as unavailable', () => {
    for (const missing of [{ kind: 'unavailable' } as const, policy({ kind: 'named', name: 'nosuch' })]) {
      expect(decideName(layers(['tenant', missing]), API, network())).toMatchObject({
        reason: 'policy_unavailable',
        layer: 'tenant',
      })
    }
  })

  it('a kind that nobody knows denies', () => {
    const unknown = { kind: 'allow-everything' } as unknown as ReturnType<typeof policy>
    expect(decideName(layers(['claim', unknown]), API, network())).toMatchObject({
      effective: 'deny',
      reason: 'policy_unavailable',
    })
  })
})

describe('a decision on a literal', () => {
  it('is whole at once: a prohibited one never passes', () => {
    const lists = layers(['claim', allowing(['10.0.0.1', '169.254.169.254'])])
    for (const text of ['10.0.0.1:443', '169.254.169.254:80']) {
      expect(decideName(lists, destination(text), network())).toEqual({
        effective: 'deny',
        decision: 'deny',
        reason: 'address_prohibited',
      })
    }
  })

  it.each([
    ['deny-all', CLOSED, 'address_not_allowed'],
    ['a name and a wildcard', allowing(['example.com', '*.example.com']), 'address_not_allowed'],
    ['the other family', allowing(['0.0.0.0/0']), 'address_not_allowed'],
    ['another port', allowing(['[2606:4700::1]:8443']), 'port_not_allowed'],
    ['a denied range', allowing(['[2606:4700::1]'], ['2606::/16']), 'host_denied'],
  ])('under %s it is refused as it should be', (_sentence, claim, reason) => {
    expect(decideName(layers(['claim', claim]), destination('[2606:4700::1]:443'), network())).toMatchObject({ reason })
  })

  it('a mapped literal is looked up as the IPv4 address that it is', () => {
    const claim = layers(['claim', allowing(['8.8.8.8'])])
    expect(decideName(claim, destination('[::ffff:8.8.8.8]:443'), network())).toMatchObject({
      effective: 'allow',
      rule: '8.8.8.8',
    })
  })

  it('a translated literal is not the IPv4 entry: it must be listed itself', () => {
    const claim = layers(['claim', allowing(['8.8.8.8'])])
    expect(decideName(claim, destination('[64:ff9b::808:808]:443'), network())).toMatchObject({
      reason: 'address_not_allowed',
    })
  })

  it('a denied IPv4 range covers every form that leads to it', () => {
    const claim = layers(['claim', OPEN], operatorDenies('8.8.8.0/24'))
    const forms = [
      '8.8.8.8',
      '[::ffff:8.8.8.8]',
      '[::8.8.8.8]',
      '[64:ff9b::808:808]',
      '[2002:808:808::1]',
      '[2606:4700::5efe:808:808]',
    ]
    for (const form of forms)
      expect(decideName(claim, destination(`${form}:443`), network())).toMatchObject({
        reason: 'host_denied',
        rule: '8.8.8.0/24',
      })
  })

  it('stands for itself, whatever addresses are handed in', () => {
    const verdict = decideAddresses(
      layers(['claim', OPEN]),
      destination('8.8.4.4:443'),
      [address('8.8.8.8')],
      network(),
    )
    expect(verdict.effective === 'allow' && verdict.permit.addresses.map(({ text }) => text)).toEqual(['8.8.4.4'])
    expect(decideAddresses(layers(['claim', OPEN]), destination('10.0.0.1:443'), PUBLIC, network()).effective).toBe(
      'deny',
    )
  })
})

describe('a decision on addresses', () => {
  it('an empty answer is refused', () => {
    expect(decideAddresses(layers(['claim', OPEN]), API, [], network())).toMatchObject({
      effective: 'deny',
      reason: 'address_prohibited',
    })
  })

  it('decides on the name again', () => {
    expect(decideAddresses(layers(['claim', CLOSED]), API, PUBLIC, network())).toMatchObject({
      reason: 'host_not_allowed',
    })
  })

  it('a denied range covers what a name resolves to, on every port, though another address is free', () => {
    const claim = layers(['claim', allowing(['api.example.com:*'], ['8.8.8.0/24'])])
    const mixed = [address('1.1.1.1'), address('8.8.8.8')]
    for (const port of [443, 8443]) {
      const verdict = decideAddresses(claim, destination(`api.example.com:${port}`), mixed, network())
      expect(verdict).toEqual({
        effective: 'deny',
        decision: 'deny',
        reason: 'host_denied',
        layer: 'claim',
        rule: '8.8.8.0/24',
      })
    }
  })

  it('a denied range covers an address that embeds one of its own', () => {
    const claim = layers(['claim', allowing(['api.example.com'], ['8.8.8.0/24'])])
    for (const text of ['::ffff:8.8.8.8', '64:ff9b::808:808', '2002:808:808::1']) {
      expect(decideAddresses(claim, API, [address(text)], network())).toMatchObject({ reason: 'host_denied' })
    }
  })

  it('one prohibited address refuses the whole answer', () => {
    const answer = [...PUBLIC, address('::ffff:127.0.0.1')]
    expect(decideAddresses(layers(['claim', OPEN]), API, answer, network())).toMatchObject({
      reason: 'address_prohibited',
    })
  })

  it('an allowed name may resolve anywhere public: ranges that allow say nothing of it', () => {
    const claim = layers(['claim', allowing(['8.8.8.0/24'])])
    expect(decideAddresses(claim, API, PUBLIC, network())).toMatchObject({ reason: 'host_not_allowed' })
  })

  it("the gateway's own listener is refused on its port only", () => {
    const own = network({ allowPrivate: ['127.0.0.0/8'] }, [
      { addresses: [address('127.0.0.1')], localAddresses: [], port: 9090 },
    ])
    const loopback = [address('127.0.0.1')]
    expect(decideAddresses(layers(['claim', OPEN]), destination('x.example:9090'), loopback, own)).toMatchObject({
      reason: 'address_prohibited',
    })
    expect(decideAddresses(layers(['claim', OPEN]), destination('x.example:9091'), loopback, own).effective).toBe(
      'allow',
    )
  })
})

describe('a permit', () => {
  const verdict = decideAddresses(layers(['claim', OPEN]), API, PUBLIC, network())
  if (verdict.effective === 'deny') throw new Error(verdict.reason)
  const { permit } = verdict

  it('holds the very addresses that were decided on, and cannot be changed', () => {
    expect(permit.addresses).toEqual(PUBLIC)
    expect(permit.addresses).not.toBe(PUBLIC)
    expect(permit.destination).toEqual(API)
    expect(() => (permit.addresses as unknown[]).push(address('10.0.0.1'))).toThrow(TypeError)
    expect(() => Object.assign(permit, { addresses: [] })).toThrow(TypeError)
    expect(() => Object.assign(permit.destination, { port: 22 })).toThrow(TypeError)
  })

  it('is told from what looks like one', () => {
    expect(isPermit(permit)).toBe(true)
    for (const forged of [
      { destination: permit.destination, addresses: permit.addresses },
      Object.create(permit),
      structuredClone(factsOf(verdict)),
      null,
      undefined,
      'permit',
    ]) {
      expect(isPermit(forged)).toBe(false)
    }
  })

  it('is never part of a refusal', () => {
    expect(decideAddresses(layers(['claim', CLOSED]), API, PUBLIC, network())).not.toHaveProperty('permit')
    expect(decideName(layers(['claim', OPEN]), API, network())).not.toHaveProperty('permit')
  })

  it('holds no address only when an upstream resolves the name', () => {
    const unresolved = decideUnresolved(layers(['claim', OPEN]), API, network())
    expect(unresolved.effective === 'allow' && unresolved.permit.addresses).toEqual([])
    expect(decideUnresolved(layers(['claim', CLOSED]), API, network()).effective).toBe('deny')
    expect(decideUnresolved(layers(['claim', OPEN]), destination('10.0.0.1:443'), network()).effective).toBe('deny')
    const literal = decideUnresolved(layers(['claim', OPEN]), destination('8.8.8.8:443'), network())
    expect(literal.effective === 'allow' && literal.permit.addresses).toEqual(PUBLIC)
  })
})

describe('stillAllowed', () => {
  it('is silent while nothing refuses', () => {
    expect(stillAllowed(layers(['claim', allowing(['api.example.com'])]), API, PUBLIC, network())).toBeUndefined()
    expect(stillAllowed(layers(['claim', OPEN]), API, [], network())).toBeUndefined()
  })

  it.each([
    ['the host is no longer allowed', layers(['claim', allowing([])]), network(), 'host_not_allowed'],
    ['the host was denied', layers(operatorDenies('api.example.com'), ['claim', OPEN]), network(), 'host_denied'],
    ['the dialled address was denied', layers(operatorDenies('8.8.8.8'), ['claim', OPEN]), network(), 'host_denied'],
  ])('tells when %s', (_sentence, now, rules, reason) => {
    expect(stillAllowed(now, API, PUBLIC, rules)).toMatchObject({ reason })
  })

  it('tells when the operator no longer lifts the dialled address', () => {
    expect(stillAllowed(layers(['claim', OPEN]), API, [address('10.0.0.1')], network())).toMatchObject({
      reason: 'address_prohibited',
    })
  })
})
