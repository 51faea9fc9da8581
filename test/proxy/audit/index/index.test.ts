import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { describe, expect, it, onTestFinished } from 'vitest'
import { type LineIndex, openLineIndex } from '../../../../proxy/audit/index/line-index.ts'
import { type AuditFilters, queryAudit } from '../../../../proxy/audit/query.ts'
import { collect, decision, decisions, logFiles, makeFolder, mountTmpfs, openTestLog, writeAll } from '../support.ts'

const INDEX = 'audit-index.sqlite'

async function openIndex(folder: string): Promise<LineIndex> {
  const opened = await openLineIndex(folder)
  if (!opened.ok) throw new Error(opened.why)
  onTestFinished(() => opened.index.close())
  return opened.index
}

async function find(path: string, filters: AuditFilters, index?: LineIndex): Promise<string[]> {
  return (await collect(queryAudit({ path, filters, index }))).map(({ text }) => text)
}

async function makeLog(folder: string): Promise<void> {
  for (const instance of ['gw', 'other']) {
    const log = await openTestLog(folder, { instance, maxFileBytes: 8000 })
    for (let round = 0; round < 6; round += 1)
      await writeAll(log, [
        ...decisions(5, round * 5),
        decision({
          tenant: `t${round}`,
          decision: 'deny',
          effective: 'deny',
          reason: 'host_not_allowed',
          host: 'évil.example',
        }),
        { kind: 'auth', decision: 'deny', effective: 'deny', reason: 'token_missing', client: '127.0.0.1:9' },
      ])
    await log.close()
  }
}

const FILTERS: readonly AuditFilters[] = [
  { tenant: 'acme' },
  { tenant: 't3' },
  { tenant: 'nobody' },
  { request_id: 'req_7' },
  { sandbox: 'sbx_1', decision: 'deny' },
  { host: 'évil.example', reason: 'host_not_allowed', kind: 'decision' },
  { kind: 'admin' },
  { kind: 'auth', instance: 'gw' },
  { sinceMs: 0 },
  { untilMs: 0 },
  { sinceMs: 1.5, untilMs: Date.now() + 1e9, effective: 'deny' },
]

describe('an index', () => {
  it.each(FILTERS)('finds what reading all files finds: %j', async (filters) => {
    const folder = makeFolder()
    await makeLog(folder)
    const read = await find(folder, filters)
    expect(await find(folder, filters, await openIndex(folder))).toEqual(read)
    expect(statSync(join(folder, INDEX)).mode & 0o777).toBe(0o600)
  })

  it('keeps the cursor: pages are the same with it and without it', async () => {
    const folder = makeFolder()
    await makeLog(folder)
    const filters = { kind: 'decision' } as const
    const all = await find(folder, filters)
    const paged: string[] = []
    for (let cursor: string | undefined, page = 0; ; page += 1) {
      const index = page % 2 === 0 ? await openIndex(folder) : undefined
      const found = await collect(
        queryAudit({ path: folder, filters, index, limit: 7, ...(cursor === undefined ? {} : { cursor }) }),
      )
      paged.push(...found.map(({ text }) => text))
      if (found.length < 7) break
      cursor = found.at(-1)?.cursor()
    }
    expect(paged).toEqual(all)
  })

  it('is brought up to date: a file that grew, one that is new, one that is gone, one that was replaced', async () => {
    const folder = makeFolder()
    await makeLog(folder)
    await openIndex(folder)
    const log = await openTestLog(folder)
    await log.write(decision({ tenant: 'late' }))
    await openIndex(folder)
    await log.write(decision({ tenant: 'late' }))
    await log.close()
    const [first = '', second = ''] = logFiles(folder)
    rmSync(first)
    const changed = readFileSync(second, 'latin1').replaceAll('"tenant":"acme"', '"tenant":"late"')
    rmSync(second)
    writeFileSync(second, changed, 'latin1')
    for (const filters of [{ tenant: 'late' }, { tenant: 'acme' }, { kind: 'decision' }])
      expect(await find(folder, filters, await openIndex(folder))).toEqual(await find(folder, filters))
  })

  it('gives lines that came after it was opened, too', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder, { maxFileBytes: 3000 })
    await writeAll(log, decisions(3))
    const index = await openIndex(folder)
    for (const entry of decisions(9, 4)) await log.write(entry)
    expect(await find(folder, { kind: 'decision' }, index)).toHaveLength(12)
  })
})

describe('an index that is garbage', () => {
  it.each([
    ['text', Buffer.from('this is no database, and long enough to be taken for a page of one'.repeat(100))],
    ['zeros', Buffer.alloc(8192)],
    ['empty', Buffer.alloc(0)],
    ['a header and no more', Buffer.from('SQLite format 3\0')],
  ])('(%s) is made anew', async (_sentence, bytes) => {
    const folder = makeFolder()
    await makeLog(folder)
    writeFileSync(join(folder, INDEX), bytes)
    const index = await openIndex(folder)
    expect(await find(folder, { tenant: 't3' }, index)).toEqual(await find(folder, { tenant: 't3' }))
    expect([...index.places('gw', {}, { number: 0, offset: 0 })].length).toBeGreaterThan(40)
  })

  it('(a page in its middle) never makes a query wrong', async () => {
    const folder = makeFolder()
    await makeLog(folder)
    const opened = await openLineIndex(folder)
    if (opened.ok) opened.index.close()
    const path = join(folder, INDEX)
    const bytes = readFileSync(path)
    for (let at = 4096; at + 100 < bytes.length; at += 4096) bytes.fill(0xff, at, at + 100)
    writeFileSync(path, bytes)
    const again = await openLineIndex(folder)
    const index = again.ok ? again.index : undefined
    expect(await find(folder, { tenant: 't3' }, index)).toEqual(await find(folder, { tenant: 't3' }))
    index?.close()
  })

  it('(of another version, or of another program) is made anew', async () => {
    const folder = makeFolder()
    await makeLog(folder)
    const database = new DatabaseSync(join(folder, INDEX))
    database.exec('CREATE TABLE mine (x); PRAGMA user_version = 99')
    database.close()
    expect(await find(folder, { tenant: 't3' }, await openIndex(folder))).toHaveLength(2)
  })

  it('(with places that are nowhere) sends the query to the files', async () => {
    const folder = makeFolder()
    await makeLog(folder)
    const opened = await openLineIndex(folder)
    if (opened.ok) opened.index.close()
    const database = new DatabaseSync(join(folder, INDEX))
    database.exec('UPDATE line SET length = length + 3')
    database.close()
    expect(await find(folder, { tenant: 'acme' }, await openIndex(folder))).toEqual(
      await find(folder, { tenant: 'acme' }),
    )
  })

  it('(a link to somewhere else) is not written through', async () => {
    const folder = makeFolder()
    await makeLog(folder)
    const victim = join(folder, 'victim')
    writeFileSync(victim, 'precious')
    symlinkSync(victim, join(folder, INDEX))
    expect(await openLineIndex(folder)).toEqual({ ok: false, why: 'it is no file' })
    expect(readFileSync(victim, 'utf8')).toBe('precious')
  })
})

describe('where there can be no index', () => {
  it('a full disk: the answer says so, and leaves the log alone', async () => {
    const disk = mountTmpfs('400k')
    if (disk === undefined) return
    const folder = join(disk.path, 'audit')
    mkdirSync(folder)
    await makeLog(folder)
    const before = logFiles(folder).map((file) => readFileSync(file, 'latin1'))
    expect(() => appendFileSync(join(disk.path, 'filler'), Buffer.alloc(1 << 20))).toThrow()
    const opened = await openLineIndex(folder)
    expect(opened.ok).toBe(false)
    expect(logFiles(folder).map((file) => readFileSync(file, 'latin1'))).toEqual(before)
    expect(await find(folder, { tenant: 't3' })).toHaveLength(2)
  })

  it('a folder that can only be read', async () => {
    const disk = mountTmpfs('1m')
    if (disk === undefined) return
    const folder = join(disk.path, 'audit')
    mkdirSync(folder)
    await makeLog(folder)
    disk.remount('ro')
    expect(await openLineIndex(folder)).toMatchObject({ ok: false, why: 'EROFS' })
    expect(existsSync(join(folder, INDEX))).toBe(false)
  })

  it('no folder', async () => {
    expect((await openLineIndex(join(makeFolder(), 'nowhere'))).ok).toBe(false)
  })
})
