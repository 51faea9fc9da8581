import { afterEach, describe, expect, test } from 'vitest'
import { parseHostName, type HostName } from '../../../policies/index.ts'
import { createResolver, type Resolved, type Resolver, type ResolverOptions } from '../../../proxy/egress/resolver.ts'
import { parseFixedHosts } from '../../../proxy/egress/fixed-hosts.ts'
import { a, aaaa, cname, startDnsServer, type DnsQuery, type DnsReply, type DnsServer } from './dns-server.ts'
import { deferred } from './deferred.ts'

const open: { close(): unknown }[] = []
afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.close()
})

describe('what a name resolves to', () => {
  test('A and AAAA together, A first, asked as a full name without search domains', async () => {
    const { resolver, server } = await setUp((query) => ({
      answers: query.type === 'A' ? [a(query.name, '192.0.2.1')] : [aaaa(query.name, '2001:db8::1')],
    }))
    expect(texts(await resolver.resolve(name('api.example.test')))).toEqual(['192.0.2.1', '2001:db8::1'])
    expect(server.queries.map((query) => [query.name, query.type]).sort()).toEqual([
      ['api.example.test', 'A'],
      ['api.example.test', 'AAAA'],
    ])
  })

  test('a single label is asked as it is, once for each family', async () => {
    const { resolver, server } = await setUp(() => ({ rcode: 3 }))
    expect(await resolver.resolve(name('metadata'))).toMatchObject({ ok: false, reason: 'dns_failed' })
    expect(server.queries.map((query) => query.name)).toEqual(['metadata', 'metadata'])
  })

  test('localhost is a name like any other: the hosts file of the machine is not read', async () => {
    const { resolver, server } = await setUp(() => ({ rcode: 3 }))
    expect(await resolver.resolve(name('localhost'))).toMatchObject({ ok: false, reason: 'dns_failed' })
    expect(server.queries).toHaveLength(2)
  })

  test('a chain of CNAMEs ends in its addresses', async () => {
    const { resolver } = await setUp((query) => ({
      answers: [
        cname(query.name, 'one.example.test'),
        cname('one.example.test', 'two.example.test'),
        ...(query.type === 'A' ? [a('two.example.test', '192.0.2.9')] : []),
      ],
    }))
    expect(texts(await resolver.resolve(name('www.example.test')))).toEqual(['192.0.2.9'])
  })

  test('a chain of CNAMEs without an address is a failure', async () => {
    const { resolver } = await setUp((query) => ({ answers: [cname(query.name, 'www.example.test')] }))
    expect(await resolver.resolve(name('www.example.test'))).toMatchObject({ ok: false, reason: 'dns_failed' })
  })

  test('all addresses of a mixed answer are given, for the decision to judge', async () => {
    const { resolver } = await setUp((query) =>
      query.type === 'A'
        ? { answers: [a(query.name, '203.0.113.1'), a(query.name, '10.0.0.1')] }
        : { answers: [aaaa(query.name, '::1')] },
    )
    expect(texts(await resolver.resolve(name('mixed.example.test')))).toEqual(['203.0.113.1', '10.0.0.1', '::1'])
  })

  test('an address that is answered twice is given once', async () => {
    const { resolver } = await setUp((query) => ({
      answers: query.type === 'A' ? [a(query.name, '192.0.2.1'), a(query.name, '192.0.2.1')] : [],
    }))
    expect(texts(await resolver.resolve(name('twice.example.test')))).toEqual(['192.0.2.1'])
  })

  test('64 addresses are judged', async () => {
    const { resolver } = await setUp(many(64))
    expect(texts(await resolver.resolve(name('big.example.test')))).toHaveLength(64)
  })

  test.each([65, 1_900])('%i addresses are more than can be judged whole', async (count) => {
    const { resolver } = await setUp(many(count))
    expect(await resolver.resolve(name('huge.example.test'))).toMatchObject({ ok: false, reason: 'dns_failed' })
  })

  test('an answer that was cut is asked for again over TCP', async () => {
    const { resolver, server } = await setUp((query) => {
      if (query.transport === 'udp') return { truncated: true, answers: [] }
      return { answers: query.type === 'A' ? [a(query.name, '192.0.2.7')] : [] }
    })
    expect(texts(await resolver.resolve(name('long.example.test')))).toEqual(['192.0.2.7'])
    expect(server.queries.filter((query) => query.transport === 'tcp')).toHaveLength(2)
  })
})

describe('one family fails', () => {
  const rows: readonly (readonly [string, string, DnsReply])[] = [
    ['AAAA gives SERVFAIL', 'AAAA', { rcode: 2 }],
    ['AAAA gives NXDOMAIN', 'AAAA', { rcode: 3 }],
    ['AAAA is dropped', 'AAAA', undefined],
    ['AAAA is rubbish', 'AAAA', { send: () => [Buffer.from('rubbish')] }],
    ['A gives SERVFAIL', 'A', { rcode: 2 }],
    ['A gives NXDOMAIN', 'A', { rcode: 3 }],
    ['A is dropped', 'A', undefined],
  ]
  test.each(rows)('%s: the other one is taken, soon', async (_sentence, failing, reply) => {
    const { resolver } = await setUp((query) => {
      if (query.type === failing) return reply
      return { answers: [query.type === 'A' ? a(query.name, '192.0.2.1') : aaaa(query.name, '2001:db8::1')] }
    })
    const resolved = await resolver.resolve(name('half.example.test'))
    expect(texts(resolved)).toEqual([failing === 'AAAA' ? '192.0.2.1' : '2001:db8::1'])
    expect(resolved.ms).toBeLessThan(2_000)
  })
})

describe('failures', () => {
  const rows: readonly (readonly [string, (query: DnsQuery) => DnsReply, 'dns_failed' | 'dns_timeout'])[] = [
    ['NXDOMAIN', () => ({ rcode: 3 }), 'dns_failed'],
    ['SERVFAIL', () => ({ rcode: 2 }), 'dns_failed'],
    ['REFUSED', () => ({ rcode: 5 }), 'dns_failed'],
    ['no data', () => ({}), 'dns_failed'],
    ['silence', () => undefined, 'dns_timeout'],
    ['one family has none and the other is silent', (query) => (query.type === 'A' ? {} : undefined), 'dns_timeout'],
    [
      'a forged id',
      (query) => ({ answers: [a(query.name, '192.0.2.66')], send: (right) => [withOtherId(right)] }),
      'dns_timeout',
    ],
    [
      'a forged question',
      (query) => ({ answers: [a(query.name, '192.0.2.66')], send: (right) => [withOtherQuestion(right)] }),
      'dns_timeout',
    ],
  ]
  test.each(rows)('%s', async (_sentence, answer, reason) => {
    const { resolver } = await setUp(answer, { timeoutMs: 600 })
    const startedMs = performance.now()
    expect(await resolver.resolve(name('bad.example.test'))).toMatchObject({ ok: false, reason })
    expect(performance.now() - startedMs).toBeLessThan(1_500)
  })

  test('a forged answer before the right one is passed over', async () => {
    const { resolver } = await setUp((query) => ({
      answers: query.type === 'A' ? [a(query.name, '192.0.2.1')] : [],
      send: (right) => [withOtherId(forged(right)), withOtherQuestion(forged(right)), right],
    }))
    expect(texts(await resolver.resolve(name('race.example.test')))).toEqual(['192.0.2.1'])
  })

  test('a server where nobody listens is a failure, at once', async () => {
    const closed = await startDnsServer(() => undefined)
    await closed.close()
    const resolver = make({ servers: [closed.text] })
    const resolved = await resolver.resolve(name('any.example.test'))
    expect(resolved.ok).toBe(false)
    expect(resolved.ms).toBeLessThan(6_000)
  })
})

describe('several servers', () => {
  test.each<[string, DnsReply]>([
    ['fails', { rcode: 2 }],
    ['refuses', { rcode: 5 }],
    ['is silent', undefined],
  ])('the second is asked when the first %s', async (_sentence, reply) => {
    const first = await serve(() => reply)
    const second = await serve((query) => ({ answers: query.type === 'A' ? [a(query.name, '192.0.2.2')] : [] }))
    const resolver = make({ servers: [first.text, second.text], timeoutMs: 2_000 })
    expect(texts(await resolver.resolve(name('api.example.test')))).toEqual(['192.0.2.2'])
  })

  test('the second is not asked when the first says that there is no such name', async () => {
    const first = await serve(() => ({ rcode: 3 }))
    const second = await serve((query) => ({ answers: [a(query.name, '192.0.2.2')] }))
    const resolver = make({ servers: [first.text, second.text] })
    expect(await resolver.resolve(name('api.example.test'))).toMatchObject({ ok: false, reason: 'dns_failed' })
    expect(second.queries).toEqual([])
  })

  test('all are silent: one time-out in all', async () => {
    const servers = [await serve(() => undefined), await serve(() => undefined), await serve(() => undefined)]
    const resolver = make({ servers: servers.map((server) => server.text), timeoutMs: 500 })
    const resolved = await resolver.resolve(name('api.example.test'))
    expect(resolved).toMatchObject({ ok: false, reason: 'dns_timeout' })
    expect(resolved.ms).toBeLessThan(1_000)
  })

  test('an IPv6 server with a port', async () => {
    const server = await serve((query) => ({ answers: query.type === 'A' ? [a(query.name, '192.0.2.2')] : [] }), '::1')
    const resolver = make({ servers: [server.text] })
    expect(texts(await resolver.resolve(name('api.example.test')))).toEqual(['192.0.2.2'])
  })

  test.each([
    '',
    'dns.example.test',
    '10.0.0.1:0',
    '10.0.0.1:65536',
    '10.0.0.1:',
    '[10.0.0.1]:53',
    '[::1',
    'fe80::1%eth0',
    '1.2.3:53',
  ])('`%s` is no server', (text) => {
    expect(() => createResolver({ servers: [text] })).toThrow(TypeError)
  })

  test.each(['10.0.0.2', '10.0.0.3:5353', '::1', '[::1]', '[2001:db8::2]:53'])('`%s` is a server', (text) => {
    createResolver({ servers: [text] }).close()
  })
})

describe('what is kept', () => {
  const rows: readonly (readonly [string, number, number, boolean])[] = [
    ['an answer is kept for its TTL', 30, 29_000, true],
    ['and not beyond it', 30, 31_000, false],
    ['a huge TTL counts for a minute at most', 2_147_483_647, 59_000, true],
    ['and not for more', 2_147_483_647, 61_000, false],
    ['TTL 0 is not kept', 0, 1, false],
  ]
  test.each(rows)('%s', async (_sentence, ttl, laterMs, isKept) => {
    const clock = manualClock()
    const { resolver, server } = await setUp(
      (query) => ({ answers: query.type === 'A' ? [a(query.name, '192.0.2.1', ttl)] : [] }),
      { clock },
    )
    await resolver.resolve(name('kept.example.test'))
    clock.forward(laterMs)
    const again = resolver.resolve(name('kept.example.test'))
    expect(again instanceof Promise).toBe(!isKept)
    expect(texts(await again)).toEqual(['192.0.2.1'])
    expect(server.queries).toHaveLength(isKept ? 2 : 4)
  })

  test('the shortest TTL of the records counts', async () => {
    const clock = manualClock()
    const { resolver } = await setUp(
      (query) => ({
        answers: query.type === 'A' ? [a(query.name, '192.0.2.1', 50), a(query.name, '192.0.2.2', 5)] : [],
      }),
      { clock },
    )
    await resolver.resolve(name('kept.example.test'))
    clock.forward(6_000)
    expect(resolver.resolve(name('kept.example.test'))).toBeInstanceOf(Promise)
  })

  test('a failure is kept for 5 seconds', async () => {
    const clock = manualClock()
    const { resolver, server } = await setUp(() => ({ rcode: 3 }), { clock })
    await resolver.resolve(name('no.example.test'))
    clock.forward(4_900)
    expect(resolver.resolve(name('no.example.test'))).toEqual({ ok: false, reason: 'dns_failed', ms: 0 })
    clock.forward(200)
    await resolver.resolve(name('no.example.test'))
    expect(server.queries).toHaveLength(4)
  })

  test('an answer of which one family failed is kept for 5 seconds', async () => {
    const clock = manualClock()
    const { resolver } = await setUp(
      (query) => (query.type === 'A' ? { answers: [a(query.name, '192.0.2.1', 600)] } : { rcode: 2 }),
      { clock },
    )
    await resolver.resolve(name('half.example.test'))
    clock.forward(5_100)
    expect(resolver.resolve(name('half.example.test'))).toBeInstanceOf(Promise)
  })

  test('invented names push out no real one', async () => {
    const { resolver, server } = await setUp((query) =>
      query.name === 'real.example.test'
        ? { answers: query.type === 'A' ? [a(query.name, '192.0.2.1')] : [] }
        : { rcode: 3 },
    )
    await resolver.resolve(name('real.example.test'))
    for (let batch = 0; batch < 6; batch++) {
      await Promise.all(
        Array.from({ length: 100 }, async (_, place) => resolver.resolve(name(`n${batch}-${place}.example.test`))),
      )
    }
    const asked = server.queries.length
    expect(texts(await resolver.resolve(name('real.example.test')))).toEqual(['192.0.2.1'])
    // 600 were invented, and 512 are kept: the last ones.
    expect(await resolver.resolve(name('n1-0.example.test'))).toMatchObject({ ok: false })
    expect(await resolver.resolve(name('n5-99.example.test'))).toMatchObject({ ok: false })
    expect(server.queries.length).toBe(asked)
    await resolver.resolve(name('n0-0.example.test'))
    expect(server.queries.length).toBe(asked + 2)
  })
})

describe('several callers', () => {
  test('one look-up serves all who ask at the same time', async () => {
    const { resolver, server } = await setUp((query) => ({
      answers: query.type === 'A' ? [a(query.name, '192.0.2.1', 0)] : [],
    }))
    const all = await Promise.all(Array.from({ length: 50 }, async () => resolver.resolve(name('busy.example.test'))))
    expect(all.map(texts)).toEqual(all.map(() => ['192.0.2.1']))
    expect(server.queries).toHaveLength(2)
  })

  test('a caller who gives up leaves the others their answer', async () => {
    const gate = deferred()
    const { resolver } = await setUp(async (query) => {
      await gate.promise
      return { answers: query.type === 'A' ? [a(query.name, '192.0.2.1')] : [] }
    })
    const abort = new AbortController()
    const given = resolver.resolve(name('slow.example.test'), abort.signal)
    const kept = resolver.resolve(name('slow.example.test'))
    abort.abort(new Error('the client is gone'))
    await expect(given).rejects.toThrow('the client is gone')
    gate.resolve()
    expect(texts(await kept)).toEqual(['192.0.2.1'])
  })

  test('a caller who has given up before asks nothing', async () => {
    const { resolver, server } = await setUp(() => ({ rcode: 3 }))
    await expect(resolver.resolve(name('any.example.test'), AbortSignal.abort(new Error('gone')))).rejects.toThrow(
      'gone',
    )
    expect(server.queries).toEqual([])
  })

  test('look-ups of different names use different source ports', async () => {
    const { resolver, server } = await setUp(() => ({ rcode: 3 }))
    await Promise.all(Array.from({ length: 10 }, async (_, place) => resolver.resolve(name(`p${place}.example.test`))))
    expect(new Set(server.queries.map((query) => query.sourcePort)).size).toBeGreaterThanOrEqual(10)
  })

  test('more look-ups under way than there is room for are refused at once', async () => {
    const { resolver } = await setUp(() => undefined, { timeoutMs: 1_500 })
    const all = Array.from({ length: 2_048 }, async (_, place) => resolver.resolve(name(`f${place}.example.test`)))
    expect(await resolver.resolve(name('one-more.example.test'))).toEqual({ ok: false, reason: 'dns_timeout', ms: 0 })
    resolver.close()
    await Promise.all(all)
  })
})

describe('fixed hosts', () => {
  test('are asked before DNS, with all their addresses', async () => {
    const server = await serve(() => ({ rcode: 3 }))
    const resolver = make({ servers: [server.text], hosts: fixed({ 'db.internal': ['10.20.0.5', '10.20.0.6'] }) })
    expect(resolver.resolve(name('db.internal'))).toMatchObject({
      ok: true,
      addresses: [{ text: '10.20.0.5' }, { text: '10.20.0.6' }],
      ms: 0,
    })
    expect(server.queries).toEqual([])
  })

  test('do not cover names below them', async () => {
    const server = await serve(() => ({ rcode: 3 }))
    const resolver = make({ servers: [server.text], hosts: fixed({ 'db.internal': '10.20.0.5' }) })
    expect(await resolver.resolve(name('x.db.internal'))).toMatchObject({ ok: false })
    expect(server.queries).toHaveLength(2)
  })

  test('are canonical: a Unicode name in upper case, an IPv6 address in any spelling', () => {
    const hosts = fixed({ 'BÜCHER.example.test': ['2001:DB8:0::7'] })
    expect([...hosts].map(([host, addresses]) => [host, addresses.map((address) => address.text)])).toEqual([
      ['xn--bcher-kva.example.test', ['2001:db8::7']],
    ])
  })

  test('name every fault', () => {
    const read = parseFixedHosts({
      'a..b': '10.0.0.1',
      'ok.test': ['010.0.0.1', 'nope'],
      'none.test': [],
      'OK.test': '10.0.0.1',
    })
    expect(read.ok ? [] : read.faults.map((fault) => fault.split(':')[0])).toEqual([
      '`a..b`',
      '`ok.test`',
      '`ok.test`',
      '`none.test`',
      '`OK.test`',
    ])
  })
})

describe('closing', () => {
  test('ends look-ups under way, and answers no more', async () => {
    const { resolver } = await setUp(() => undefined)
    const pending = resolver.resolve(name('slow.example.test'))
    resolver.close()
    resolver.close()
    expect(await pending).toMatchObject({ ok: false, reason: 'dns_failed' })
    expect(resolver.resolve(name('other.example.test'))).toMatchObject({ ok: false, reason: 'dns_failed' })
  })
})

async function setUp(
  answer: (query: DnsQuery) => DnsReply | Promise<DnsReply>,
  options: ResolverOptions = {},
): Promise<{ resolver: Resolver; server: DnsServer }> {
  const server = await serve(answer)
  return { server, resolver: make({ servers: [server.text], ...options }) }
}

async function serve(answer: (query: DnsQuery) => DnsReply | Promise<DnsReply>, host?: string): Promise<DnsServer> {
  const server = await startDnsServer(answer, host)
  open.push(server)
  return server
}

function make(options: ResolverOptions): Resolver {
  const resolver = createResolver(options)
  open.push(resolver)
  return resolver
}

function manualClock() {
  let nowMs = 1_000
  return { wallMs: () => nowMs, monotonicMs: () => nowMs, forward: (ms: number) => void (nowMs += ms) }
}

function many(count: number) {
  return (query: DnsQuery): DnsReply => {
    if (query.type !== 'A') return {}
    if (query.transport === 'udp' && count > 25) return { truncated: true }
    return {
      answers: Array.from({ length: count }, (_, place) => a(query.name, `198.18.${place >> 8}.${place & 255}`)),
    }
  }
}

function name(text: string): HostName {
  const host = parseHostName(text)
  if (!host.ok) throw new Error(host.fault.message)
  return host.value
}

function fixed(hosts: Record<string, string | string[]>) {
  const read = parseFixedHosts(hosts)
  if (!read.ok) throw new Error(read.faults.join('\n'))
  return read.value
}

function texts(resolved: Resolved): readonly string[] {
  if (!resolved.ok) throw new Error(resolved.reason)
  return resolved.addresses.map((address) => address.text)
}

function withOtherId(right: Buffer): Buffer {
  const other = Buffer.from(right)
  other.writeUInt16BE(right.readUInt16BE(0) ^ 0x5555, 0)
  return other
}

/** The first letter of the name that was asked for is another one. */
function withOtherQuestion(right: Buffer): Buffer {
  const other = Buffer.from(right)
  other[13] = (other[13] ?? 0) ^ 0x01
  return other
}

/** Answers with another address, if it answers with one. */
function forged(right: Buffer): Buffer {
  const other = Buffer.from(right)
  const at = other.indexOf(Buffer.from([192, 0, 2, 1]))
  if (at >= 0) other[at + 3] = 66
  return other
}
