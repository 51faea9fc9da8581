import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import http from 'node:http'
import type net from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { decideName, parseAuthority, type CompiledPolicy, type Layers } from '../../../policies/index.ts'
import { createPolicySource, type PolicySource, type PolicySourceOptions } from '../../../proxy/policy/policy-source.ts'
import { httpTenantResolver } from '../../../proxy/policy/tenant-resolver.ts'
import type { Identity } from '../../../proxy/tokens/identity.ts'
import { rules } from '../egress/permits.ts'

const ALL: CompiledPolicy = { kind: 'allow-all' }

const closing: (() => unknown)[] = []
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
})
afterEach(async () => {
  vi.useRealTimers()
  for (const close of closing.splice(0).reverse()) await close()
})

describe('layers', () => {
  test('ceiling, tenant and claim, in that order, the denied hosts of the operator first', () => {
    const source = make({
      policy: {
        ceiling: { kind: 'allow-all' },
        deniedHosts: ['bad.example.test'],
        tenants: { acme: { kind: 'static', allowedHosts: ['api.example.test'], mode: 'report' } },
      },
    })
    const { layers } = now(source, identity({ tenant: 'acme' }))
    expect(layers.map(({ name, mode, policy }) => [name, mode, policy.kind])).toEqual([
      ['ceiling', 'enforce', 'static'],
      ['ceiling', 'enforce', 'allow-all'],
      ['tenant', 'report', 'static'],
      ['claim', 'enforce', 'allow-all'],
    ])
  })

  const section: PolicySourceOptions['policy'] = {
    ceiling: { kind: 'allow-all' },
    deniedHosts: ['bad.example.test', '@corp'],
    sets: { corp: ['secret.example.test'] },
    named: { narrow: { kind: 'static', allowedHosts: ['narrow.example.test'] } },
    tenants: {
      acme: { kind: 'static', allowedHosts: ['api.example.test', 'bad.example.test', '@npm'] },
      watched: { kind: 'static', allowedHosts: ['api.example.test'], mode: 'report' },
      named: { kind: 'named', name: 'narrow' },
      lost: { kind: 'named', name: 'nosuch' },
    },
  }
  const rows: readonly (readonly [string, Partial<Identity>, string, string])[] = [
    ['no tenant, no tenant layer', {}, 'any.example.test', 'allow'],
    ['a tenant gets what is its own', { tenant: 'acme' }, 'api.example.test', 'allow'],
    ['and nothing else', { tenant: 'acme' }, 'any.example.test', 'host_not_allowed tenant'],
    ['the operator denies whatever the tenant allows', { tenant: 'acme' }, 'bad.example.test', 'host_denied ceiling'],
    ['also by a set', {}, 'secret.example.test', 'host_denied ceiling'],
    ["the machine's sets are sets", { tenant: 'acme' }, 'npm.example.test', 'allow'],
    ['a reporting tenant lets through', { tenant: 'watched' }, 'any.example.test', 'allow report'],
    ['but not what the operator denies', { tenant: 'watched' }, 'bad.example.test', 'host_denied ceiling'],
    ['a tenant that nobody configured', { tenant: 'nobody' }, 'api.example.test', 'host_not_allowed tenant'],
    ['a tenant with a name of every object', { tenant: 'constructor' }, 'api.example.test', 'host_not_allowed tenant'],
    ['a tenant by a named policy', { tenant: 'named' }, 'narrow.example.test', 'allow'],
    ['and nothing else', { tenant: 'named' }, 'api.example.test', 'host_not_allowed tenant'],
    ['a tenant by a name that there is not', { tenant: 'lost' }, 'api.example.test', 'policy_unavailable tenant'],
    ['a claim by a named policy', { claim: { kind: 'named', name: 'narrow' } }, 'narrow.example.test', 'allow'],
    [
      'a claim by a name that there is not',
      { claim: { kind: 'named', name: 'nosuch' } },
      'narrow.example.test',
      'policy_unavailable claim',
    ],
    [
      'a claim by a name of every object',
      { claim: { kind: 'named', name: '__proto__' } },
      'narrow.example.test',
      'policy_unavailable claim',
    ],
    ['a claim that denies all', { claim: { kind: 'deny-all' } }, 'api.example.test', 'host_not_allowed claim'],
  ]
  test.each(rows)('%s', (_sentence, who, host, expected) => {
    const source = make({ policy: section, machineSets: { npm: ['npm.example.test'], apt: [] } })
    expect(verdict(now(source, identity(who)), host)).toBe(expected)
  })

  test('an empty section denies all', () => {
    expect(verdict(now(make({ policy: {} }), identity({})), 'api.example.test')).toBe('host_not_allowed ceiling')
  })

  test('an identity that is asked for again costs one look-up', () => {
    const source = make({ policy: section })
    const who = identity({ tenant: 'acme' })
    expect(now(source, who)).toBe(now(source, who))
  })

  test('every fault is told at once, and where it is', () => {
    const policy: PolicySourceOptions['policy'] = {
      ceiling: { kind: 'static', allowedHosts: ['*', '@npm'] },
      deniedHosts: ['a..b'],
      tenants: { acme: { kind: 'static', allowedHosts: ['ok.example.test', 'https://x.example.test'] } },
      named: { one: { kind: 'named', name: 'two' } },
    }
    expect(() => make({ policy })).toThrow(
      expect.objectContaining({
        code: 'SALLYPORT_POLICY_INVALID',
        message: expect.stringMatching(
          /deniedHosts\[0\]: .*named\.one: .*ceiling\.allowedHosts\[0\]: .*tenants\.acme\.allowedHosts\[1\]: /,
        ) as string,
      }),
    )
  })

  test('a faulty set is told once', () => {
    const policy: PolicySourceOptions['policy'] = {
      sets: { corp: ['a..b'] },
      ceiling: { kind: 'static', allowedHosts: ['@corp'] },
    }
    expect(() => make({ policy })).toThrow(/^the policy can not be used: sets\.corp\[0\]: [^;]*$/)
  })

  test('a faulty policy of a program is told in its own words', () => {
    const source = make({ policy: {} })
    expect(() => source.define('mine', { kind: 'static', allowedHosts: ['*'] })).toThrow(
      /^the policy can not be used: allowedHosts\[0\]: `\*` is refused/,
    )
  })
})

describe('a new section', () => {
  test('counts at once, and listeners are told', () => {
    const source = make({ policy: { ceiling: { kind: 'allow-all' } } })
    const who = identity({})
    const before = now(source, who)
    let told = 0
    const stop = source.onChange(() => told++)
    source.replace({ ceiling: { kind: 'deny-all' } })
    expect(told).toBe(1)
    const after = now(source, who)
    expect(verdict(after, 'api.example.test')).toBe('host_not_allowed ceiling')
    expect(after.version).not.toBe(before.version)
    stop()
    source.replace({ ceiling: { kind: 'allow-all' } })
    expect(told).toBe(1)
    expect(now(source, who).version).toBe(before.version)
  })

  test('that can not be used leaves the old one, and nobody is told', () => {
    const source = make({ policy: { ceiling: { kind: 'allow-all' } } })
    source.onChange(() => expect.unreachable())
    expect(() => source.replace({ ceiling: { kind: 'static', allowedHosts: ['*'] } })).toThrow(
      expect.objectContaining({ code: 'SALLYPORT_POLICY_INVALID' }),
    )
    expect(verdict(now(source, identity({})), 'api.example.test')).toBe('allow')
  })

  test('leaves kept policies as they are, but for those that name a set or a policy of the section', () => {
    const section = (hosts: readonly string[]): PolicySourceOptions['policy'] => ({
      ceiling: { kind: 'allow-all' },
      sets: { corp: hosts },
      named: { narrow: { kind: 'static', allowedHosts: hosts } },
    })
    const source = make({ policy: section(['old.example.test']) })
    source.keepTenant('plain', { kind: 'static', allowedHosts: ['own.example.test'], mode: 'enforce' })
    source.keepTenant('by-set', { kind: 'static', allowedHosts: ['@corp'], mode: 'enforce' })
    source.keepTenant('but-set', {
      kind: 'static',
      allowedHosts: ['*.example.test'],
      deniedHosts: ['@corp'],
      mode: 'enforce',
    })
    source.keepTenant('by-name', { kind: 'named', name: 'narrow', mode: 'enforce' })
    const says = (tenant: string, host: string): string => verdict(now(source, identity({ tenant })), host)
    const tenantPolicy = (tenant: string) =>
      now(source, identity({ tenant })).layers.find(({ name }) => name === 'tenant')?.policy
    const compiled = tenantPolicy('plain')

    source.replace(section(['new.example.test']))
    expect(tenantPolicy('plain')).toBe(compiled)
    expect(says('plain', 'own.example.test')).toBe('allow')
    expect(says('by-set', 'new.example.test')).toBe('allow')
    expect(says('by-set', 'old.example.test')).toBe('host_not_allowed tenant')
    expect(says('but-set', 'new.example.test')).toBe('host_denied tenant')
    expect(says('but-set', 'old.example.test')).toBe('allow')
    expect(says('by-name', 'old.example.test')).toBe('host_not_allowed tenant')

    source.replace({ ceiling: { kind: 'allow-all' } })
    expect(says('plain', 'own.example.test')).toBe('allow')
    for (const tenant of ['by-set', 'but-set', 'by-name'])
      expect(says(tenant, 'old.example.test')).toMatch(/^policy_unavailable/)
    source.replace(section(['old.example.test']))
    expect(says('by-set', 'old.example.test')).toBe('allow')
    expect(says('but-set', 'old.example.test')).toBe('host_denied tenant')
  })

  test('while a resolver of the old one is waited for, the new one counts', async () => {
    let answer: (list: readonly string[]) => void = () => undefined
    const source = make({
      policy: { ceiling: { kind: 'resolver', resolve: () => new Promise((resolve) => (answer = resolve)) } },
    })
    const pending = source.layersFor(identity({}))
    source.replace({ ceiling: { kind: 'deny-all' } })
    answer(['api.example.test'])
    expect(verdict(await pending, 'api.example.test')).toBe('host_not_allowed ceiling')
  })

  test('after closing nothing is allowed', () => {
    const source = make({ policy: { ceiling: { kind: 'allow-all' } } })
    const who = identity({})
    now(source, who)
    source.close()
    source.close()
    expect(verdict(now(source, who), 'api.example.test')).toBe('policy_unavailable')
  })
})

describe('resolver policies', () => {
  test('are asked when they are needed, once, and then kept', async () => {
    const { source, resolver } = resolving()
    expect(resolver.calls).toBe(0)
    const all = await Promise.all(Array.from({ length: 20 }, async () => source.layersFor(identity({}))))
    expect(all.map((layers) => verdict(layers, 'api.example.test'))).toEqual(all.map(() => 'allow'))
    expect(resolver.calls).toBe(1)
    expect(verdict(now(source, identity({})), 'other.example.test')).toBe('host_not_allowed ceiling')
  })

  test('are refreshed in the background after 60 seconds, and a change is told to listeners', async () => {
    const { source, resolver } = resolving()
    const who = identity({})
    const before = await source.layersFor(who)
    const told = listen(source)
    resolver.list = ['new.example.test']
    await vi.advanceTimersByTimeAsync(59_000)
    expect(resolver.calls).toBe(1)
    await vi.advanceTimersByTimeAsync(2_000)
    expect(resolver.calls).toBe(2)
    expect(told.count).toBe(1)
    const after = now(source, who)
    expect(verdict(after, 'api.example.test')).toBe('host_not_allowed ceiling')
    expect(verdict(after, 'new.example.test')).toBe('allow')
    expect(after.version).not.toBe(before.version)
    await vi.advanceTimersByTimeAsync(60_000)
    expect(resolver.calls).toBe(3)
    expect(told.count).toBe(1)
  })

  test('are kept for 300 seconds more while they fail, then unavailable, and come back', async () => {
    const { source, resolver, faults } = resolving()
    const who = identity({})
    await source.layersFor(who)
    const told = listen(source)
    resolver.fails = true
    await vi.advanceTimersByTimeAsync(359_000)
    expect(verdict(now(source, who), 'api.example.test')).toBe('allow')
    expect(told.count).toBe(0)
    expect(faults).toContain('ceiling')
    await vi.advanceTimersByTimeAsync(2_000)
    expect(told.count).toBe(1)
    expect(verdict(now(source, who), 'api.example.test')).toBe('policy_unavailable ceiling')
    resolver.fails = false
    await vi.advanceTimersByTimeAsync(6_000)
    expect(told.count).toBe(2)
    expect(verdict(now(source, who), 'api.example.test')).toBe('allow')
  })

  test('that fail from the start are unavailable, and are not asked for every connection', async () => {
    const { source, resolver } = resolving({ fails: true })
    expect(verdict(await source.layersFor(identity({})), 'api.example.test')).toBe('policy_unavailable ceiling')
    for (let place = 0; place < 50; place++)
      expect(verdict(now(source, identity({})), 'api.example.test')).toBe('policy_unavailable ceiling')
    expect(resolver.calls).toBe(1)
    resolver.fails = false
    await vi.advanceTimersByTimeAsync(5_000)
    expect(verdict(now(source, identity({})), 'api.example.test')).toBe('allow')
  })

  test('that throw instead of rejecting fail just the same', async () => {
    const source = make({
      policy: {
        ceiling: {
          kind: 'resolver',
          resolve: () => {
            throw new Error('at once')
          },
        },
      },
    })
    expect(verdict(await source.layersFor(identity({})), 'api.example.test')).toBe('policy_unavailable ceiling')
  })

  test.each<[string, unknown]>([
    ['no list', 'api.example.test'],
    ['nothing', undefined],
    ['a list with something else in it', ['api.example.test', 7]],
    ['a malformed entry', ['api.example.test', '*']],
  ])('that give %s fail: not half a policy', async (_sentence, list) => {
    const { source } = resolving({ list: list as readonly string[] })
    expect(verdict(await source.layersFor(identity({})), 'api.example.test')).toBe('policy_unavailable ceiling')
  })

  test('that give an empty list deny all', async () => {
    const { source } = resolving({ list: [] })
    expect(verdict(await source.layersFor(identity({})), 'api.example.test')).toBe('host_not_allowed ceiling')
  })

  test('that never answer hold a connection for 5 seconds, and are never asked twice at a time', async () => {
    const { source, resolver } = resolving({ hangs: true })
    const pending = source.layersFor(identity({}))
    await vi.advanceTimersByTimeAsync(5_000)
    expect(verdict(await pending, 'api.example.test')).toBe('policy_unavailable ceiling')
    await vi.advanceTimersByTimeAsync(600_000)
    expect(resolver.calls).toBe(1)
  })

  test('that hang while they are refreshed are unavailable when the stale time is over', async () => {
    const { source, resolver } = resolving()
    const who = identity({})
    await source.layersFor(who)
    const told = listen(source)
    resolver.hangs = true
    await vi.advanceTimersByTimeAsync(361_000)
    expect(resolver.calls).toBe(2)
    expect(told.count).toBe(1)
    expect(verdict(now(source, who), 'api.example.test')).toBe('policy_unavailable ceiling')
  })

  test('may stand behind a name that a token uses', async () => {
    const source = make({
      policy: {
        ceiling: { kind: 'allow-all' },
        named: { team: { kind: 'resolver', resolve: () => Promise.resolve(['api.example.test']) } },
      },
    })
    const layers = await source.layersFor(identity({ claim: { kind: 'named', name: 'team' } }))
    expect(verdict(layers, 'api.example.test')).toBe('allow')
    expect(verdict(layers, 'other.example.test')).toBe('host_not_allowed claim')
  })

  test('a replaced one is asked no more', async () => {
    const { source, resolver } = resolving()
    await source.layersFor(identity({}))
    source.replace({ ceiling: { kind: 'deny-all' } })
    await vi.advanceTimersByTimeAsync(600_000)
    expect(resolver.calls).toBe(1)
  })
})

describe('the tenant resolver', () => {
  test('is asked for tenants that are not written down, each once', async () => {
    const asked: string[] = []
    const source = make({
      policy: { ceiling: { kind: 'allow-all' }, tenants: { acme: { kind: 'deny-all' } } },
      tenantResolver: (tenant) => {
        asked.push(tenant)
        return Promise.resolve(tenant === 'known' ? { kind: 'static', allowedHosts: ['api.example.test'] } : undefined)
      },
    })
    expect(verdict(await source.layersFor(identity({ tenant: 'known' })), 'api.example.test')).toBe('allow')
    expect(verdict(now(source, identity({ tenant: 'known' })), 'other.example.test')).toBe('host_not_allowed tenant')
    expect(verdict(await source.layersFor(identity({ tenant: 'unknown' })), 'api.example.test')).toBe(
      'host_not_allowed tenant',
    )
    expect(verdict(now(source, identity({ tenant: 'acme' })), 'api.example.test')).toBe('host_not_allowed tenant')
    expect(asked).toEqual(['known', 'unknown'])
  })

  test('may name a policy of the section', async () => {
    const source = make({
      policy: {
        ceiling: { kind: 'allow-all' },
        named: { narrow: { kind: 'static', allowedHosts: ['narrow.example.test'] } },
      },
      tenantResolver: () => Promise.resolve({ kind: 'named', name: 'narrow' }),
    })
    expect(verdict(await source.layersFor(identity({ tenant: 'any' })), 'narrow.example.test')).toBe('allow')
  })

  test.each<[string, unknown]>([
    ['no policy', 7],
    ['an unknown member', { kind: 'allow-all', mode: 'report' }],
    ['a malformed entry', { kind: 'static', allowedHosts: ['*'] }],
  ])('%s is unavailable', async (_sentence, data) => {
    const source = make({ policy: { ceiling: { kind: 'allow-all' } }, tenantResolver: () => Promise.resolve(data) })
    expect(verdict(await source.layersFor(identity({ tenant: 'any' })), 'api.example.test')).toBe(
      'policy_unavailable tenant',
    )
  })

  test('does not fill the memory by policies of many tenants: who has no room is refused, and everybody else goes on', async () => {
    const entries: Record<string, number> = { one: 100, two: 100, three: 100, small: 40 }
    const faults: string[] = []
    const source = make({
      policy: { ceiling: { kind: 'allow-all' } },
      mostEntries: 250,
      tenantResolver: (tenant) => {
        const allowedHosts = Array.from({ length: entries[tenant] ?? 0 }, (_, place) => `n${place}.${tenant}.test`)
        return Promise.resolve({ kind: 'static', allowedHosts })
      },
      onFault: (policy, error) => faults.push(`${policy}: ${error instanceof Error ? error.message : ''}`),
    })
    const ask = async (tenant: string) => verdict(await source.layersFor(identity({ tenant })), `n0.${tenant}.test`)
    expect(await ask('one')).toBe('allow')
    expect(await ask('two')).toBe('allow')
    expect(await ask('three')).toBe('policy_unavailable tenant')
    expect(faults).toEqual([
      'tenant three: the policies of tenants would have more than 250 entries together, which is what there is memory for',
    ])
    expect(await ask('small')).toBe('allow')
    expect([await ask('one'), await ask('two')]).toEqual(['allow', 'allow'])
    // One that grows keeps the policy of before, while it may; one that shrinks makes room.
    Object.assign(entries, { one: 150, two: 10 })
    await vi.advanceTimersByTimeAsync(60_000)
    await vi.advanceTimersByTimeAsync(60_000)
    expect(await Promise.all(['one', 'two', 'three', 'small'].map(ask))).toEqual(['allow', 'allow', 'allow', 'allow'])
    const grown = now(source, identity({ tenant: 'one' }))
    expect([verdict(grown, 'n99.one.test'), verdict(grown, 'n149.one.test')]).toEqual([
      'allow',
      'host_not_allowed tenant',
    ])
  })

  test('a change is told, and only so many tenants are kept', async () => {
    let calls = 0
    const source = make({
      policy: { ceiling: { kind: 'allow-all' } },
      tenantResolver: () => {
        calls++
        return Promise.resolve({ kind: 'static', allowedHosts: [`n${calls}.example.test`] })
      },
    })
    await Promise.all(
      Array.from({ length: 4_200 }, async (_, place) => source.layersFor(identity({ tenant: `t${place}` }))),
    )
    expect(calls).toBe(4_200)
    const told = listen(source)
    await vi.advanceTimersByTimeAsync(60_000)
    expect(calls).toBe(4_200 + 4_096)
    expect(told.count).toBe(4_096)
  })

  describe('over HTTP', () => {
    beforeEach(() => {
      vi.useRealTimers()
    })

    test('200 with a policy, 404 for nobody', async () => {
      const { url, paths } = await service((tenant) =>
        tenant === 'acme' ? [200, JSON.stringify({ kind: 'allow-all' })] : [404, ''],
      )
      const resolver = httpTenantResolver({ url: `${url}/policy/{tenant}?of={tenant}` })
      const never = new AbortController().signal
      expect(await resolver('acme', never)).toEqual({ kind: 'allow-all' })
      expect(await resolver('a/../b?c&d', never)).toBeUndefined()
      expect(await resolver('..', never)).toBeUndefined()
      expect(paths).toEqual(['/policy/acme?of=acme', '/policy/a%2F..%2Fb%3Fc%26d?of=a%2F..%2Fb%3Fc%26d'])
    })

    test.each<[string, number, string]>([
      ['a fault of the service', 500, ''],
      ['a redirect', 302, ''],
      ['no content', 204, ''],
      ['no JSON', 200, '{'],
      ['too much', 200, JSON.stringify('x'.repeat(4_200_000))],
    ])('%s is out of reach', async (_sentence, status, body) => {
      const { url } = await service(() => [status, body])
      await expect(
        httpTenantResolver({ url: `${url}/{tenant}` })('acme', new AbortController().signal),
      ).rejects.toThrow()
    })

    test('silence is out of reach', async () => {
      const { url } = await service(() => undefined)
      const resolver = httpTenantResolver({ url: `${url}/{tenant}`, timeoutSeconds: 0.2 })
      await expect(resolver('acme', new AbortController().signal)).rejects.toMatchObject({ name: 'TimeoutError' })
    })

    test('an answer that did not change is asked for by its ETag, and stands for that of before', async () => {
      const asked: (string | undefined)[] = []
      let hosts = ['api.example.test']
      const { url } = await service((_tenant, request, response) => {
        asked.push(request.headers['if-none-match'])
        const etag = `"${hosts.join()}"`
        response.setHeader('etag', etag)
        if (request.headers['if-none-match'] === etag) return [304, '']
        return [200, JSON.stringify({ kind: 'static', allowedHosts: hosts })]
      })
      const resolver = httpTenantResolver({ url: `${url}/{tenant}` })
      const [memory, never] = [{}, new AbortController().signal]
      const first = await resolver('acme', never, memory)
      expect(first).toEqual({ kind: 'static', allowedHosts: ['api.example.test'] })
      expect(await resolver('acme', never, memory)).toBe(first)
      hosts = ['other.example.test']
      expect(await resolver('acme', never, memory)).toMatchObject({ allowedHosts: hosts })
      expect(await resolver('other', never, {})).toMatchObject({ allowedHosts: hosts })
      expect(asked).toEqual([undefined, '"api.example.test"', '"api.example.test"', undefined])
    })

    test('a 304 that nobody asked for is out of reach, and an ETag that is none is not sent back', async () => {
      const { url } = await service((tenant, request, response) => {
        if (tenant === 'liar') return [304, '']
        response.setHeader('etag', 'a b')
        expect(request.headers['if-none-match']).toBeUndefined()
        return [200, '{"kind":"allow-all"}']
      })
      const resolver = httpTenantResolver({ url: `${url}/{tenant}` })
      const [memory, never] = [{}, new AbortController().signal]
      await expect(resolver('liar', never, memory)).rejects.toMatchObject({ code: 'SALLYPORT_POLICY_INVALID' })
      expect(await resolver('acme', never, memory)).toEqual({ kind: 'allow-all' })
      expect(await resolver('acme', never, memory)).toEqual({ kind: 'allow-all' })
    })

    test('the token of a file is sent, read anew each time; without it nobody is asked', async () => {
      const sent: (string | undefined)[] = []
      const { url } = await service((_tenant, request) => {
        sent.push(request.headers.authorization)
        return [200, '{"kind":"allow-all"}']
      })
      const folder = mkdtempSync(join(tmpdir(), 'sallyport-resolver-'))
      closing.push(() => rmSync(folder, { recursive: true }))
      const tokenFile = join(folder, 'token')
      const resolver = httpTenantResolver({ url: `${url}/{tenant}`, tokenFile })
      const never = new AbortController().signal
      for (const token of ['first', 'second']) {
        writeFileSync(tokenFile, `${token}\n`)
        await resolver('acme', never)
      }
      expect(sent).toEqual(['Bearer first', 'Bearer second'])
      for (const text of ['', 'two\nlines', 'not a token']) {
        writeFileSync(tokenFile, text)
        const fault: unknown = await resolver('acme', never).catch((error: unknown) => error)
        expect(fault).toMatchObject({ code: 'SALLYPORT_POLICY_INVALID' })
        if (text !== '') expect(String(fault)).not.toContain(text)
      }
      expect(sent).toHaveLength(2)
    })

    test.each<[string, string]>([
      ['HTML', '<html><body>secret-of-the-page</body></html>'],
      ['a policy of no kind', '{"kind":"secret-of-the-page"}'],
      ['an entry too wide', '{"kind":"static","allowedHosts":["*"]}'],
      ["a mode, which is the operator's to set", '{"kind":"allow-all","mode":"report"}'],
      ['an empty answer', ''],
      ['null', 'null'],
    ])('%s in a 200 is out of reach: denied at first, and later the old policy is kept', async (_sentence, lie) => {
      let body = lie
      const { url } = await service(() => [200, body])
      const faults: string[] = []
      const policy = {
        ceiling: { kind: 'allow-all' as const },
        tenantResolver: { url: `${url}/{tenant}`, ttlSeconds: 0.05, staleSeconds: 60 },
      }
      const source = make({ policy, onFault: (_which, error) => void faults.push(String(error)) })
      const who = identity({ tenant: 'acme' })
      expect(verdict(await source.layersFor(who), 'api.example.test')).toBe('policy_unavailable tenant')
      body = '{"kind":"allow-all"}'
      await vi.waitFor(() => expect(verdict(now(source, who), 'api.example.test')).toBe('allow'))
      body = lie
      const before = faults.length
      await vi.waitFor(() => expect(faults.length).toBeGreaterThan(before + 1))
      expect(verdict(now(source, who), 'api.example.test')).toBe('allow')
      expect(faults.join()).not.toContain('secret-of-the-page<')
    })

    test.each(['http://127.0.0.1/policy', 'http://{tenant}.example.test/policy', 'http://127.0.0.1:{tenant}/'])(
      '`%s` is refused',
      (url) => {
        expect(() => httpTenantResolver({ url })).toThrow(TypeError)
      },
    )

    test('from the section of the configuration, in report mode', async () => {
      const { url } = await service(() => [200, JSON.stringify({ kind: 'static', allowedHosts: [] })])
      const source = make({
        policy: { ceiling: { kind: 'allow-all' }, tenantResolver: { url: `${url}/{tenant}`, mode: 'report' } },
      })
      expect(verdict(await source.layersFor(identity({ tenant: 'acme' })), 'api.example.test')).toBe('allow report')
    })
  })
})

function make(options: PolicySourceOptions): PolicySource {
  const source = createPolicySource(options)
  closing.push(() => source.close())
  return source
}

function resolving(start: { list?: readonly string[]; fails?: boolean; hangs?: boolean } = {}) {
  const resolver = { list: ['api.example.test'] as readonly string[], fails: false, hangs: false, calls: 0, ...start }
  const faults: string[] = []
  const resolve = (): Promise<readonly string[]> => {
    resolver.calls++
    if (resolver.hangs) return new Promise(() => undefined)
    return resolver.fails ? Promise.reject(new Error('out of reach')) : Promise.resolve(resolver.list)
  }
  const source = make({
    policy: { ceiling: { kind: 'resolver', resolve } },
    onFault: (policy) => void faults.push(policy),
  })
  return { source, resolver, faults }
}

function listen(source: PolicySource) {
  const told = { count: 0 }
  source.onChange(() => told.count++)
  return told
}

function now(source: PolicySource, who: Identity): Layers {
  const layers = source.layersFor(who)
  if (layers instanceof Promise) throw new Error('not known yet')
  return layers
}

function verdict(layers: Layers, host: string): string {
  const target = parseAuthority(`${host}:443`)
  if (!target.ok) throw new Error(target.fault.message)
  const decided = decideName(layers, target.value, rules([]))
  if (decided.effective === 'deny') return [decided.reason, decided.layer].filter(Boolean).join(' ')
  return decided.report === undefined ? 'allow' : 'allow report'
}

function identity(who: Partial<Identity>): Identity {
  return {
    tokenId: 'id',
    issuer: 'https://issuer.example.test',
    keyId: undefined,
    sandbox: 'sbx_1',
    tenant: undefined,
    issuedAtMs: 0,
    expiresAtMs: 1_000_000,
    claim: ALL,
    binding: undefined,
    ...who,
  }
}

async function service(
  answer: (
    tenant: string,
    request: http.IncomingMessage,
    response: http.ServerResponse,
  ) => readonly [number, string] | undefined,
) {
  const paths: string[] = []
  const server = http.createServer((request, response) => {
    paths.push(request.url ?? '')
    const tenant = decodeURIComponent(/[^/?]+(?=\?|$)/.exec(request.url ?? '')?.[0] ?? '')
    const given = answer(tenant, request, response)
    if (given === undefined) return
    response.writeHead(given[0], given[0] === 302 ? { location: '/elsewhere' } : {}).end(given[1])
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  closing.push(() => {
    server.closeAllConnections()
    return new Promise((resolve) => server.close(resolve))
  })
  return { paths, url: `http://127.0.0.1:${(server.address() as net.AddressInfo).port}` }
}
