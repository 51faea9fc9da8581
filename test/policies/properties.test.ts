/** What must hold for every policy, not only for those that somebody thought of. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  contains,
  decideAddresses,
  decideName,
  parseEntry,
  stillAllowed,
  type CompiledPolicy,
  type Destination,
  type HostEntry,
  type IpAddress,
  type Layer,
  type Layers,
} from '../../policies/index.ts'
import { address, allowing, destination, network, policy, valueOf } from './make.ts'

/** Few names and addresses, so that entries and destinations meet often. */
const label = fc.constantFrom('a', 'b', 'c')
const name = fc.array(label, { minLength: 0, maxLength: 3 }).map((labels) => [...labels, 'zone', 'example'].join('.'))
const ipv4 = fc
  .tuple(fc.constantFrom(8, 9), fc.constantFrom(0, 8, 255), fc.constantFrom(0, 8))
  .map(([a, b, c]) => `${a}.${b}.8.${c}`)
const ipv6 = fc.constantFrom(
  '2606:4700::1',
  '2606:4700::2',
  '2606:4701::1',
  '64:ff9b::808:808',
  '2002:808:808::1',
  '::ffff:8.8.8.8',
)
const port = fc.constantFrom(22, 80, 443, 8000, 8443, 65_535)
const ports = fc.constantFrom('', ':443', ':8443', ':8000-8100', ':*', ':1-442')
const block = fc.tuple(fc.oneof(ipv4, fc.constantFrom('2606:4700::', '2606::')), fc.nat(128)).map(([base, length]) => {
  const text = `${base}/${base.includes(':') ? 16 + (length % 113) : length % 33}`
  const entry = parseEntry(text, { from: 'file' })
  return entry.ok ? text : (entry.fault.hint ?? '8.0.0.0/8')
})
const entry = fc.oneof(
  fc.tuple(name, ports).map(([host, tail]) => host + tail),
  fc.tuple(name, ports).map(([host, tail]) => `*.${host}${tail}`),
  fc.tuple(ipv4, ports).map(([host, tail]) => host + tail),
  fc.tuple(fc.constantFrom('[2606:4700::1]', '[2606:4700::2]'), ports).map(([host, tail]) => host + tail),
  fc.tuple(block, ports).map(([range, tail]) => range + tail),
)
const list = fc.array(entry, { maxLength: 8 })
const target = fc
  .tuple(
    fc.oneof(
      name,
      ipv4,
      ipv6.map((text) => `[${text}]`),
    ),
    port,
  )
  .map(([host, number]) => destination(`${host}:${number}`))
const answer = fc.array(fc.oneof(ipv4, ipv6).map(address), { minLength: 1, maxLength: 3 })

interface LayerPlan {
  readonly layer: Layer
  readonly again: (extraDenied: readonly string[]) => Layer
}
const plan = fc
  .record({
    allowed: list,
    denied: list,
    name: fc.constantFrom('ceiling', 'tenant', 'claim'),
    mode: fc.constantFrom('enforce', 'report'),
  })
  .map(({ allowed, denied, ...rest }): LayerPlan => {
    const again = (extra: readonly string[]): Layer => ({ ...rest, policy: allowing(allowed, [...denied, ...extra]) })
    return { layer: again([]), again }
  })
const enforced = fc
  .array(plan, { minLength: 1, maxLength: 3 })
  .map((plans) => plans.map(({ layer }): Layer => ({ ...layer, mode: 'enforce' })))

function of(layers: readonly Layer[]): Layers {
  return { layers, version: '' }
}

function isAllowed(layers: readonly Layer[], to: Destination, answers: readonly IpAddress[]): boolean {
  return decideAddresses(of(layers), to, answers, network()).effective === 'allow'
}

describe('properties of decisions', () => {
  it('adding a denied entry never allows more', () => {
    fc.assert(
      fc.property(
        fc.array(plan, { minLength: 1, maxLength: 3 }),
        fc.nat(2),
        list,
        target,
        answer,
        (plans, index, extra, to, answers) => {
          const before = plans.map(({ layer }) => layer)
          const after = plans.map(({ layer, again }, place) => (place === index % plans.length ? again(extra) : layer))
          if (isAllowed(after, to, answers)) expect(isAllowed(before, to, answers)).toBe(true)
        },
      ),
      { numRuns: 1000 },
    )
  })

  it('no layer widens another: what passes all passes each alone, and every order', () => {
    fc.assert(
      fc.property(enforced, target, answer, (layers, to, answers) => {
        const each = layers.map((layer) => isAllowed([layer], to, answers))
        expect(isAllowed(layers, to, answers)).toBe(each.every(Boolean))
        expect(isAllowed([...layers].reverse(), to, answers)).toBe(each.every(Boolean))
      }),
      { numRuns: 1000 },
    )
  })

  it('adding a layer, reporting or not, never allows more', () => {
    fc.assert(
      fc.property(enforced, plan, target, answer, (layers, { layer }, to, answers) => {
        if (isAllowed([...layers, layer], to, answers)) expect(isAllowed(layers, to, answers)).toBe(true)
      }),
      { numRuns: 1000 },
    )
  })

  it('a decision on addresses never allows what the decision on the name refused', () => {
    fc.assert(
      fc.property(enforced, target, answer, (layers, to, answers) => {
        if (isAllowed(layers, to, answers)) expect(decideName(of(layers), to, network()).effective).toBe('allow')
        expect(stillAllowed(of(layers), to, answers, network()) === undefined).toBe(isAllowed(layers, to, answers))
      }),
      { numRuns: 1000 },
    )
  })

  it('a report never says allow where enforcing would, and never lets a prohibited address through', () => {
    fc.assert(
      fc.property(fc.array(plan, { minLength: 1, maxLength: 3 }), target, answer, (plans, to, answers) => {
        const layers = plans.map(({ layer }) => layer)
        const real = decideAddresses(of(layers), to, answers, network())
        const strict = isAllowed(
          layers.map((layer) => ({ ...layer, mode: 'enforce' as const })),
          to,
          answers,
        )
        expect(real.decision === 'allow').toBe(strict)
        const withPrivate = [...answers, address('::ffff:10.0.0.1')]
        if (to.kind === 'name') expect(isAllowed(layers, to, withPrivate)).toBe(false)
      }),
      { numRuns: 1000 },
    )
  })

  it('the compiled look-up equals a naive matcher, entry by entry', () => {
    fc.assert(
      fc.property(list, list, target, (allowed, denied, to) => {
        const claim: Layer = { name: 'claim', mode: 'enforce', policy: allowing(allowed, denied) }
        const verdict = decideName(of([claim]), to, network())
        const read = (texts: readonly string[]): HostEntry[] =>
          texts.map((text) => valueOf(parseEntry(text, { from: 'file' })) as HostEntry)
        const deniedAt = read(denied).filter(
          (one) => naiveHost(one, to, 'deny') && (!one.hasPorts || naivePort(one, to.port)),
        )
        const hosts = read(allowed).filter((one) => naiveHost(one, to, 'allow'))
        const both = hosts.filter((one) => naivePort(one, to.port))
        const isProhibited = to.kind === 'address' && !/^(8|9|2606|64:ff9b::8|2002:808:|::ffff:8)/.test(to.address.text)
        const reason =
          deniedAt.length > 0
            ? 'host_denied'
            : both.length > 0
              ? isProhibited
                ? 'address_prohibited'
                : undefined
              : hosts.length > 0
                ? 'port_not_allowed'
                : to.kind === 'name'
                  ? 'host_not_allowed'
                  : 'address_not_allowed'
        expect(verdict.effective === 'deny' ? verdict.reason : undefined).toBe(reason)
        const rules = (reason === 'host_denied' ? deniedAt : both).map(({ text }) => text)
        if (verdict.rule !== undefined) expect(rules).toContain(verdict.rule)
      }),
      { numRuns: 3000 },
    )
  })

  it('deny-all and an unreadable policy deny everything, allow-all is only as wide as public addresses', () => {
    const closed: readonly CompiledPolicy[] = [policy({ kind: 'deny-all' }), { kind: 'unavailable' }, allowing([])]
    fc.assert(
      fc.property(target, answer, fc.constantFrom(...closed), (to, answers, none) => {
        const layers: Layer[] = [
          { name: 'ceiling', mode: 'enforce', policy: policy({ kind: 'allow-all' }) },
          { name: 'claim', mode: 'enforce', policy: none },
        ]
        expect(isAllowed(layers, to, answers)).toBe(false)
      }),
    )
  })
})

function naivePort({ ports: covered }: HostEntry, number: number): boolean {
  return covered.some(({ low, high }) => number >= low && number <= high)
}

/** Written from the documentation, label by label and bit by bit, without the code under test's tables. */
function naiveHost(one: HostEntry, to: Destination, effect: 'allow' | 'deny'): boolean {
  if (to.kind === 'name') {
    if (one.kind === 'exact') return one.host === to.host
    return one.kind === 'wildcard' && to.host.length > one.below.length + 1 && to.host.endsWith(`.${one.below}`)
  }
  const mapped = /^::ffff:([\d.]+)$/.exec(to.address.text)?.[1]
  const inside = /^(64:ff9b::808:808|2002:808:808::1)$/.test(to.address.text) ? '8.8.8.8' : mapped
  const candidates = [mapped === undefined || effect === 'deny' ? to.address : address(mapped)]
  if (effect === 'deny' && inside !== undefined) candidates.push(address(inside))
  return candidates.some((candidate) => {
    if (one.kind === 'address') return one.address.text === candidate.text
    return one.kind === 'range' && contains(one.range, candidate)
  })
}
