/** What a caller or a changed file says in a line of the audit log does not steer the terminal of whoever reads it. */
import fs from 'node:fs'
import net from 'node:net'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { startTestGateway, type TestGateway } from '../integration/test-gateway.ts'
import { table } from '../../proxy/cli/print.ts'
import { runBinary, runMain } from '../proxy/cli/run-cli.ts'

/** Clears the screen, hides the cursor, turns the text round, and one that eight-bit terminals obey. */
const HOSTILE = 'sbx\u001b[2J\u001b[?25l\u202e\u009b31m\u007f\r\nfaked line'
/** All that a terminal may obey or hide. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u

let gateway: TestGateway
let folder: string

beforeAll(async () => {
  gateway = await startTestGateway()
  folder = path.join(gateway.folder, 'state/audit')
})
afterAll(() => gateway.close())

const read = async (...command: string[]): Promise<string> => {
  const { stdout } = await runMain(['audit', ...command])
  return stdout
}
const unseen = (text: string): string[] => text.split('\n').filter((line) => UNSEEN.test(line))

describe('a terminal gets text alone', () => {
  test('of a sandbox whose name in a token is an escape sequence', async () => {
    const token = await gateway.token({ sub: HOSTILE, egress: { kind: 'deny-all' } })
    await ask(gateway.port, `CONNECT a.example:443 HTTP/1.1\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`)
    await gateway.auditLine(({ sandbox }) => typeof sandbox === 'string' && sandbox.startsWith('sbx'))
    for (const command of [
      ['tail', '--no-follow', '--path', folder],
      ['query', '--path', folder],
      ['query', '--path', folder, '--json'],
    ]) {
      const printed = await read(...command)
      expect(printed).toContain('sbx')
      expect(unseen(printed)).toEqual([])
    }
    expect(await read('query', '--path', folder)).toContain(String.raw`sbx\u001b[2J\u001b[?25l\u202e\u009b31m`)
  })

  test('of lines that somebody else put into a file', async () => {
    const copy = path.join(gateway.folder, 'changed')
    fs.mkdirSync(copy)
    const line = { seq: 1, time: '2026-01-01T00:00:00.000Z', kind: 'admin', action: 'reload', prev: '0'.repeat(64) }
    const text = [
      { ...line, instance: 'gw', detail: HOSTILE },
      { ...line, instance: HOSTILE },
    ].map((one) => `${JSON.stringify(one)}\n`)
    fs.writeFileSync(path.join(copy, 'audit-gw-000001.jsonl'), text.join(''), 'latin1')
    for (const command of [
      ['tail', '--no-follow', '--path', copy],
      ['query', '--path', copy],
      ['query', '--path', copy, '--json'],
      ['verify', copy],
    ])
      expect(unseen(await read(...command))).toEqual([])
  })
})

describe('every command', () => {
  /** Sets the clipboard, makes a link, hides what follows, turns it round. */
  const NAME = 'n\u001b]52;c;ZQ==\u0007\u001b]8;;x:\u0007\u202e\u200b\u009b2J\r'

  const put = (name: string, text: string): string => {
    const file = path.join(gateway.folder, name)
    fs.mkdirSync(path.dirname(file), { recursive: true })
    fs.writeFileSync(file, text)
    return file
  }
  const part = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url')
  const layers = { ceiling: { kind: 'allow-all' } }
  const target = { host: 'a.example', port: 443 }

  test.each([
    ['a file that is named so and is no policy', () => ['policy', 'check', put(`${NAME}.yaml`, '[')]],
    ['a folder that is not there', () => ['audit', 'query', '--path', `/nowhere/${NAME}`]],
    [
      'a case of a policy',
      () => {
        const one = { name: `${NAME}\nPASSED`, layers, target, expect: { decision: 'allow' } }
        return ['policy', 'test', put('cases.json', JSON.stringify({ cases: [one] }))]
      },
    ],
    [
      'a token, by the names of its claims too',
      () => {
        const token = `${part({ alg: 'ES256', kid: NAME })}.${part({ sub: NAME, [`${NAME}\n  iss`]: NAME })}.AAAA`
        return ['token', 'inspect', '--no-verify', '--token-file', put('token', token)]
      },
    ],
    [
      'the same as JSON',
      () => {
        const token = `${part({ alg: 'ES256' })}.${part({ sub: NAME })}.AAAA`
        return ['token', 'inspect', '--no-verify', '--json', '--token-file', put('token', token)]
      },
    ],
    [
      'a file in the folder of tenants',
      () => {
        put(`tenants/${NAME}.yaml`, 'kind: deny-all')
        const config = {
          policy: { tenantFiles: { path: path.join(gateway.folder, 'tenants') } },
          listen: { admin: 'off' },
        }
        return ['doctor', '--config', put('doctor.json', JSON.stringify(config))]
      },
    ],
  ])('%s', { timeout: 60_000 }, async (_what, command) => {
    const { stdout, stderr } = await runBinary(command())
    expect(stdout + stderr).toContain('52;c;ZQ==')
    expect(unseen(stdout + stderr)).toEqual([])
    expect(stdout).not.toMatch(/^(?:PASSED| {2}iss)/m)
  })

  test('a name in a table makes no row', () => {
    expect(table([['id'], ['sbx_1\nsbx_2'], [NAME]]).split('\n')).toHaveLength(3)
    expect(unseen(table([['id'], [NAME]]))).toEqual([])
  })
})

function ask(port: number, head: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = net.connect(port, '127.0.0.1')
    socket.on('error', reject)
    socket.on('data', () => socket.end())
    socket.on('close', () => resolve())
    socket.write(head, 'latin1')
  })
}
