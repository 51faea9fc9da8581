/** Making an operator open more than was asked for, by what a log says: its targets, its names, its times, and how many there are. */
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { decision, type Line, refused, reported, writeLog } from '../proxy/cli/audit-lines.ts'
import { type Outcome, runMain, temporaryFolder } from '../proxy/cli/run-cli.ts'

async function suggest(lines: readonly Line[], ...args: string[]): Promise<Outcome> {
  const folder = temporaryFolder()
  try {
    writeLog(folder.path, lines)
    return await runMain(['policy', 'suggest', '--audit', folder.path, '--include-refused', ...args])
  } finally {
    folder.close()
  }
}

const allowed = ({ stdout }: Outcome): unknown => (parse(stdout) as { allowedHosts: unknown }).allowedHosts

describe('what a policy is made of', () => {
  test.each([
    '*',
    '*.com',
    '*.example.com',
    '@pypi',
    '!a.example',
    '.example',
    'a.example:443',
    'a.example:1-65535',
    'a.example/x',
    "a.example'",
    "a.example'\n  - '*",
    'a.example\n- evil.example',
    'a.example # ',
    '127.1',
    '0x7f000001',
    '2130706433',
    '0177.0.0.1',
    '1.2.3.4/0',
    '0.0.0.0/0',
    '::/0',
    '[::1]',
    'fe80::1%eth0',
    '\u0430pple.com',
    'ex\u00e4mple.com',
    'a\u3002example',
    'xn--a',
    '',
    '.',
    '__proto__:443',
    'x'.repeat(300),
  ])('%j as a host is no entry', async (host) => {
    const outcome = await suggest([reported(host, 443), refused(host, 443)])
    expect(outcome.code).toBe(0)
    expect(allowed(outcome)).toEqual([])
  })

  test.each([0, -1, 65_536, 4.5, 1e21, '443', '1-65535', null])('nor is any with %j as a port', async (port) => {
    expect(allowed(await suggest([decision('a.example', port as number)]))).toEqual([])
  })

  test('an address in any spelling is left out, as an address', async () => {
    const lines = ['8.8.8.8', '::ffff:8.8.8.8', '64:ff9b::808:808', '2001:4860:4860:0:0:0:0:8888']
    expect(allowed(await suggest(lines.map((host) => reported(host, 443))))).toEqual([])
  })

  test('a name of letters that only look like others stands as it is on the wire', async () => {
    expect(allowed(await suggest([reported('xn--pple-43d.com', 443)]))).toEqual(['xn--pple-43d.com:443'])
  })

  test('many names below a public suffix, or one owner of hosting, are no wildcard above them', async () => {
    const names = ['co.uk', 'com', 'github.io', 's3.amazonaws.com', 'internal'].flatMap((suffix) =>
      ['one', 'two', 'three', 'four'].map((label) => `${label}.${suffix}`),
    )
    const found = allowed(await suggest(names.map((name) => reported(name, 443)))) as readonly string[]
    expect(found.filter((entry) => entry.includes('*') || entry.startsWith('@'))).toEqual([])
  })
})

describe('what stands beside it', () => {
  const ENTRY = "\r- '*'\nallowedHosts: ['*']\u2028- '*'\u0085- '*'"

  test.each(['sandbox', 'tenant', 'reason', 'layer', 'rule', 'time'])('a text as %s is no line', async (field) => {
    const lines = [reported('a.example', 443, { [field]: ENTRY }), reported('b.example', 443)]
    const { stdout } = await suggest(lines)
    for (const text of stdout.split(/[\r\n\u0085\u2028\u2029]/))
      expect(text).toMatch(/^(?:#.*| {2}#.*|kind: static|allowedHosts:| {2}- '[ab]\.example:443')$/)
  })

  test('replay shows it as text too', async () => {
    const folder = temporaryFolder()
    writeLog(folder.path, [decision('a.example', 443, { tenant: ENTRY, sandbox: ENTRY, reason: ENTRY })])
    const policy = '{"kind":"deny-all"}'
    const outcome = await runMain(['policy', 'replay', '-', '--audit', folder.path], { input: policy })
    folder.close()
    expect(outcome.code).toBe(2)
    expect(outcome.stdout).not.toMatch(/^ *- '\*'/m)
    expect(outcome.stdout).not.toMatch(/[\r\u0085\u2028]/)
  })
})

test('100,000 names are no policy: nothing is left out unseen', { timeout: 120_000 }, async () => {
  const lines = Array.from({ length: 100_000 }, (_, index) => reported(`h${index}.example`, 443))
  const outcome = await suggest(lines)
  expect(outcome).toMatchObject({ code: 1, stdout: '' })
  expect(outcome.stderr).toContain('more destinations than are told apart')
})
