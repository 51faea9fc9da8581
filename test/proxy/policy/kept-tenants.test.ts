/** That a layer which was read once is not read again, and still means what the operator's sets of now make of it. */
import { afterEach, expect, test } from 'vitest'
import { decideName, parseAuthority } from '../../../policies/index.ts'
import { createPolicySource, type PolicySource } from '../../../proxy/policy/policy-source.ts'
import type { CheckedTenantLayer } from '../../../proxy/policy/kept-tenants.ts'
import type { Identity } from '../../../proxy/tokens/identity.ts'
import { rules } from '../egress/permits.ts'

const ALL = { ceiling: { kind: 'allow-all' } } as const
const sources: PolicySource[] = []
afterEach(() => sources.splice(0).forEach((source) => source.close()))

function make(npm: readonly string[] = []): PolicySource {
  const source = createPolicySource({ policy: ALL, machineSets: { npm, apt: [] } })
  sources.push(source)
  return source
}

async function checked(source: PolicySource, layer: unknown): Promise<CheckedTenantLayer> {
  const result = await source.checkTenant(layer)
  if (!result.ok) throw new Error(result.faults[0]?.message)
  return result.value
}

async function isAllowed(source: PolicySource, host: string): Promise<boolean> {
  const target = parseAuthority(`${host}:443`)
  if (!target.ok) throw new Error(target.fault.message)
  const who = { tenant: 'acme', issuer: 'i', claim: { kind: 'allow-all' } } as unknown as Identity
  return decideName(await source.layersFor(who), target.value, rules([])).effective === 'allow'
}

test('attack: a layer that names a set is not what the set was when the layer was read', async () => {
  const source = make(['old.example.test'])
  const { layer } = await checked(source, { kind: 'static', allowedHosts: ['@npm'] })
  source.keepTenant('acme', layer)
  expect(await isAllowed(source, 'old.example.test')).toBe(true)
  source.replace(ALL, { npm: ['new.example.test'], apt: [] })
  for (let again = 0; again < 2; again++) {
    expect([await isAllowed(source, 'old.example.test'), await isAllowed(source, 'new.example.test')]).toEqual([
      false,
      true,
    ])
    source.keepTenant('acme', layer)
  }
  source.replace({ ...ALL, deniedHosts: [] }, { npm: [], apt: [] })
  expect(await isAllowed(source, 'new.example.test')).toBe(false)
})

test('one list in two modes is two layers, each with its version, however often they are read', async () => {
  const source = make()
  const data = { kind: 'static', allowedHosts: ['B.example.test', 'a.example.test'], deniedHosts: ['c.example.test'] }
  const [enforced, reported] = [await checked(source, data), await checked(source, { ...data, mode: 'report' })]
  expect([enforced.layer.mode, reported.layer.mode, enforced.cell.mode, reported.cell.mode]).toEqual([
    'enforce',
    'report',
    'enforce',
    'report',
  ])
  expect(enforced.version).not.toBe(reported.version)
  for (const one of [enforced, reported]) {
    const again = await checked(source, one.layer)
    expect(again.layer).toBe(one.layer)
    expect([again.version, again.cell.mode]).toEqual([one.version, one.cell.mode])
    source.keepTenant('acme', one.layer)
    expect(await source.tenantInForce('acme')).toEqual({ source: 'api', layer: one.layer, version: one.version })
  }
  // As anybody else's copy of it, which has no memory.
  expect((await checked(make(), structuredClone(enforced.layer))).version).toBe(enforced.version)
})

test('what was read can not be changed by whoever gave it, nor by whoever got it', async () => {
  const source = make()
  const data = { kind: 'static', allowedHosts: ['a.example.test'], mode: 'enforce' }
  const { layer } = await checked(source, data)
  source.keepTenant('acme', layer)
  data.allowedHosts.push('b.example.test')
  expect(() => ((layer as { mode?: string }).mode = 'report')).toThrow(TypeError)
  expect(() => (layer as unknown as typeof data).allowedHosts.push('b.example.test')).toThrow(TypeError)
  expect([await isAllowed(source, 'a.example.test'), await isAllowed(source, 'b.example.test')]).toEqual([true, false])
})
