import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, it } from 'vitest'
import {
  compilePolicy,
  type EgressPolicyData,
  type EntryContext,
  type EntrySets,
  finish,
  parseHostName,
  parseLayerPolicy,
  parseLayerPolicySteps,
  parsePolicy,
  parsePolicySteps,
  parseSets,
} from '../../policies/index.ts'
import { SharedLists } from '../../policies/shared-lists.ts'

const FILE = { from: 'file' } as const
const TOKEN = { from: 'token' } as const

function faultsOf(result: ReturnType<typeof parsePolicy>): readonly string[] {
  return result.ok ? [] : result.faults.map(({ path, code }) => `${path} ${code}`)
}

describe('parsePolicy', () => {
  it.each([
    ['deny-all', { kind: 'deny-all' }],
    ['allow-all', { kind: 'allow-all' }],
    ['an empty list', { kind: 'static', allowedHosts: [] }],
    ['both lists', { kind: 'static', allowedHosts: ['*.example.com'], deniedHosts: ['bad.example.com'] }],
    ['a named policy', { kind: 'named', name: 'ci' }],
  ])('takes %s', (_sentence, data) => {
    expect(parsePolicy(data, TOKEN).ok).toBe(true)
  })

  it.each([
    ['text', 'allow-all'],
    ['nothing', undefined],
    ['null', null],
    ['a list', ['example.com']],
    ['an unknown kind', { kind: 'allow' }],
    ['a kind in another case', { kind: 'Allow-All' }],
    ['no kind', { allowedHosts: ['example.com'] }],
    ['a resolver, which no data can be', { kind: 'resolver' }],
    ['static without a list', { kind: 'static' }],
    ['a list as text', { kind: 'static', allowedHosts: 'example.com' }],
    ['a number as entry', { kind: 'static', allowedHosts: ['example.com', 7] }],
    ['null as denied list', { kind: 'static', allowedHosts: [], deniedHosts: null }],
    ['an unknown member', { kind: 'allow-all', allowedHosts: ['example.com'] }],
    ['a misspelt denied list', { kind: 'static', allowedHosts: ['example.com'], deniedHost: ['a.example.com'] }],
    ['a mode, which a token cannot ask for', { kind: 'deny-all', mode: 'report' }],
    ['a named policy without a name', { kind: 'named' }],
    ['a named policy with an empty name', { kind: 'named', name: '' }],
    ['a kind by way of the prototype', JSON.parse('{"__proto__": {"kind": "allow-all"}}')],
    ['more entries than a list may hold', { kind: 'static', allowedHosts: Array<string>(10_001).fill('a.example') }],
  ])('refuses %s', (_sentence, data: unknown) => {
    const result = parsePolicy(data, TOKEN)
    expect(result.ok).toBe(false)
    expect(faultsOf(result).length).toBeGreaterThan(0)
  })

  it('takes a hundred thousand entries from the operator, and every one of them counts', () => {
    const allowedHosts = Array.from({ length: 100_000 }, (_, index) => `*.zone-${index}.example.com`)
    const long = compilePolicy({ kind: 'static', allowedHosts }, FILE)
    if (!long.ok || long.value.kind !== 'static' || long.value.allowed === 'any') throw new Error('no table')
    const { allowed } = long.value
    const found = (name: string) => {
      const host = parseHostName(name)
      return host.ok ? allowed.findName(host.value, 443) : undefined
    }
    for (let index = 0; index < 100_000; index += 101)
      expect(found(`a.zone-${index}.example.com`)).toMatchObject({ text: `*.zone-${index}.example.com` })
    expect(found('zone-7.example.com')).toBeUndefined()
    expect(found('a.zone-100000.example.com')).toBeUndefined()
    for (const context of [FILE, TOKEN])
      expect(faultsOf(parsePolicy({ kind: 'static', allowedHosts: [...allowedHosts, 'one.more'] }, context))).toEqual([
        'allowedHosts policy_shape',
      ])
    expect(
      parsePolicy({ kind: 'static', allowedHosts: [], deniedHosts: allowedHosts.slice(0, 10_001) }, TOKEN).ok,
    ).toBe(false)
  })

  it('tells of unknown keys and of faulty entries at once, in a file', () => {
    const data = {
      kind: 'static',
      allowedHost: [],
      'a\u001bb': 1,
      allowedHosts: ['*', 'a.example'],
      deniedHosts: ['x y'],
    }
    const told = (context: EntryContext) => {
      const result = parseLayerPolicy(data, context)
      return result.ok ? [] : result.faults.map(({ path, message }) => `${path}: ${message}`)
    }
    expect(told(FILE)).toEqual([
      'allowedHost: unknown key',
      ': unknown key `a\\u001bb`',
      'allowedHosts[0]: `*` is refused: a star alone covers everything',
      'deniedHosts[0]: `x y` is refused: an entry has no spaces',
    ])
    expect(told(TOKEN)).toHaveLength(2)
  })

  it('says what is missing, and tells of a hundred unknown keys at most', () => {
    const required = parseLayerPolicy({ kind: 'static' }, FILE)
    expect(required).toMatchObject({ faults: [{ path: 'allowedHosts', message: 'is required' }] })
    const keys = Object.fromEntries(Array.from({ length: 10_000 }, (_, index) => [`k${index}`, 1]))
    const many = parseLayerPolicy({ kind: 'deny-all', ...keys }, FILE)
    expect(many.ok ? [] : many.faults).toHaveLength(100)
  })

  it('names a thousand faulty entries, and looks for no more', () => {
    const allowedHosts = Array.from({ length: 50_000 }, (_, index) => `http://${'*.'.repeat(100)}${index}`)
    const result = parsePolicy({ kind: 'static', allowedHosts }, FILE)
    expect(faultsOf(result)).toHaveLength(1_000)
  })

  it('comes to the same in steps, and stops after each hundred entries', () => {
    const data = {
      kind: 'static',
      allowedHosts: ['a.example.com', '*.example.org:8443', '198.51.100.0/24', '@pypi', 'x y'],
    }
    const steps = parsePolicySteps(data, FILE)
    expect(finish(steps)).toEqual(parsePolicy(data, FILE))
    const long = parseLayerPolicySteps(
      { kind: 'static', mode: 'report', allowedHosts: Array.from({ length: 20_000 }, (_, i) => `h${i}.example.com`) },
      FILE,
    )
    let count = 0
    for (let step = long.next(); step.done !== true; step = long.next()) count++
    expect(count).toBeGreaterThan(200)
  })

  it('names every faulty entry of both lists at once', () => {
    const data = {
      kind: 'static',
      allowedHosts: ['ok.example', '*', 'https://x.example'],
      deniedHosts: ['*.com', 'ok.example'],
    }
    expect(faultsOf(parsePolicy(data, FILE))).toEqual([
      'allowedHosts[1] wildcard_too_wide',
      'allowedHosts[2] scheme',
      'deniedHosts[0] wildcard_too_wide',
    ])
  })

  it('a Unicode name is for files only', () => {
    const data = { kind: 'static', allowedHosts: ['b\u00fccher.example'] }
    expect(parsePolicy(data, FILE).ok).toBe(true)
    expect(faultsOf(parsePolicy(data, TOKEN))).toEqual(['allowedHosts[0] unicode'])
  })
})

describe('parseLayerPolicy', () => {
  it('enforces unless it is told to report', () => {
    const modeOf = (data: unknown): unknown => {
      const layer = parseLayerPolicy(data, FILE)
      return layer.ok ? layer.value.mode : layer.faults
    }
    expect(modeOf({ kind: 'deny-all' })).toBe('enforce')
    expect(modeOf({ kind: 'static', allowedHosts: [], mode: 'report' })).toBe('report')
    expect(modeOf({ kind: 'deny-all', mode: 'off' })).toMatchObject([{ path: 'mode' }])
  })
})

describe('compilePolicy', () => {
  it('keeps the canonical texts, each entry once, and cannot be changed', () => {
    const compiled = compilePolicy(
      {
        kind: 'static',
        allowedHosts: ['API.example.com', 'api.example.com.', '@pypi'],
        deniedHosts: ['*.Example.com:8443'],
      },
      FILE,
    )
    if (!compiled.ok || compiled.value.kind !== 'static') throw new Error('it should compile')
    expect(compiled.value.allowedHosts).toEqual(['api.example.com', '@pypi'])
    expect(compiled.value.deniedHosts).toEqual(['*.example.com:8443'])
    expect(Object.isFrozen(compiled.value) && Object.isFrozen(compiled.value.allowedHosts)).toBe(true)
  })

  it('does not look at the data again', () => {
    const allowedHosts = ['api.example.com']
    const data: EgressPolicyData = { kind: 'static', allowedHosts }
    const compiled = compilePolicy(data, FILE)
    allowedHosts.push('evil.example')
    expect(compiled.ok && compiled.value.kind === 'static' && compiled.value.allowedHosts).toEqual(['api.example.com'])
  })
})

describe('equal lists', () => {
  const list = (allowedHosts: readonly string[], deniedHosts?: readonly string[]): EgressPolicyData => ({
    kind: 'static',
    allowedHosts,
    deniedHosts,
  })
  const compiled = (data: EgressPolicyData, context: EntryContext) => {
    const policy = compilePolicy(data, context)
    return policy.ok ? policy.value : undefined
  }

  it('are compiled once', () => {
    expect(compiled(list(['once.example.com']), FILE)).toBe(compiled(list(['once.example.com'], []), FILE))
  })

  it.each([
    ['another order', list(['b.example.com', 'a.example.com'])],
    ['one denied instead', list(['a.example.com'], ['b.example.com'])],
    ['two in one text', list(['a.example.com","b.example.com'])],
    ['one more', list(['a.example.com', 'b.example.com', 'c.example.com'])],
  ])('are not those with %s', (_sentence, data) => {
    const first = compiled(list(['a.example.com', 'b.example.com']), FILE)
    expect(first).toBeDefined()
    expect(compiled(data, FILE)).not.toBe(first)
  })

  it('are the same as their canonical form, which is what is kept of them', () => {
    const first = compiled(list(['API.example.com', 'api.example.com', 'b\u00fccher.example']), FILE)
    expect(first?.kind).toBe('static')
    expect(compiled(list(['api.example.com', 'xn--bcher-kva.example']), FILE)).toBe(first)
  })

  it('mean what the sets of their own context say, and what their own place may say', () => {
    const sets = (host: string): EntrySets => {
      const read = parseSets({ ours: [host] })
      if (!read.ok) throw new Error('no set')
      return read.value
    }
    const [one, other] = [sets('one.example.com'), sets('other.example.com')]
    const first = compiled(list(['@ours']), { from: 'file', sets: one })
    expect(first).toBe(compiled(list(['@ours']), { from: 'file', sets: one }))
    const second = compiled(list(['@ours']), { from: 'file', sets: other })
    expect(second).toBeDefined()
    expect(second).not.toBe(first)
    expect(compiled(list(['@ours']), FILE)).toBeUndefined()
    expect(compiled(list(['bücher.example']), FILE)).toBeDefined()
    expect(compiled(list(['bücher.example']), TOKEN)).toBeUndefined()
  })

  it('are forgotten when nobody holds them', async () => {
    setFlagsFromString('--expose-gc')
    const collect = runInNewContext('gc') as () => void
    const lists = new SharedLists()
    const make = (count: number): void => {
      for (let index = 0; index < count; index++) {
        const policy = compiled(list([`gone-${index}.example.com`]), { from: 'file', sets: new Map() })
        if (policy?.kind === 'static') lists.keep(`gone-${index}`, policy)
      }
    }
    make(100)
    expect(lists.size).toBe(100)
    await expect
      .poll(() => {
        collect()
        return lists.size
      })
      .toBe(0)
  })
})
