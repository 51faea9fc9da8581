import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { runBinary, runMain, temporaryFolder } from './run-cli.ts'

const folder = temporaryFolder()
afterAll(() => folder.close())
const CONFIG = join(folder.path, 'sallyport.yaml')
const CASES = join(import.meta.dirname, '../../cases')

writeFileSync(
  CONFIG,
  `
state: state
issuers: [{ issuer: own, algorithms: [ES256], stateKeys: true }]
policy:
  ceiling: { kind: static, allowedHosts: ['*.example.com', db.internal:5432, '@corp'] }
  deniedHosts: [evil.example.com]
  tenants:
    acme: { kind: static, allowedHosts: [api.example.com, db.internal:5432] }
    lenient: { kind: deny-all, mode: report }
  sets: { corp: [wiki.corp.example] }
network:
  hosts: { db.internal: 10.1.2.3 }
`,
)

function file(name: string, content: unknown): string {
  const path = join(folder.path, name)
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content))
  return path
}

describe('policy check', () => {
  test('a configuration without faults is done, and what may not be meant is noted', async () => {
    const outcome = await runMain(['policy', 'check', CONFIG])
    expect(outcome).toMatchObject({ code: 0, stderr: '' })
    expect(outcome.stdout).toContain('a configuration without faults')
    expect(outcome.stdout).toContain('note: lenient only reports: what it would refuse is let out')
  })

  test('every fault is a line with its place, and the exit code is 3', async () => {
    const path = file('bad.yaml', 'listn: {}\npolicy: { ceiling: { kind: static, allowedHosts: ["*.com"] } }\n')
    const outcome = await runBinary(['policy', 'check', path])
    expect(outcome.code).toBe(3)
    expect(outcome.stderr.trim().split('\n')).toEqual([
      `${path}:1:1: listn: unknown key; did you mean \`listen\`?`,
      expect.stringMatching(/bad\.yaml:2:\d+: policy\.ceiling\.allowedHosts\[0\]: `\*\.com` is refused: /),
    ])
  })

  test('a single policy is checked too, with the sets of a configuration', async () => {
    const path = file('policy.json', { kind: 'static', allowedHosts: ['@corp'] })
    expect(await runMain(['policy', 'check', path, '--config', CONFIG])).toMatchObject({ code: 0 })
    const without = await runMain(['policy', 'check', path])
    expect(without.code).toBe(3)
    expect(without.stderr).toContain('allowedHosts[0]: `@corp` is refused: no set has this name')
  })

  test('every fault of a single policy is told at once, with its place', async () => {
    const path = file(
      'policy-bad.yaml',
      'kind: static\nbogus: 1\nallowedHosts:\n  - "*"\n  - a.example\n  - https://b.example/\n',
    )
    const outcome = await runMain(['policy', 'check', path])
    expect(outcome.code).toBe(3)
    expect(outcome.stderr.trim().split('\n')).toEqual([
      `${path}:2:1: bogus: unknown key`,
      `${path}:4:5: allowedHosts[0]: \`*\` is refused: a star alone covers everything`,
      expect.stringMatching(/policy-bad\.yaml:6:5: allowedHosts\[2\]: .*; write `b\.example`$/),
    ])
  })

  test('a single policy of no known kind says which there are', async () => {
    const outcome = await runMain(['policy', 'check', file('kind.yaml', 'kind: statc')])
    expect(outcome.code).toBe(3)
    expect(outcome.stderr).toMatch(/: kind: expected `deny-all`, `allow-all`, `static` or `named`$/)
  })

  test('JSON says the same', async () => {
    const { code, stdout } = await runMain(['policy', 'check', '--json', file('bad2.yaml', 'limits: { tunnels: 0 }')])
    expect(code).toBe(3)
    expect(JSON.parse(stdout)).toMatchObject({
      ok: false,
      faults: [{ path: 'limits.tunnels', message: 'must be at least 1', line: 1 }],
    })
  })

  test('a file that is not there is told', async () => {
    expect(await runMain(['policy', 'check', '/nowhere/x.yaml'])).toMatchObject({
      code: 3,
      stderr: '/nowhere/x.yaml: can not be read: no such file',
    })
  })
})

describe('policy presets', () => {
  test('lists the shipped sets and those of the machine; with a configuration also its own', async () => {
    const names = (
      JSON.parse((await runMain(['policy', 'presets', '--json', '--config', CONFIG])).stdout) as { name: string }[]
    ).map(({ name }) => name)
    expect(names).toEqual(expect.arrayContaining(['github', 'pypi', 'crates', 'npm', 'apt', 'corp']))
  })

  test('one of them is shown with what it leaves closed', async () => {
    const { stdout } = await runMain(['policy', 'presets', '@github'])
    expect(stdout).toContain('leaves closed: ')
    expect(stdout).toContain('api.github.com')
  })

  test('one that is not there is wrong usage', async () => {
    expect(await runMain(['policy', 'presets', 'nowhere'])).toMatchObject({ code: 3, stdout: '' })
  })
})

describe('policy test', () => {
  test.each(['policy.json', 'host-pattern.json'])("the product's own %s passes", async (name) => {
    const { code, stdout } = await runMain(['policy', 'test', join(CASES, name)])
    expect(stdout).toMatch(/^[1-9]\d* passed, 0 failed$/)
    expect(code).toBe(0)
  })

  test('cases are run against a configuration and a tenant, and one that fails says how', async () => {
    const path = file('cases.yaml', {
      cases: [
        { name: 'the API is open', target: { host: 'api.example.com', port: 443 }, expect: { decision: 'allow' } },
        { name: 'the wiki is open', target: { host: 'wiki.corp.example', port: 443 }, expect: { decision: 'allow' } },
      ],
    })
    const outcome = await runMain(['policy', 'test', path, '--config', CONFIG, '--tenant', 'acme'])
    expect(outcome.code).toBe(1)
    expect(outcome.stdout).toMatch(/^FAILED the wiki is open: .*\n1 passed, 1 failed$/)
  })

  test('a document that holds no cases fails', async () => {
    expect((await runMain(['policy', 'test', file('none.yaml', { cases: [] })])).code).toBe(1)
    expect((await runMain(['policy', 'test', file('other.yaml', { state: 'x' })])).stdout).toMatch(
      /^FAILED the document: cases: is required\n0 passed, 1 failed$/,
    )
    expect((await runMain(['policy', 'test', file('broken.yaml', 'cases: [')])).code).toBe(3)
  })
})

describe('policy explain', () => {
  let token = ''
  beforeAll(async () => {
    await runMain(['keys', 'generate', '--config', CONFIG])
    token = (
      await runMain([
        'token',
        'mint',
        '--config',
        CONFIG,
        '--tenant',
        'acme',
        '--sandbox',
        'sbx_1',
        '--allow',
        '*.example.com',
        '--allow',
        'db.internal:*',
      ])
    ).stdout
  })
  const explain = (...args: string[]) =>
    runMain(['policy', 'explain', '--config', CONFIG, ...args], {
      environment: args.includes('--tenant') ? {} : { SALLYPORT_TOKEN: token },
    })

  test('a destination that is let out names the entry, every layer and the versions', async () => {
    const { code, stdout } = await explain('--host', 'API.example.com')
    expect(code).toBe(0)
    expect(stdout).toContain('api.example.com:443 is let out, by the entry *.example.com.')
    expect(stdout).toMatch(/tenant +enforce +static +allows \(api\.example\.com\)/)
    expect(stdout).toMatch(/policy version [0-9a-f]+/)
    expect(stdout).toContain('tenant acme, sandbox sbx_1; verified')
    expect(stdout).toContain('note: the name was not resolved')
    expect(stdout).not.toContain(token)
  })

  test.each<[string, string[], string, object]>([
    [
      'the tenant refuses',
      ['--host', 'www.example.com'],
      'is refused: host_not_allowed, at the layer tenant.',
      { reason: 'host_not_allowed', layer: 'tenant' },
    ],
    [
      'the operator denies',
      ['--host', 'evil.example.com'],
      'is refused: host_denied, at the layer ceiling, by the entry evil.example.com.',
      { reason: 'host_denied', layer: 'ceiling' },
    ],
    [
      'another port',
      ['--host', 'api.example.com', '--port', '22'],
      'is refused: port_not_allowed',
      { reason: 'port_not_allowed' },
    ],
    [
      'a fixed answer that is private',
      ['--host', 'db.internal', '--port', '5432'],
      'is refused: address_prohibited.',
      { reason: 'address_prohibited' },
    ],
    [
      'an address that is given',
      ['--host', 'api.example.com', '--address', '169.254.169.254'],
      'is refused: address_prohibited.',
      { reason: 'address_prohibited' },
    ],
    ['the gateway itself', ['--host', '127.0.0.1', '--port', '9090'], 'is refused: ', {}],
  ])('%s: exit code 2, in words and as data', async (_name, args, text, decision) => {
    const outcome = await explain(...args)
    expect(outcome.stdout).toContain(text)
    expect(outcome.code).toBe(2)
    const data = await explain(...args, '--json')
    expect(JSON.parse(data.stdout)).toMatchObject({ decision: { effective: 'deny', ...decision } })
  })

  test("the operator's own `deniedHosts` are told from the ceiling, and a lifted address from a public one", async () => {
    const { stdout } = await explain('--host', 'api.example.com', '--address', '192.0.2.7', '--address', '1.1.1.1')
    expect(stdout).toMatch(/ceiling +enforce +deniedHosts +allows\n +ceiling +enforce +static +allows/)
    expect(stdout).toMatch(/192\.0\.2\.7: \S+, prohibited\n +1\.1\.1\.1: public\n/)
    const lifted = file(
      'lifted.yaml',
      'policy: { ceiling: { kind: allow-all } }\nnetwork: { allowPrivate: [10.0.0.0/8] }\n',
    )
    const args = ['policy', 'explain', '--config', lifted, '--host', 'a.example', '--address', '10.1.1.1']
    expect((await runMain(args)).stdout).toContain('  10.1.1.1: private, permitted here\n')
  })

  test.each(['https://api.example.com/', 'api.example.com:443', 'api.example.com/x'])(
    'a host that brings more than itself (%s) is wrong usage',
    async (host) => {
      const outcome = await explain('--host', host)
      expect(outcome).toMatchObject({ code: 3, stdout: '' })
      expect(outcome.stderr).toContain('`--host` is a host alone')
    },
  )

  test('a reporting tenant is let out, and said so', async () => {
    const { code, stdout } = await explain('--tenant', 'lenient', '--host', 'api.example.com')
    expect(code).toBe(0)
    expect(stdout).toContain(
      'is let out, by the entry *.example.com, and recorded: the layer tenant only reports, and would have refused it (host_not_allowed).',
    )
    expect(stdout).toContain('no token was given')
  })

  test('a tenant that nobody configured is refused', async () => {
    expect((await explain('--tenant', 'nobody', '--host', 'api.example.com')).stdout).toContain(
      'refused: host_not_allowed, at the layer tenant',
    )
  })

  test('a token that the gateway would refuse is refused here', async () => {
    const outcome = await runMain([
      'policy',
      'explain',
      '--config',
      CONFIG,
      '--host',
      'api.example.com',
      '--token',
      `${token.slice(0, -4)}AAAA`,
    ])
    expect(outcome).toMatchObject({
      code: 2,
      stdout: 'The token is refused: token_signature_invalid (the signature does not hold).',
    })
  })

  test.each([
    ['no host', [], 'name the destination'],
    ['a host that is none', ['--host', 'a..b'], 'target_malformed'],
    ['a port that is none', ['--host', 'a.example', '--port', '0'], 'target_malformed'],
    [
      'a tenant beside a token',
      ['--host', 'a.example', '--tenant', 'x', '--token', 'y'],
      'a token names its tenant itself',
    ],
  ])('%s is wrong usage', async (_name, args, message) => {
    const outcome = await explain(...args)
    expect(outcome.stderr).toContain(message)
    expect(outcome.code).toBe(3)
  })
})
