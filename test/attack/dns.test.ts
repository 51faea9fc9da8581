/** Names whose owner controls what they resolve to, against a whole gateway with a real DNS server. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { startTestGateway, type TestGateway } from '../integration/test-gateway.ts'
import { WireClient, type Answer } from '../integration/wire.ts'
import { startEcho, type Origin } from '../origins/origins.ts'
import {
  a,
  aaaa,
  cname,
  startDnsServer,
  type DnsQuery,
  type DnsReply,
  type DnsServer,
} from '../proxy/egress/dns-server.ts'

/** The part of loopback that the operator of these tests allows; it stands for the public network. */
const OUTSIDE = '127.66.0.1'
/** Everything else on loopback is what an attacker is after. */
const INSIDE = '127.0.0.1'

let outside: Origin
let inside: Origin
let dns: DnsServer
let gateway: TestGateway
let answer: (query: DnsQuery) => DnsReply = () => ({ rcode: 3 })
let token: string

beforeAll(async () => {
  outside = await startEcho(OUTSIDE)
  inside = await startEcho(INSIDE)
  dns = await startDnsServer((query) => answer(query))
  gateway = await startTestGateway({
    policy: { ceiling: { kind: 'allow-all' }, deniedHosts: ['denied.example.test'] },
    network: { allowPrivate: ['127.66.0.0/24'], resolvers: [dns.text] },
    sni: { ports: [] },
    limits: { perSandbox: { newPerSecond: 10_000 } },
  })
  token = await gateway.token({ egress: { kind: 'static', allowedHosts: ['*.example.test:*'] } })
})
afterAll(async () => {
  await gateway.close()
  await Promise.all([outside.close(), inside.close(), dns.close()])
})

const clients: WireClient[] = []
beforeEach(() => {
  dns.queries.length = 0
  outside.reset()
  inside.reset()
})
afterEach(() => {
  for (const client of clients.splice(0)) client.destroy()
})

describe('rebinding', () => {
  test('a name is resolved once, and what was judged is what is dialled', async () => {
    let asked = 0
    answer = (query) => {
      if (query.type !== 'A') return {}
      asked++
      return { answers: [a(query.name, asked === 1 ? OUTSIDE : INSIDE, 0)] }
    }
    const first = await connect('rebind.example.test', outside.port)
    expect(first.answer.status).toBe(200)
    expect(dns.queries.map((query) => query.type).sort()).toEqual(['A', 'AAAA'])
    expect(await echoed(first.client, 'still the first')).toBe('still the first')
    const line = await gateway.auditLine((one) => one['kind'] === 'decision' && one['host'] === 'rebind.example.test')
    expect(line).toMatchObject({ effective: 'allow', resolved: [OUTSIDE] })
    expect(String(line['dialled'])).toContain(OUTSIDE)

    const second = await connect('rebind.example.test', inside.port)
    expectProhibited(second.answer)
    expect(inside.seen.connections).toBe(0)
  })

  test('an answer that changes while connections come at the same time leads none of them inside', async () => {
    let asked = 0
    answer = (query) =>
      query.type === 'A' ? { answers: [a(query.name, asked++ % 2 === 0 ? OUTSIDE : INSIDE, 0)] } : {}
    const all = await Promise.all(Array.from({ length: 40 }, () => connect('flip.example.test', inside.port)))
    // Nobody listens on that port outside: a 502 for those that were let out.
    expect(new Set(all.map(({ answer: { status } }) => status))).toEqual(
      new Set(all.map(({ answer: { status } }) => (status === 403 ? 403 : 502))),
    )
    expect(inside.seen.connections).toBe(0)
  })
})

describe('an answer with a prohibited address is refused whole', () => {
  const rows: readonly (readonly [string, (query: DnsQuery) => DnsReply])[] = [
    [
      'a private one behind a good one',
      (query) => only('A', query, [a(query.name, OUTSIDE), a(query.name, '10.0.0.1')]),
    ],
    [
      'a private one before a good one',
      (query) => only('A', query, [a(query.name, '10.0.0.1'), a(query.name, OUTSIDE)]),
    ],
    [
      'AAAA is loopback, A is good',
      (query) => ({ answers: [query.type === 'A' ? a(query.name, OUTSIDE) : aaaa(query.name, '::1')] }),
    ],
    [
      'AAAA is loopback in IPv4-mapped form',
      (query) => ({ answers: [query.type === 'A' ? a(query.name, OUTSIDE) : aaaa(query.name, `::ffff:${INSIDE}`)] }),
    ],
    ['loopback', (query) => only('A', query, [a(query.name, INSIDE)])],
    ['this host', (query) => only('A', query, [a(query.name, '0.0.0.0')])],
    ['any IPv6 address', (query) => only('AAAA', query, [aaaa(query.name, '::')])],
    ['cloud metadata', (query) => only('A', query, [a(query.name, '169.254.169.254')])],
    ['cloud metadata behind NAT64', (query) => only('AAAA', query, [aaaa(query.name, '64:ff9b::a9fe:a9fe')])],
    ['loopback in 6to4', (query) => only('AAAA', query, [aaaa(query.name, '2002:7f00:1::')])],
    ['a CNAME to localhost', (query) => only('A', query, [cname(query.name, 'localhost'), a('localhost', INSIDE)])],
    [
      'a CNAME over an allowed name to loopback',
      (query) =>
        only('A', query, [
          cname(query.name, 'good.example.test'),
          cname('good.example.test', 'x.other.test'),
          a('x.other.test', INSIDE),
        ]),
    ],
    [
      '63 good ones and loopback last',
      (query) =>
        only('A', query, [
          ...Array.from({ length: 63 }, (_, place) => a(query.name, `127.66.0.${place + 2}`)),
          a(query.name, INSIDE),
        ]),
    ],
  ]
  test.each(rows)('%s', async (sentence, reply) => {
    answer = reply
    const host = `${sentence.replace(/[^a-zA-Z0-9]+/g, '-').toLowerCase()}.example.test`
    const result = await connect(host, inside.port)
    expectProhibited(result.answer)
    expect(inside.seen.connections + outside.seen.connections).toBe(0)
    await gateway.auditLine(
      (line) => line['host'] === host && line['reason'] === 'address_prohibited' && line['effective'] === 'deny',
    )
  })

  test('a CNAME to localhost without an address leads to no hosts file', async () => {
    answer = (query) => ({ answers: [cname(query.name, 'localhost')] })
    expect((await connect('alias.example.test', inside.port)).answer.status).toBe(502)
    expect(inside.seen.connections).toBe(0)
  })

  test('more addresses than are judged lead nowhere', async () => {
    answer = (query) => {
      if (query.transport === 'udp') return { truncated: true }
      return only('A', query, [
        ...Array.from({ length: 250 }, (_, place) => a(query.name, `127.66.0.${place}`)),
        a(query.name, INSIDE),
      ])
    }
    const { answer: refused } = await connect('flood.example.test', outside.port)
    expect([refused.status, refused.headers['x-deny-reason']]).toEqual([502, ['dns_failed']])
    expect(inside.seen.connections + outside.seen.connections).toBe(0)
  })
})

describe("the gateway's own listeners", () => {
  let open: TestGateway
  beforeAll(async () => {
    // The operator allows all of loopback; that does not open the gateway to itself.
    open = await startTestGateway({
      policy: { ceiling: { kind: 'allow-all' } },
      network: { allowPrivate: ['127.0.0.0/8', '::1/128', '0.0.0.0/8'], resolvers: [dns.text] },
      sni: { ports: [] },
    })
  })
  afterAll(() => open.close())

  test.each<[string, (query: DnsQuery) => DnsReply]>([
    ['by a name', (query) => only('A', query, [a(query.name, INSIDE)])],
    [
      'by a CNAME',
      (query) => only('A', query, [cname(query.name, 'gateway.other.test'), a('gateway.other.test', INSIDE)]),
    ],
    ['by a mapped address', (query) => only('AAAA', query, [aaaa(query.name, `::ffff:${INSIDE}`)])],
  ])('%s', async (sentence, reply) => {
    answer = reply
    const host = `self-${sentence.replaceAll(' ', '-')}.example.test`
    const pass = await open.token({ egress: { kind: 'allow-all' } })
    const narrow = await open.token({ egress: { kind: 'static', allowedHosts: ['*.example.test:*'] } })
    for (const port of [open.port, open.adminPort]) {
      expectProhibited((await connect(host, port, narrow, open.port)).answer)
      expect((await connect(host, port, pass, open.port)).answer.status).toBe(403)
    }
  })

  test('another port beside them is reached, since the operator allows it', async () => {
    answer = (query) => only('A', query, [a(query.name, INSIDE)])
    const narrow = await open.token({ egress: { kind: 'static', allowedHosts: ['*.example.test:*'] } })
    const { answer: accepted, client } = await connect('beside.example.test', inside.port, narrow, open.port)
    expect(accepted.status).toBe(200)
    expect(await echoed(client, 'hello')).toBe('hello')
  })
})

describe('names leave no trace in DNS before policy allows them', () => {
  test.each(['denied.example.test', 'secret-data.elsewhere.test'])('%s', async (host) => {
    const { answer: refused } = await connect(host, 443)
    expect(refused.status).toBe(403)
    expect(dns.queries).toEqual([])
  })
})

describe('several permitted addresses', () => {
  test('are dialled in turn, and only they', async () => {
    answer = (query) => only('A', query, [a(query.name, '127.66.0.200'), a(query.name, OUTSIDE)])
    const { answer: accepted, client } = await connect('two.example.test', outside.port)
    expect(accepted.status).toBe(200)
    expect(await echoed(client, 'hello')).toBe('hello')
    const line = await gateway.auditLine((one) => one['kind'] === 'decision' && one['host'] === 'two.example.test')
    expect(line['resolved']).toEqual(['127.66.0.200', OUTSIDE])
    expect(String(line['dialled'])).toContain(OUTSIDE)
  })
})

async function connect(
  host: string,
  port: number,
  bearer = token,
  via = gateway.port,
): Promise<{ client: WireClient; answer: Answer }> {
  const client = await WireClient.connect({ host: '127.0.0.1', port: via })
  clients.push(client)
  client.send(
    `CONNECT ${host}:${port} HTTP/1.1\r\nHost: ${host}:${port}\r\nProxy-Authorization: Bearer ${bearer}\r\n\r\n`,
  )
  const got = await client.answer({ hasBody: false })
  if (got === undefined) throw new Error('no answer')
  return { client, answer: got }
}

async function echoed(client: WireClient, words: string): Promise<string> {
  client.send(words)
  return (await client.take(words.length)).toString()
}

function expectProhibited({ status, headers }: Answer): void {
  expect([status, headers['x-deny-reason']]).toEqual([403, ['address_prohibited']])
  expect(headers['proxy-status']?.[0]).toContain('destination_ip_prohibited')
}

function only(type: 'A' | 'AAAA', query: DnsQuery, answers: NonNullable<DnsReply>['answers'] & object): DnsReply {
  return query.type === type ? { answers } : {}
}
