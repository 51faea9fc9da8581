/** What a caller or a changed file says in a line of the audit log does not steer the terminal of whoever reads it. */
import fs from 'node:fs'
import net from 'node:net'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { startTestGateway, type TestGateway } from '../integration/test-gateway.ts'
import { runMain } from '../proxy/cli/run-cli.ts'

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

function ask(port: number, head: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = net.connect(port, '127.0.0.1')
    socket.on('error', reject)
    socket.on('data', () => socket.end())
    socket.on('close', () => resolve())
    socket.write(head, 'latin1')
  })
}
