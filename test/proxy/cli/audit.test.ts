import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { generateAuditKey } from '../../../proxy/audit/key.ts'
import { openAuditLog } from '../../../proxy/audit/log.ts'
import type { AuditLine } from '../../../proxy/audit/schema.ts'
import { systemClock } from '../../../proxy/clock.ts'
import { csvLine } from '../../../proxy/audit/formats/csv.ts'
import { describeLine } from '../../../proxy/cli/audit-print.ts'
import { runBinary, runMain, temporaryFolder } from './run-cli.ts'

const folder = temporaryFolder()
afterAll(() => folder.close())
const LOG = join(folder.path, 'audit')
const KEY = join(folder.path, 'key.jwk')
const at = ['--path', LOG]

beforeAll(async () => {
  const { key, publicJwk } = generateAuditKey()
  writeFileSync(KEY, publicJwk)
  const log = await openAuditLog({ path: LOG, instance: 'gw', onFailure: 'deny', signingKey: key, clock: systemClock })
  for (let index = 0; index < 5; index += 1) {
    await log.write({
      kind: 'decision',
      decision: 'allow',
      effective: 'allow',
      request_id: `r${index}`,
      tenant: 'acme',
      sandbox: 'sbx_1',
      host: 'api.example.com',
      port: 443,
      rule: '*.example.com',
    })
  }
  await log.write({
    kind: 'decision',
    decision: 'deny',
    effective: 'deny',
    reason: 'host_not_allowed',
    layer: 'tenant',
    request_id: 'r9',
    tenant: 'other',
    requested: '=cmd()',
    host: 'evil.example.org',
    port: 80,
  })
  await log.write({
    kind: 'auth',
    decision: 'deny',
    effective: 'deny',
    reason: 'token_expired',
    request_id: 'r10',
    client: '127.0.0.1:5',
  })
  await log.close()
})

describe('a line in short', () => {
  const line = {
    seq: 1,
    time: '2026-01-31T12:00:00.000Z',
    instance: 'gw',
    prev: '0'.repeat(64),
    kind: 'decision',
    request_id: 'r',
    host: 'api.example.com',
    port: 443,
    rule: '*.example.com',
  } as const

  test('an entry that allowed is not what refused, or failed', () => {
    const refused = { ...line, decision: 'deny', effective: 'deny', reason: 'byte_quota' } as const
    expect(describeLine(refused)).toContain('  REFUSED  byte_quota, though allowed by *.example.com  ')
    const failed = { ...line, decision: 'allow', effective: 'allow', reason: 'connect_refused' } as const
    expect(describeLine(failed)).toContain('  allowed  by *.example.com, but connect_refused  ')
    const denied = { ...refused, reason: 'host_denied', layer: 'ceiling' } as const
    expect(describeLine(denied)).toContain('  REFUSED  host_denied at ceiling by *.example.com  ')
  })
})

describe('audit query', () => {
  test.each([
    [['--decision', 'deny'], 2],
    [['--tenant', 'acme'], 5],
    [['--kind', 'auth'], 1],
    [['--host', 'evil.example.org', '--reason', 'host_not_allowed'], 1],
    [['--request-id', 'r3'], 1],
    [['--kind', 'decision', '--since', '1h'], 6],
    [['--kind', 'decision', '--until', '1h'], 0],
    [['--kind', 'decision', '--since', '2001-01-01'], 6],
  ])('%j finds %i lines', async (filters, count) => {
    const { code, stdout } = await runMain(['audit', 'query', ...at, ...filters, '--json'])
    expect(
      stdout
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line) as unknown),
    ).toHaveLength(count)
    expect(code).toBe(0)
  })

  test('goes on where the last one ended', async () => {
    const query = async (...more: string[]) => runMain(['audit', 'query', ...at, '--tenant', 'acme', '--json', ...more])
    const first = await query('--limit', '2')
    const cursor = /^more: --cursor (?<cursor>\S+)$/.exec(first.stderr)?.groups?.['cursor'] ?? ''
    const rest = await query('--cursor', cursor)
    const ids = `${first.stdout}\n${rest.stdout}`
      .split('\n')
      .map((line) => (JSON.parse(line) as { request_id: string }).request_id)
    expect(ids).toEqual(['r0', 'r1', 'r2', 'r3', 'r4'])
    expect(rest.stderr).toBe('')
    expect((await query('--limit', '5')).stderr).toBe('')
    expect((await query('--cursor', cursor, '--limit', '3')).stderr).toBe('')
  })

  test('people get the verdict, the place and the reason in one line', async () => {
    const { stdout } = await runMain(['audit', 'query', ...at, '--decision', 'deny'])
    expect(stdout).toMatch(/ {2}REFUSED {2}host_not_allowed at tenant {2}evil\.example\.org:80 {2}for other$/m)
    expect(stdout).toMatch(/ {2}REFUSED {2}token_expired$/m)
  })

  test.each([
    ['a folder that is not there', ['--path', '/nowhere'], 1],
    ['a time that is none', [...at, '--since', 'monday'], 3],
    ['a limit that is none', [...at, '--limit', '0'], 3],
    ['a cursor that is none', [...at, '--cursor', 'x'], 3],
    ['a reason that is none', [...at, '--reason', 'nonsense'], 3],
  ])('%s is one line', async (_name, args, code) => {
    const outcome = await runMain(['audit', 'query', ...args])
    expect(outcome).toMatchObject({ code, stdout: '' })
    expect(outcome.stderr.split('\n')).toHaveLength(1)
  })
})

test('audit tail prints the last lines', async () => {
  const { stdout } = await runMain([
    'audit',
    'tail',
    ...at,
    '--no-follow',
    '--kind',
    'decision',
    '--lines',
    '2',
    '--json',
  ])
  expect(stdout.split('\n').map((line) => (JSON.parse(line) as { request_id: string }).request_id)).toEqual([
    'r4',
    'r9',
  ])
})

describe('audit export', () => {
  test('gives the lines as they are in the file', async () => {
    const { stdout } = await runMain(['audit', 'export', ...at])
    const [name = ''] = readdirSync(LOG).filter((file) => file.endsWith('.jsonl'))
    expect(`${stdout}\n`).toBe(readFileSync(join(LOG, name), 'utf8'))
  })

  test.each(['ocsf', 'ecs'])('writes %s, one event a line', async (format) => {
    const { stdout } = await runMain(['audit', 'export', ...at, '--since', '1h', '--format', format])
    const native = (await runMain(['audit', 'export', ...at])).stdout
    const events = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as object)
    expect(events).toHaveLength(native.trimEnd().split('\n').length)
    expect(events[0]).toMatchObject(format === 'ocsf' ? { metadata: { version: '1.8.0' } } : { ecs: {} })
  })

  test('gives a table whose cells are no formulas', async () => {
    const { stdout } = await runMain(['audit', 'export', ...at, '--format', 'csv', '--kind', 'decision'])
    const [head = '', ...rows] = stdout.split('\n')
    expect(head).toBe(csvLine(undefined))
    expect(rows).toHaveLength(6)
    expect(rows.at(-1)).toContain(",'=cmd(),")
  })
})

/** What spreadsheets take for a formula, also where they end a cell at something else than a comma, or pass over blanks. */
test.each([
  '=1+1',
  '+1',
  '-1',
  '@SUM(1)',
  '\t=1',
  '\r\n=1',
  ' =1',
  '\uff1d1',
  'x;=1',
  'x",=1',
  'x\t=1',
  'x|-1',
  `x'=1`,
])('a cell of %j begins no formula', (sandbox) => {
  const line = { seq: 1, time: '2026-01-01T00:00:00.000Z', instance: 'gw', kind: 'decision', sandbox, port: -1 }
  const row = csvLine(line as unknown as AuditLine)
  expect(row).not.toMatch(/[,;|"]\s*[=+@\uff1d-](?!1,)/)
  expect(row).toMatch(/^[ -~\uff1d]*$/)
  expect(row).toContain(',-1,')
})

describe('audit verify', () => {
  test('a whole log is verified with the key, and only half without', async () => {
    const checked = await runMain(['audit', 'verify', LOG, '--key', KEY])
    expect(checked).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('ok: nothing was cut, changed or reordered up to the last checkpoint') as string,
    })
    const unchecked = await runMain(['audit', 'verify', LOG])
    expect(unchecked.stdout).toContain('signatures were not checked')
  })

  test('a changed line is the first fault, with its file and line, exit code 1', async () => {
    const [name = ''] = readdirSync(LOG).filter((file) => file.endsWith('.jsonl'))
    const changed = join(folder.path, name)
    writeFileSync(changed, readFileSync(join(LOG, name), 'utf8').replace('evil.example.org', 'good.example.org'))
    const { code, stdout } = await runMain(['audit', 'verify', changed, '--key', KEY])
    expect(stdout).toMatch(new RegExp(`fault: .*${name}:\\d+: `))
    expect(code).toBe(1)
  })

  test('without a log to verify it is wrong usage', async () => {
    expect(await runBinary(['audit', 'verify', '--key', KEY], { cwd: folder.path })).toMatchObject({
      code: 3,
      stdout: '',
    })
  })
})
