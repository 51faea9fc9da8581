import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { decision, type Line, refused, reported, writeLog } from './audit-lines.ts'
import { runMain, temporaryFolder } from './run-cli.ts'

const folder = temporaryFolder()
afterAll(() => folder.close())
let count = 0

describe('policy replay', () => {
  test('nothing that was let out would be refused: exit code 0', async () => {
    const log = logOf([
      decision('api.example.com', 443),
      reported('git.example.org', 22),
      refused('no.example.net', 443),
    ])
    const outcome = await runMain([
      'policy',
      'replay',
      policy(['api.example.com', 'git.example.org:22']),
      '--audit',
      log,
      '--tenant',
      'acme',
      '--since',
      '7d',
    ])
    expect(outcome).toMatchObject({ code: 0, stderr: '' })
    expect(outcome.stdout).toContain('against 3 decisions: 2 stay let out, 1 stay refused')
    expect(outcome.stdout).toContain('would refuse 0 that were let out')
  })

  test('what would be refused is grouped, counted, and ends with 2', async () => {
    const log = logOf([
      decision('api.example.com', 443),
      decision('api.example.com', 443, { sandbox: 'sbx_2' }),
      decision('api.example.com', 8443),
      decision('api.example.com', 443, { tenant: 'other' }),
      reported('203.0.113.7', 443),
      decision('ok.example.com', 443),
      refused('new.example.com', 443),
      refused('new.example.com', 443, { layer: 'ceiling' }),
    ])
    const file = policy(['ok.example.com', 'new.example.com', 'api.example.com:9000'])
    const outcome = await runMain(['policy', 'replay', file, '--audit', log, '--json'])
    expect(outcome.code).toBe(2)
    const result = JSON.parse(outcome.stdout) as {
      wouldRefuse: { groups: object[] }
      wouldLetOut: { groups: object[] }
    }
    expect(result).toMatchObject({ decisions: 8, staysLetOut: 1, staysRefused: 0 })
    expect(result.wouldRefuse).toMatchObject({
      decisions: 5,
      groups: [
        {
          destination: 'api.example.com:443',
          tenant: 'acme',
          reason: 'port_not_allowed',
          layer: 'tenant',
          decisions: 2,
          sandboxes: { count: 2, names: ['sbx_1', 'sbx_2'] },
        },
        { destination: '203.0.113.7:443', tenant: 'acme', reason: 'address_not_allowed', decisions: 1 },
        { destination: 'api.example.com:443', tenant: 'other', reason: 'port_not_allowed', decisions: 1 },
        { destination: 'api.example.com:8443', tenant: 'acme', reason: 'port_not_allowed', decisions: 1 },
      ],
    })
    expect(result.wouldLetOut).toMatchObject({
      decisions: 2,
      groups: [
        { destination: 'new.example.com:443', reason: 'host_not_allowed', layer: 'ceiling', decisions: 1 },
        { destination: 'new.example.com:443', reason: 'host_not_allowed', layer: 'tenant', decisions: 1 },
      ],
    })
    const text = await runMain(['policy', 'replay', file, '--audit', log, '--tenant', 'other'])
    expect(text.code).toBe(2)
    expect(text.stdout).toMatch(/api\.example\.com:443 +other +port_not_allowed at tenant +1 +1 +\d{4}-/)
  })

  test('what the claim of a token refused stays refused', async () => {
    const log = logOf([refused('no.example.net', 443, { layer: 'claim' })])
    const outcome = await runMain(['policy', 'replay', policy(['no.example.net']), '--audit', log, '--json'])
    expect(JSON.parse(outcome.stdout)).toMatchObject({
      staysRefused: 1,
      refusedByClaim: 1,
      wouldLetOut: { decisions: 0 },
    })
  })

  test('a policy in report mode is judged as if it enforced, and that is said', async () => {
    const log = logOf([decision('api.example.com', 443)])
    const file = join(folder.path, 'report.yaml')
    writeFileSync(file, 'kind: deny-all\nmode: report\n')
    const outcome = await runMain(['policy', 'replay', file, '--audit', log])
    expect(outcome.code).toBe(2)
    expect(outcome.stdout).toContain('the policy only reports')
  })

  test('with a configuration its ceiling, denied ranges, networks and the addresses of then count', async () => {
    const log = logOf([
      decision('db.example.com', 5432, { resolved: ['10.1.2.3'] }),
      decision('fine.example.com', 443, { resolved: ['8.8.8.8'] }),
      decision('range.example.com', 443, { resolved: ['8.8.4.4'] }),
      decision('above.example.net', 443),
    ])
    const config = join(folder.path, 'sallyport.yaml')
    writeFileSync(
      config,
      `state: ${folder.path}/state\npolicy: { ceiling: { kind: static, allowedHosts: ['*.example.com', 'db.example.com:5432'] }, deniedHosts: [8.8.4.0/24] }\n`,
    )
    const args = [
      'policy',
      'replay',
      policy(['*.example.com', 'db.example.com:5432', '*.example.net']),
      '--audit',
      log,
      '--config',
      config,
      '--json',
    ]
    const { wouldRefuse } = JSON.parse((await runMain(args)).stdout) as {
      wouldRefuse: { groups: { destination: string; reason: string }[] }
    }
    expect(Object.fromEntries(wouldRefuse.groups.map((group) => [group.destination, group.reason]))).toEqual({
      'db.example.com:5432': 'address_prohibited',
      'range.example.com:443': 'host_denied',
      'above.example.net:443': 'host_not_allowed',
    })
  })

  test('a whole configuration is a candidate too: each line by the policy of its tenant', async () => {
    const log = logOf([
      decision('a.example.com', 443),
      decision('a.example.com', 443, { tenant: 'other' }),
      decision('a.example.com', 443, { tenant: 'unknown' }),
      decision('a.example.com', 443, { tenant: undefined }),
    ])
    const config = join(folder.path, 'candidate.yaml')
    writeFileSync(
      config,
      `state: ${folder.path}/state\npolicy: { ceiling: { kind: allow-all }, tenants: { acme: { kind: static, allowedHosts: [a.example.com] }, other: { kind: deny-all } } }\n`,
    )
    const outcome = await runMain(['policy', 'replay', config, '--audit', log, '--json'])
    const { wouldRefuse, staysLetOut } = JSON.parse(outcome.stdout) as {
      wouldRefuse: { groups: { tenant: string }[] }
      staysLetOut: number
    }
    expect(wouldRefuse.groups.map(({ tenant }) => tenant).sort()).toEqual(['other', 'unknown'])
    expect(staysLetOut).toBe(2)
  })

  test('the verdict is that of `policy explain`, whatever was asked for', async () => {
    const hosts: readonly (readonly [string, number])[] = [
      ['api.example.com', 443],
      ['api.example.com', 22],
      ['deep.api.example.com', 443],
      ['example.com', 443],
      ['evil.example.com', 443],
      ['203.0.113.7', 443],
      ['8.8.8.8', 443],
      ['2606:4700::1111', 443],
      ['::ffff:8.8.8.8', 443],
      ['169.254.169.254', 80],
      ['wiki.corp.example', 80],
    ]
    const config = join(folder.path, 'explain.yaml')
    writeFileSync(
      config,
      `state: ${folder.path}/state\npolicy:\n  ceiling: { kind: static, allowedHosts: ['*.example.com', 8.8.8.8, '@corp', '169.254.169.254'] }\n  deniedHosts: [evil.example.com]\n  sets: { corp: [wiki.corp.example] }\n  tenants: { acme: { kind: static, allowedHosts: ['*.example.com', 8.8.8.8, '@corp', '169.254.169.254'] } }\n`,
    )
    const log = logOf(hosts.map(([host, port]) => decision(host, port)))
    const { wouldRefuse } = JSON.parse(
      (await runMain(['policy', 'replay', config, '--audit', log, '--json'])).stdout,
    ) as {
      wouldRefuse: { groups: { destination: string; reason: string }[] }
    }
    const replayed = new Map(wouldRefuse.groups.map(({ destination, reason }) => [destination, reason]))
    for (const [host, port] of hosts) {
      const asked = [
        'policy',
        'explain',
        '--config',
        config,
        '--tenant',
        'acme',
        '--host',
        host,
        '--port',
        String(port),
        '--json',
      ]
      const { decision: explained } = JSON.parse((await runMain(asked)).stdout) as { decision: { reason?: string } }
      expect([host, replayed.get(`${host.includes(':') ? `[${host}]` : host}:${port}`)]).toEqual([
        host,
        explained.reason,
      ])
    }
    expect(replayed.size).toBeGreaterThan(4)
  })

  test('what can not be known from a log is said', async () => {
    const log = logOf([refused('new.example.com', 443)])
    const { stdout } = await runMain(['policy', 'replay', policy(['new.example.com']), '--audit', log])
    expect(stdout).toMatch(/not known from a log:\n.*prohibited[^]*claims of tokens[^]*server name inside TLS/)
  })

  test.each([
    ['a policy with a fault', { kind: 'static', allowedHosts: ['*'] }, 'allowedHosts[0]'],
    ['a policy by a name that there is not', { kind: 'named', name: 'nosuch' }, 'no policy in `policy.named`'],
    ['a policy of no known kind', { kind: 'open' }, 'expected `deny-all`'],
    ['a text', 'hello', 'configuration'],
  ])('%s is wrong usage', async (_sentence, document, message) => {
    const file = join(folder.path, 'faulty.json')
    writeFileSync(file, JSON.stringify(document))
    const outcome = await runMain(['policy', 'replay', file, '--audit', logOf([])])
    expect(outcome.code).toBe(3)
    expect(`${outcome.stderr} configuration`).toContain(message)
  })

  test('groups without end cost bounded memory, and what is not grouped is counted', async () => {
    const log = logOf(Array.from({ length: 10_050 }, (_, index) => decision(`h${index}.example.com`, 443)))
    const outcome = await runMain(['policy', 'replay', policy([]), '--audit', log])
    expect(outcome.code).toBe(2)
    expect(outcome.stdout).toContain('would refuse 10050 that were let out')
    expect(outcome.stdout).toContain('and 10000 more')
  }, 30_000)

  test('names from the log reach no terminal as they are', async () => {
    const log = logOf([decision('api.example.com', 443, { tenant: 'x\u001b[2J\nfake' })])
    const { stdout } = await runMain(['policy', 'replay', policy([]), '--audit', log])
    expect(stdout).toContain('x\\u001b[2J\\u000afake')
  })
})

function policy(allowedHosts: readonly string[]): string {
  const file = join(folder.path, `policy-${count++}.json`)
  writeFileSync(file, JSON.stringify({ kind: 'static', allowedHosts }))
  return file
}

function logOf(lines: readonly Line[]): string {
  const path = join(folder.path, `log-${count++}`)
  mkdirSync(path)
  writeLog(path, lines)
  return path
}
