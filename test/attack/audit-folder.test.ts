/** Using the audit folder of a running gateway against it: what lies there is not what a gateway wrote. Nothing else is served, nothing is waited for, and every answer stays whole. */
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import net from 'node:net'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { bearer, type ControlClient, startControl } from '../proxy/admin/control-client.ts'
import { runMain } from '../proxy/cli/run-cli.ts'

vi.setConfig({ testTimeout: 120_000 })

const SECRET = 'marker-of-another-file'
const INDEX = 'audit-index.sqlite'

let control: ControlClient
let folder: string
let outside: string
beforeEach(async () => {
  control = await startControl({ admin: { requestsPerSecond: 1_000 } })
  folder = control.gateway.config({}).audit.path
  outside = path.join(control.gateway.folder, 'outside')
  fs.writeFileSync(outside, `${JSON.stringify(line(1, { detail: SECRET }))}\n`)
})
afterEach(() => control.gateway.close())

const evil = (number = 1, instance = 'evil'): string =>
  path.join(folder, `audit-${instance}-${String(number).padStart(6, '0')}.jsonl`)

function line(seq: number, over: Readonly<Record<string, unknown>> = {}) {
  const time = new Date(Date.now() - 60_000 + seq).toISOString()
  const host = 'a.example'
  const verdict = { decision: 'deny', effective: 'deny', reason: 'host_not_allowed' }
  return { seq, time, instance: 'evil', kind: 'decision', ...verdict, host, port: 443, ...over, prev: '0'.repeat(64) }
}

/** A page, all of the log, a summary, and the stream's first line: what the gateway itself wrote is in each. */
async function stillAnswers(): Promise<string> {
  const token = await control.adminToken(['read'])
  const texts: string[] = []
  for (const route of ['/v1/audit', '/v1/audit?kind=admin', '/v1/audit?host=a.example', '/v1/audit/summary?top=100']) {
    const response = await fetch(control.url(route), { headers: bearer(token) })
    texts.push(await response.text())
    expect([route, response.status, texts.at(-1)]).toEqual([route, 200, texts.at(-1)])
  }
  expect(texts.slice(0, 2).every((text) => text.includes('"action":"start"'))).toBe(true)
  const stream = await fetch(control.url('/v1/audit/stream?lines=1000'), { headers: bearer(token) })
  if (stream.body === null) throw new Error('no stream')
  const reader = stream.body.getReader()
  let text = ''
  while (!text.includes('"action":"start"')) {
    const { value, done } = await reader.read()
    if (done) throw new Error(`the stream ended:\n${text}`)
    text += Buffer.from(value).toString()
  }
  await reader.cancel()
  const { stdout } = await runMain(['audit', 'query', '--path', folder, '--json'])
  return [...texts, text, stdout].join('\n')
}

describe('what has the name of a file of the log and is none is passed over', () => {
  test.each([
    ['a link to another file', () => fs.symlinkSync(outside, evil())],
    ['a link to a device that never ends', () => fs.symlinkSync('/dev/zero', evil())],
    ['a link to nothing', () => fs.symlinkSync('/nowhere/at/all', evil())],
    ['a folder', () => fs.mkdirSync(evil())],
    ['a pipe that nobody writes to', () => void spawnSync('mkfifo', [evil()])],
    // As many as there are threads that open files.
    [
      'many pipes',
      () =>
        void spawnSync(
          'mkfifo',
          Array.from({ length: 8 }, (_, index) => evil(index + 1)),
        ),
    ],
  ])('%s', async (_what, put) => {
    put()
    expect(await stillAnswers()).not.toContain(SECRET)
    expect((await runMain(['audit', 'verify', folder])).stdout).toContain('segment_foreign')
  })

  test('a socket', async () => {
    const server = net.createServer().listen(evil())
    await new Promise((resolve) => server.once('listening', resolve))
    await stillAnswers()
    server.close()
  })
})

describe('what a file says is a line, or nothing', () => {
  test.each([
    ['arrays in arrays', [deep('[', ']')]],
    ['objects in objects', [deep('{"x":', '}', '1')]],
    ['a host that is a number, or an object', [line(1, { host: 5 }), line(2, { host: { toString: 1 } })]],
    ['a port that is a text', [line(1, { port: '443"' })]],
    ['no number', [JSON.stringify(line(1)).replace('"seq":1', '"seq":1e999'), '{"seq":NaN}']],
    ['another prototype', [JSON.stringify(line(1)).replace('"seq"', '"__proto__":{"host":"x"},"seq"')]],
    ['a time that is markup and a line end', [line(1, { time: '2026-01-01\r\n<script>' })]],
    ['a megabyte', [line(1, { detail: 'x'.repeat(1 << 20) })]],
    ['200 KB in one text', [line(1, { host: `${'x'.repeat(200_000)}.example` })]],
    ['NUL, bytes of no text, nothing', ['\0'.repeat(5_000), '\xff\xfe', '', '{', 'null', '[]', '"x"']],
  ])('%s', async (_what, lines) => {
    const texts = lines.map((one) => (typeof one === 'string' ? one : JSON.stringify(one)))
    fs.writeFileSync(evil(), `${texts.join('\n')}\n`, 'latin1')
    const shown = await stillAnswers()
    expect(shown).not.toContain('evil')
    const args = ['--audit', folder, '--include-refused']
    expect((await runMain(['policy', 'suggest', ...args])).stdout).toContain('allowedHosts: []')
  })

  test('an instance is called as anything that every object has', async () => {
    for (const instance of ['constructor', 'toString', 'valueOf', 'hasOwnProperty'])
      fs.writeFileSync(evil(1, instance), `${JSON.stringify(line(1, { instance }))}\n`)
    const { body } = await control.call('GET', '/v1/audit?host=a.example&limit=2')
    expect(body['lines']).toHaveLength(2)
    const rest = await control.call('GET', `/v1/audit?host=a.example&cursor=${String(body['cursor'])}`)
    expect(rest.body['lines']).toHaveLength(2)
    await stillAnswers()
  })
})

describe('much of it costs a bounded answer', () => {
  test('a page of long lines is cut short, and the next goes on there', async () => {
    const many = Object.fromEntries(Array.from({ length: 300 }, (_, index) => [`x${index}`, 'y'.repeat(500)]))
    const file = fs.openSync(evil(), 'w')
    for (let seq = 1; seq <= 40; seq++) fs.writeSync(file, `${JSON.stringify(line(seq, many))}\n`)
    fs.closeSync(file)
    const token = await control.adminToken(['read'])
    const seqs: number[] = []
    let cursor: string | undefined
    do {
      const route = `/v1/audit?instance=evil&limit=1000${cursor === undefined ? '' : `&cursor=${cursor}`}`
      const text = await (await fetch(control.url(route), { headers: bearer(token) })).text()
      expect(text.length).toBeLessThan(1_500_000)
      const page = JSON.parse(text) as { lines: { seq: number }[]; cursor?: string }
      seqs.push(...page.lines.map(({ seq }) => seq))
      ;({ cursor } = page)
    } while (cursor !== undefined)
    expect(seqs).toEqual(Array.from({ length: 40 }, (_, index) => index + 1))
  })

  test('of more instances than are read side by side one is asked for', async () => {
    for (let count = 0; count <= 1_000; count++)
      fs.writeFileSync(evil(1, `e${count}`), `${JSON.stringify(line(1, { instance: `e${count}` }))}\n`)
    expect((await control.call('GET', '/v1/audit')).body).toMatchObject({ error: 'request_malformed' })
    expect((await control.call('GET', '/v1/audit?instance=e7')).body['lines']).toHaveLength(1)
    expect(await runMain(['audit', 'query', '--path', folder])).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('name one instance') as string,
    })
  })
})

describe('the index', () => {
  test.each(['-wal', '-journal', '-shm', ''])('%s that is a link has nothing written through it', async (end) => {
    const victim = path.join(control.gateway.folder, 'victim')
    fs.writeFileSync(victim, SECRET.repeat(100))
    fs.symlinkSync(victim, path.join(folder, INDEX + end))
    await stillAnswers()
    await runMain(['audit', 'query', '--path', folder, '--host', 'a.example'])
    expect(fs.readFileSync(victim, 'utf8')).toBe(SECRET.repeat(100))
  })

  test('with a view that never ends in the place of a table is made anew, and nobody waits for it', async () => {
    const endless = `WITH RECURSIVE n(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n WHERE x < 0`
    const database = new DatabaseSync(path.join(folder, INDEX))
    const columns = 'instance, number, offset, length, ms, kind, decision, effective, tenant, sandbox, host, reason'
    const values = columns.replaceAll(/\w+/g, 'x')
    database.exec(`CREATE TABLE file (instance TEXT, number INTEGER, inode TEXT, modified_ms REAL, bytes INTEGER, end_hash TEXT, first_ms INTEGER, last_ms INTEGER);
      CREATE VIEW line (${columns}, request_id, token_id) AS SELECT ${values}, x, x FROM (${endless}); PRAGMA user_version = 1`)
    database.close()
    await stillAnswers()
    const found = await runMain(['audit', 'query', '--path', folder, '--kind', 'admin', '--json'])
    expect(found.stdout).toContain('"action":"start"')
  })

  test('has nothing mapped into the memory of the gateway, which whoever cuts a file short would kill it by', async () => {
    const files = Array.from(
      { length: 5_000 },
      (_, seq) => `${JSON.stringify(line(seq + 1, { host: `h${seq}.example` }))}\n`,
    )
    fs.writeFileSync(evil(), files.join(''))
    const isMapped = (): boolean => fs.readFileSync('/proc/self/maps', 'utf8').includes(INDEX)
    for (let round = 0; round < 200; round++) {
      await control.call('GET', `/v1/audit?host=h${round}.example`)
      expect(isMapped()).toBe(false)
    }
    expect(
      fs
        .readdirSync(folder)
        .filter((name) => name.startsWith(INDEX))
        .sort(),
    ).not.toContain(`${INDEX}-shm`)
  })

  test('of another folder shows nothing of it', async () => {
    const other = path.join(control.gateway.folder, 'other')
    fs.mkdirSync(other)
    fs.writeFileSync(path.join(other, 'audit-evil-000001.jsonl'), `${JSON.stringify(line(1, { detail: SECRET }))}\n`)
    await runMain(['audit', 'query', '--path', other, '--host', 'a.example'])
    fs.copyFileSync(path.join(other, INDEX), path.join(folder, INDEX))
    expect(await stillAnswers()).not.toContain(SECRET)
  })
})

function deep(open: string, close: string, inside = ''): string {
  const nested = open.repeat(40_000) + inside + close.repeat(40_000)
  return JSON.stringify(line(1)).replace('"prev"', `"x":${nested},"prev"`)
}
