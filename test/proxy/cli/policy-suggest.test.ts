import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterAll, describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { authorityText, decideName, parseLayerPolicy, type Layers } from '../../../policies/index.ts'
import { destination, network } from '../../policies/make.ts'
import { decision, type Line, refused, reported, writeLog } from './audit-lines.ts'
import { runMain, temporaryFolder, type Outcome } from './run-cli.ts'

const folder = temporaryFolder()
afterAll(() => folder.close())
let count = 0

describe('policy suggest', () => {
  test('what was let out and what was only reported, as a document that `policy check` takes', async () => {
    const log = logOf([
      decision('api.example.com', 443),
      reported('git.example.org', 22),
      reported('git.example.org', 22, { sandbox: 'sbx_2' }),
      refused('no.example.org', 443),
      decision('api.example.com', 443, { tenant: 'other' }),
      { kind: 'auth', decision: 'deny', effective: 'deny', reason: 'token_missing' },
      { kind: 'close', host: 'closed.example.org', port: 443, tenant: 'acme', close_reason: 'idle_timeout' },
    ])
    const outcome = await runMain(['policy', 'suggest', '--audit', log, '--tenant', 'acme', '--since', '7d'])
    expect(outcome).toMatchObject({ code: 0, stderr: '' })
    expect(parse(outcome.stdout)).toEqual({
      kind: 'static',
      allowedHosts: ['api.example.com:443', 'git.example.org:22'],
    })
    expect(outcome.stdout).toMatch(/# git\.example\.org:22 +2 +2 +0 +2 \(sbx_1, sbx_2\) +\d{4}-\S+ +\d{4}-\S+/)
    const file = join(folder.path, 'suggested.yaml')
    writeFileSync(file, outcome.stdout)
    expect(await runMain(['policy', 'check', file])).toMatchObject({ code: 0 })
    const config = join(folder.path, 'with-suggested.json')
    writeFileSync(config, JSON.stringify({ policy: { tenants: { acme: parse(outcome.stdout) as unknown } } }))
    expect(await runMain(['policy', 'check', config])).toMatchObject({ code: 0 })
    const cases = join(folder.path, 'cases.json')
    const layers = {
      ceiling: { kind: 'allow-all' },
      tenant: parse(outcome.stdout) as unknown,
      claim: { kind: 'allow-all' },
    }
    const expectation = {
      name: 'git',
      layers,
      target: { host: 'git.example.org', port: 22 },
      addresses: ['8.8.8.8'],
      expect: { decision: 'allow' },
    }
    writeFileSync(cases, JSON.stringify({ cases: [expectation] }))
    expect(await runMain(['policy', 'test', cases])).toMatchObject({ code: 0, stdout: '1 passed, 0 failed' })
  })

  test('refused ones when they are asked for, but not what a deny entry, a claim or the gateway itself refused', async () => {
    const log = logOf([
      refused('no.example.org', 443),
      refused('above.example.org', 443, { layer: 'ceiling' }),
      refused('denied.example.org', 443, { reason: 'host_denied' }),
      reported('reported-denied.example.org', 443, { reason: 'host_denied' }),
      refused('claim.example.org', 443, { layer: 'claim' }),
      refused('private.example.org', 443, { reason: 'address_prohibited', layer: undefined }),
      refused('busy.example.org', 443, { reason: 'rate_limit', layer: undefined }),
    ])
    const { entries, leftOut } = await suggestJson(log, '--include-refused')
    expect(entries.map(({ entry }) => entry)).toEqual(['above.example.org:443', 'no.example.org:443'])
    expect(entries[0]?.warnings).toMatchObject([{ kind: 'ceiling' }])
    expect(leftOut.map((one) => [one.destination, one.why[0]?.kind])).toEqual([
      ['claim.example.org:443', 'claim'],
      ['denied.example.org:443', 'denied'],
      ['reported-denied.example.org:443', 'denied'],
    ])
  })

  test('doubtful hosts are left out and named; a flag takes them in, with the warning', async () => {
    const log = logOf([
      reported('pastebin.com', 443),
      reported('203.0.113.7', 443),
      reported('x.github.io', 443),
      reported('typo.example.com', 443, { reason: 'dns_failed' }),
    ])
    const without = await runMain(['policy', 'suggest', '--audit', log])
    expect(parse(without.stdout)).toEqual({ kind: 'static', allowedHosts: [] })
    for (const kind of ['paste', 'address', 'hosting', 'unresolved'])
      expect(without.stdout).toContain(`(--include ${kind})`)
    const included = await runMain(['policy', 'suggest', '--audit', log, '--include', 'paste', '--include', 'address'])
    expect(parse(included.stdout)).toEqual({ kind: 'static', allowedHosts: ['203.0.113.7:443', 'pastebin.com:443'] })
    expect(included.stdout).toContain(
      "# warning: takes what anybody posts and shows it to strangers\n  - 'pastebin.com:443'",
    )
  })

  test('what too few sandboxes asked for is left out', async () => {
    const log = logOf([
      ...Array.from({ length: 500 }, () => reported('evil.example.net', 443, { sandbox: 'sbx_bad' })),
      reported('api.example.com', 443, { sandbox: 'sbx_1' }),
      reported('api.example.com', 443, { sandbox: 'sbx_2' }),
    ])
    const all = await suggestJson(log)
    expect(all.entries.map(({ entry, warnings }) => [entry, warnings.map(({ kind }) => kind)])).toEqual([
      ['api.example.com:443', []],
      ['evil.example.net:443', ['one-sandbox']],
    ])
    const { entries, leftOut } = await suggestJson(log, '--min-sandboxes', '2')
    expect(entries).toMatchObject([{ entry: 'api.example.com:443', decisions: 2, sandboxes: { count: 2 } }])
    expect(leftOut).toMatchObject([
      { destination: 'evil.example.net:443', decisions: 500, why: [{ kind: 'few-sandboxes' }] },
    ])
  })

  test("with a configuration the operator's sets count, and its log is read", async () => {
    const log = logOf([reported('wiki.corp.example', 443), reported('git.corp.example', 443)])
    const config = join(folder.path, 'sallyport.yaml')
    writeFileSync(
      config,
      `state: state\naudit: { path: ${log} }\npolicy: { sets: { corp: [wiki.corp.example, git.corp.example, ci.corp.example] } }\n`,
    )
    const outcome = await runMain(['policy', 'suggest', '--config', config, '--tenant', 'acme'])
    expect(outcome.stdout).toContain("# also opens: ci.corp.example\n  - '@corp'")
  })

  test('nothing found is a policy that denies all, and is said', async () => {
    const outcome = await runMain(['policy', 'suggest', '--audit', logOf([]), '--tenant', 'nobody'])
    expect(parse(outcome.stdout)).toEqual({ kind: 'static', allowedHosts: [] })
    expect(outcome.stderr).toContain('no decision was found')
  })

  test.each([
    [['--include', 'everything'], 'there are paste, hosting'],
    [['--min-sandboxes', 'two'], '`--min-sandboxes` is a whole number'],
    [['--wildcards', '-1'], '`--wildcards` is a whole number'],
    [['--since', 'yesterday'], '`yesterday` is neither'],
  ])('%j is wrong usage', async (args, message) => {
    const outcome = await runMain(['policy', 'suggest', '--audit', logOf([]), ...args])
    expect(outcome.code).toBe(3)
    expect(outcome.stderr).toContain(message)
  })

  test('a log that is not there is said in a line', async () => {
    const outcome = await runMain(['policy', 'suggest', '--audit', join(folder.path, 'nowhere')])
    expect(outcome).toMatchObject({ code: 1, stdout: '' })
  })
})

describe('a log written by an attacker', () => {
  test('names of sandboxes and tenants add no line to the policy, and reach no terminal', async () => {
    const name = "x\nallowedHosts: ['*.evil.example']\n- 'evil.example' \u001b[2J \u2028"
    const log = logOf([reported('api.example.com', 443, { sandbox: name, tenant: name })])
    for (const args of [[], ['--tenant', name]]) {
      const outcome = await runMain(['policy', 'suggest', '--audit', log, ...args])
      expect(parse(outcome.stdout)).toEqual({ kind: 'static', allowedHosts: ['api.example.com:443'] })
      expect(outcome.stdout).not.toMatch(/[^\x20-\x7e\n…]/)
    }
  })

  test('hosts that no gateway writes count for nothing', async () => {
    const log = logOf([
      ...["evil.example'\n  - '*.evil.example", '*.example.com', 'a..b', 'EVIL.example', '127.1', '@github'].map(
        (host) => reported(host, 443),
      ),
      reported('api.example.com', 0),
      reported('ok.example.com', 443),
    ])
    const outcome = await runMain(['policy', 'suggest', '--audit', log])
    expect(
      (parse(outcome.stdout) as { allowedHosts: string[] }).allowedHosts.filter(
        (entry) => !entry.startsWith('evil.example'),
      ),
    ).toEqual(['ok.example.com:443'])
    expect(outcome.stdout).not.toContain('*')
  })

  test('names without end cost bounded memory, and no policy comes of them', async () => {
    const log = logOf(Array.from({ length: 50_001 }, (_, index) => reported(`h${index}.example${index}.com`, 443)))
    const outcome = await runMain(['policy', 'suggest', '--audit', log])
    expect(outcome).toMatchObject({ code: 1, stdout: '' })
    expect(outcome.stderr).toContain('more destinations than are told apart')
  }, 60_000)

  test('thousands of names below one domain are one wildcard with the warning of who asked', async () => {
    const log = logOf([
      ...Array.from({ length: 3_000 }, (_, index) =>
        reported(`data-${index}.evil.example`, 443, { sandbox: 'sbx_bad' }),
      ),
      reported('api.example.com', 443),
    ])
    const { entries } = await suggestJson(log)
    expect(entries).toMatchObject([
      { entry: '*.evil.example:443', opens: ['every name below evil.example'], warnings: [{ kind: 'one-sandbox' }] },
      { entry: 'api.example.com:443' },
    ])
  })
})

test('property: all that the log shows is allowed by the policy, but for what is said to be left out', async () => {
  const host = fc.constantFrom(
    'a.example.com',
    'b.example.com',
    'c.example.com',
    'github.com',
    'api.github.com',
    'pastebin.com',
    '203.0.113.7',
    '2606:4700::1',
    'x.github.io',
  )
  const line = fc
    .tuple(
      host,
      fc.constantFrom(22, 80, 443),
      fc.constantFrom(decision, reported, refused),
      fc.constantFrom('acme', undefined),
      fc.constantFrom('host_not_allowed', 'host_denied', 'dns_failed', 'connect_refused'),
    )
    .map(([name, port, make, tenant, reason]) => make(name, port, { tenant, ...(make === decision ? {} : { reason }) }))
  await fc.assert(
    fc.asyncProperty(fc.array(line, { maxLength: 30 }), fc.boolean(), async (lines, withRefused) => {
      const { policy, leftOut } = await suggestJson(logOf(lines), ...(withRefused ? ['--include-refused'] : []))
      const parsed = parseLayerPolicy(policy, { from: 'file' })
      if (!parsed.ok) throw new Error(JSON.stringify(parsed.faults))
      const layers: Layers = { version: '', layers: [{ name: 'tenant', mode: 'enforce', policy: parsed.value.policy }] }
      const seen = lines.filter(
        (one) => one['effective'] === 'allow' || (withRefused && String(one['reason']).startsWith('host_')),
      )
      for (const one of seen) {
        const text = String(one['host'])
        const place = destination(`${text.includes(':') ? `[${text}]` : text}:${String(one['port'])}`)
        const isLeftOut = leftOut.some((left) => left.destination === authorityText(place))
        expect([text, decideName(layers, place, network()).effective]).toEqual([text, isLeftOut ? 'deny' : 'allow'])
      }
    }),
    { numRuns: 60 },
  )
})

interface Suggested {
  readonly policy: unknown
  readonly entries: readonly { readonly entry: string; readonly warnings: readonly { readonly kind: string }[] }[]
  readonly leftOut: readonly { readonly destination: string; readonly why: readonly { readonly kind: string }[] }[]
}

async function suggestJson(log: string, ...args: readonly string[]): Promise<Suggested> {
  const outcome: Outcome = await runMain(['policy', 'suggest', '--audit', log, '--json', ...args])
  expect(outcome.code).toBe(0)
  return JSON.parse(outcome.stdout) as Suggested
}

function logOf(lines: readonly Line[]): string {
  const path = join(folder.path, `log-${count++}`)
  mkdirSync(path)
  writeLog(path, lines)
  return path
}
