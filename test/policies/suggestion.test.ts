import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  authorityText,
  decideName,
  DOUBT_KINDS,
  parseHostName,
  PRESETS,
  suggestPolicy,
  type DoubtKind,
  type SuggestOptions,
  type Suggestion,
} from '../../policies/index.ts'
import { DOUBTFUL_NAMES } from '../../policies/suggestion/doubtful-names.ts'
import { allowing, destination, layers, network } from './make.ts'

const EVERYWHERE = network({ allowPrivate: ['0.0.0.0/0', '::/0'] })
const ALL = new Set<DoubtKind>(DOUBT_KINDS)

describe('what is suggested', () => {
  const rows: readonly (readonly [string, readonly string[], readonly string[]])[] = [
    ['nothing for nothing', [], []],
    ['a host with the port that was seen, and no other', ['api.example.com:443'], ['api.example.com:443']],
    ['no port where both usual ones were seen', ['a.example.com:443', 'a.example.com:80'], ['a.example.com']],
    [
      'a run of ports is one entry',
      ['db.example.com:8000', 'db.example.com:8002', 'db.example.com:8001'],
      ['db.example.com:8000-8002'],
    ],
    [
      'ports apart are entries apart',
      ['db.example.com:443', 'db.example.com:8443'],
      ['db.example.com:443', 'db.example.com:8443'],
    ],
    [
      'a run that holds a usual port',
      ['db.example.com:80', 'db.example.com:81', 'db.example.com:443'],
      ['db.example.com:443', 'db.example.com:80-81'],
    ],
    ['one host of a set stands for itself', ['api.github.com:443'], ['api.github.com:443']],
    ['two hosts of a set are the set', ['api.github.com:443', 'github.com:443'], ['@github']],
    [
      'the set does not cover another port',
      ['api.github.com:443', 'github.com:443', 'github.com:22'],
      ['@github', 'github.com:22'],
    ],
    [
      'two names below a domain stay two',
      ['a.example.com:443', 'b.example.com:443'],
      ['a.example.com:443', 'b.example.com:443'],
    ],
    [
      'three are a wildcard, on the port that was seen',
      ['a.example.com:443', 'b.example.com:443', 'c.example.com:443'],
      ['*.example.com:443'],
    ],
    [
      'which does not cover the domain itself',
      ['example.com:443', 'a.example.com:443', 'b.example.com:443', 'c.example.com:443'],
      ['*.example.com:443', 'example.com:443'],
    ],
    [
      'it stands as deep as it can',
      ['a.cdn.example.com:443', 'b.cdn.example.com:443', 'c.cdn.example.com:443', 'www.example.com:443'],
      ['*.cdn.example.com:443', 'www.example.com:443'],
    ],
    [
      'and above when the names have parents of their own',
      ['a.x.example.com:443', 'b.y.example.com:443', 'c.z.example.com:443'],
      ['*.example.com:443'],
    ],
    [
      'one that lies in another is not needed',
      ['a.cdn', 'b.cdn', 'c.cdn', 'a', 'b', 'c'].map((labels) => `${labels}.example.com:443`),
      ['*.example.com:443'],
    ],
    [
      'nor is a set that lies in a wildcard',
      ['registry-1', 'auth', 'a', 'b', 'c'].map((labels) => `${labels}.docker.io:443`),
      ['*.docker.io:443'],
    ],
    [
      'a suffix of two labels is no domain',
      ['a.co.uk:443', 'b.co.uk:443', 'c.co.uk:443'],
      ['a.co.uk:443', 'b.co.uk:443', 'c.co.uk:443'],
    ],
    [
      'no wildcard over a paste site',
      ['a.github.com:443', 'b.github.com:443', 'c.github.com:443'],
      ['a.github.com:443', 'b.github.com:443', 'c.github.com:443'],
    ],
    ['none over the rest of a cloud', ['sts.amazonaws.com:443', 'ec2.amazonaws.com:443', 'iam.amazonaws.com:443'], []],
  ]
  test.each(rows)('%s', (_sentence, seen, expected) => {
    expect(suggest(seen).allowedHosts).toEqual(expected)
  })

  test('what a set opens beside is said', () => {
    const [entry] = suggest(['pypi.org:443', 'files.pythonhosted.org:443']).entries
    expect(entry).toMatchObject({ text: '@pypi', opens: [] })
    const [wider] = suggest(['index.crates.io:443', 'static.crates.io:443']).entries
    expect(wider).toMatchObject({ text: '@crates', opens: ['static.rust-lang.org'] })
  })

  test("the operator's own sets count too", () => {
    const entries = (texts: readonly string[]) =>
      texts.map((text) => ({
        kind: 'exact',
        host: text,
        text,
        hasPorts: false,
        ports: [
          { low: 80, high: 80 },
          { low: 443, high: 443 },
        ],
      }))
    const sets = new Map([
      ['corp', entries(['wiki.corp.example', 'git.corp.example', 'ci.corp.example'])],
    ]) as unknown as NonNullable<SuggestOptions['sets']>
    const { entries: found } = suggest(['wiki.corp.example:443', 'git.corp.example:443'], { sets })
    expect(found).toMatchObject([{ text: '@corp', opens: ['ci.corp.example'] }])
  })

  test('wildcards and sets can be turned off', () => {
    const seen = ['a.example.com:443', 'b.example.com:443', 'c.example.com:443', 'github.com:443', 'api.github.com:443']
    expect(suggest(seen, { wildcardFrom: 0, presets: false }).allowedHosts).toEqual([
      'a.example.com:443',
      'api.github.com:443',
      'b.example.com:443',
      'c.example.com:443',
      'github.com:443',
    ])
  })
})

describe('what is left out, and said', () => {
  const rows: readonly (readonly [string, string, DoubtKind])[] = [
    ['a paste site', 'pastebin.com:443', 'paste'],
    ['a name below one', 'www.pastebin.com:443', 'paste'],
    ['a gist', 'gist.github.com:443', 'paste'],
    ['a catcher of requests', 'abc.oast.pro:443', 'paste'],
    ['pages of strangers', 'evil.github.io:443', 'hosting'],
    ['apps of strangers', 'evil.vercel.app:443', 'hosting'],
    ['workers of strangers', 'evil.workers.dev:443', 'hosting'],
    ['a bucket', 'evil.s3.amazonaws.com:443', 'hosting'],
    ['a bucket by region', 'evil.s3.eu-west-1.amazonaws.com:443', 'hosting'],
    ['all buckets', 's3.amazonaws.com:443', 'hosting'],
    ['a store of objects', 'storage.googleapis.com:443', 'hosting'],
    ['a bucket without a suffix of its own', 'evil.r2.cloudflarestorage.com:443', 'hosting'],
    ['a tunnel', 'x.ngrok-free.app:443', 'tunnel'],
    ['a tunnel of another kind', 'x.trycloudflare.com:443', 'tunnel'],
    ['a reader of pages', 'r.jina.ai:443', 'relay'],
    ['messages', 'api.telegram.org:443', 'relay'],
    ['DNS over HTTPS', 'dns.google:443', 'dns'],
    ['the same by its first label', 'doh.somewhere.example:443', 'dns'],
    ['metadata by name', 'metadata.google.internal:80', 'metadata'],
    ['metadata by address', '169.254.169.254:80', 'metadata'],
    ['an address', '203.0.113.7:443', 'address'],
    ['an IPv6 address', '[2606:4700:4700::1111]:443', 'address'],
    ['a name that holds an address', '10.0.0.1.nip.io:443', 'address'],
  ]
  test.each(rows)('%s', (_sentence, place, kind) => {
    const { allowedHosts, leftOut } = suggest([place, 'api.example.com:443'])
    expect(allowedHosts).toEqual(['api.example.com:443'])
    expect(leftOut.map(({ doubts }) => doubts[0]?.kind)).toEqual([kind])
    expect(leftOut[0]?.doubts[0]?.why).not.toBe('')
  })

  test.each(rows)('%s is there when its kind is asked for, with the warning', (_sentence, place, kind) => {
    const { entries, leftOut } = suggest([place], { include: new Set<DoubtKind>([kind, 'address']) })
    expect(leftOut).toEqual([])
    expect(entries[0]?.doubts[0]?.kind).toBe(kind)
    expect(entries).toHaveLength(1)
    expect(entries[0]?.text).not.toContain('*')
  })

  test('hosting that was asked for never becomes a wildcard', () => {
    const seen = [
      'a.github.io:443',
      'b.github.io:443',
      'c.github.io:443',
      'd.vercel.app:443',
      'e.vercel.app:443',
      'f.vercel.app:443',
    ]
    expect(suggest(seen, { include: ALL }).allowedHosts).toEqual(seen)
  })

  test('a name that never resolved is left out, and does not hinder a wildcard', () => {
    const seen = ['a.example.com:443', 'b.example.com:443', 'c.example.com:443', 'typo.example.com:443']
    const suggestion = suggestPolicy(
      seen.map((text) => ({
        destination: destination(text),
        ...(text.startsWith('typo') && { doubts: [{ kind: 'unresolved', why: 'never' } as const] }),
      })),
    )
    expect(suggestion).toMatchObject({ allowedHosts: ['*.example.com:443'], leftOut: [] })
    const alone = suggestPolicy([
      { destination: destination('typo.example.com:443'), doubts: [{ kind: 'unresolved', why: 'never' }] },
    ])
    expect(alone.allowedHosts).toEqual([])
    expect(alone.leftOut.map(({ destination: place }) => authorityText(place))).toEqual(['typo.example.com:443'])
  })

  test('no set and no wildcard opens what is left out for good', () => {
    const denied = [{ kind: 'denied', why: 'denied' } as const]
    const seen = ['github.com:443', 'api.github.com:443', 'a.example.com:443', 'b.example.com:443', 'c.example.com:443']
    const { allowedHosts } = suggestPolicy([
      ...seen.map((text) => ({ destination: destination(text) })),
      { destination: destination('codeload.github.com:443'), doubts: denied },
      { destination: destination('secret.example.com:443'), doubts: denied },
    ])
    expect(allowedHosts).toEqual([...seen].sort())
  })

  test('what a shipped set names is not doubted, nothing else below it is trusted', () => {
    for (const text of PRESETS.flatMap(({ entries }) => entries)) {
      const host = text.replace('*', 'some')
      expect([host, suggest([`${host}:443`]).leftOut]).toEqual([host, []])
    }
    expect(suggest(['gist.githubusercontent.com:443', 'evil.githubusercontent.com:443']).allowedHosts).toEqual([])
  })

  test('the list of names is canonical, and holds none twice', () => {
    const names = Object.values(DOUBTFUL_NAMES).flat()
    for (const name of names) expect(parseHostName(name)).toEqual({ ok: true, value: name })
    expect(new Set(names).size).toBe(names.length)
  })
})

describe('properties, by the evaluator of the gateway', () => {
  // Few names and ports, so that wildcards lie in one another and sets in wildcards.
  const label = fc.constantFrom('a', 'b', 'c', 'd', 'cdn')
  const domain = fc.oneof(
    { weight: 3, arbitrary: fc.constant('example.com') },
    { weight: 2, arbitrary: fc.constantFrom('docker.io', 'example.co.uk') },
    fc.constantFrom('github.io', 'amazonaws.com', 'github.com', 'pypi.org', 'localhost', 'com'),
  )
  const name = fc.tuple(fc.array(label, { maxLength: 3 }), domain).map(([labels, base]) => [...labels, base].join('.'))
  const known = fc.constantFrom(...PRESETS.flatMap(({ entries }) => entries).filter((text) => !text.includes('*')))
  const literal = fc.oneof(
    fc.ipV4(),
    fc.ipV6().map((text) => `[${text}]`),
  )
  const port = fc.oneof(
    { weight: 5, arbitrary: fc.constant(443) },
    fc.constantFrom(22, 79, 80, 81, 444, 8000, 8001, 8443),
  )
  const place = fc
    .tuple(fc.oneof({ weight: 6, arbitrary: name }, { weight: 3, arbitrary: known }, literal), port)
    .map(([host, number]) => `${host}:${number}`)
  const places = fc.array(place, { maxLength: 40 })
  const options = fc.record({
    include: fc.subarray([...DOUBT_KINDS]).map((kinds) => new Set(kinds)),
    wildcardFrom: fc.constantFrom(0, 2, 3, 5),
    presets: fc.boolean(),
  })

  test('all that was seen is allowed, but what is said to be left out', () => {
    fc.assert(
      fc.property(places, options, (seen, settings) => {
        const suggestion = suggest(seen, settings)
        const leftOut = new Set(suggestion.leftOut.map(({ destination: one }) => authorityText(one)))
        for (const text of seen)
          expect([text, allows(suggestion.allowedHosts, text)]).toEqual([text, !leftOut.has(canonical(text))])
      }),
      { numRuns: 300 },
    )
  })

  test('without any one entry something that was seen is refused', () => {
    fc.assert(
      fc.property(places, options, (seen, settings) => {
        const { allowedHosts, entries } = suggest(seen, settings)
        for (const { text, covers } of entries) {
          const rest = allowedHosts.filter((one) => one !== text)
          expect([text, covers.some((one) => !allows(rest, authorityText(one)))]).toEqual([text, true])
        }
      }),
      { numRuns: 300 },
    )
  })

  test('nothing that is left out, and nothing doubtful, is opened by the way', () => {
    fc.assert(
      fc.property(places, fc.constantFrom(2, 3), (seen, wildcardFrom) => {
        const { allowedHosts } = suggest(seen, { wildcardFrom })
        for (const [kind, names] of Object.entries(DOUBTFUL_NAMES))
          for (const host of names)
            expect([kind, host, allows(allowedHosts, `${host}:443`)]).toEqual([kind, host, false])
      }),
      { numRuns: 60 },
    )
  })

  test('the order and the number of times make no difference', () => {
    fc.assert(
      fc.property(places, options, fc.integer(), (seen, settings, seed) => {
        const shuffled = [...seen, ...seen.slice(0, 3)].sort(
          (one, other) =>
            Math.sin(seed + one.length + one.charCodeAt(0)) - Math.sin(seed + other.length + other.charCodeAt(0)),
        )
        expect(texts(suggest(shuffled, settings))).toEqual(texts(suggest(seen, settings)))
      }),
    )
  })
})

function suggest(seen: readonly string[], options: SuggestOptions = {}): Suggestion {
  return suggestPolicy(
    seen.map((text) => ({ destination: destination(text) })),
    options,
  )
}

function allows(allowedHosts: readonly string[], place: string): boolean {
  const compiled = layers(['tenant', allowing(allowedHosts)])
  return decideName(compiled, destination(place), EVERYWHERE).effective === 'allow'
}

function canonical(place: string): string {
  const [only] = suggestPolicy([{ destination: destination(place) }], { include: ALL }).entries
  return only === undefined ? '' : authorityText(only.covers[0] ?? destination(place))
}

function texts({ allowedHosts, entries, leftOut }: Suggestion): unknown {
  return {
    allowedHosts,
    opens: entries.map(({ opens }) => opens),
    leftOut: leftOut.map(({ destination: one }) => authorityText(one)),
  }
}
