import { createWriteStream, writeFileSync } from 'node:fs'
import { once } from 'node:events'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { chainLine } from '../../../proxy/audit/chain.ts'
import { formatEntry } from '../../../proxy/audit/line.ts'
import { type AuditFilters, type Found, queryAudit, type QueryOptions } from '../../../proxy/audit/query.ts'
import type { AuditEntry } from '../../../proxy/audit/record.ts'
import { collect, decision, makeFolder } from './support.ts'

const NOON = Date.UTC(2026, 0, 1, 12)

/** Lines without a chain: a query doesn't look at it. One second between two lines, `perFile` lines in a file. */
function writeLines(
  folder: string,
  instance: string,
  entries: readonly AuditEntry[],
  perFile = 3,
  startMs = NOON,
): void {
  for (let number = 1; (number - 1) * perFile < entries.length; number += 1) {
    const from = (number - 1) * perFile
    const lines = entries
      .slice(from, from + perFile)
      .map((entry, index) =>
        chainLine(formatEntry(entry, from + index + 1, startMs + (from + index) * 1000, `"${instance}"`), ''),
      )
    writeFileSync(join(folder, `audit-${instance}-${String(number).padStart(6, '0')}.jsonl`), lines.join(''))
  }
}

function find(options: QueryOptions): Promise<Found[]> {
  return collect(queryAudit(options))
}

function ids(found: readonly Found[]): string[] {
  return found.map(({ line }) => line.request_id ?? line.kind)
}

const entries: AuditEntry[] = [
  decision({ request_id: 'r1', tenant: 'acme', sandbox: 's1', host: 'a.example' }),
  decision({
    request_id: 'r2',
    tenant: 'acme',
    sandbox: 's2',
    host: 'b.example',
    decision: 'deny',
    effective: 'deny',
    reason: 'host_not_allowed',
  }),
  decision({
    request_id: 'r3',
    tenant: 'other',
    sandbox: 's1',
    host: 'a.example',
    decision: 'deny',
    reason: 'host_not_allowed',
  }),
  { kind: 'auth', decision: 'deny', effective: 'deny', reason: 'token_expired', request_id: 'r4' },
  {
    kind: 'close',
    close_reason: 'client_closed',
    bytes_in: 0,
    bytes_out: 0,
    duration_ms: 1,
    request_id: 'r1',
    tenant: 'acme',
  },
  { kind: 'admin', action: 'reload', detail: '"tenant":"acme"' },
  decision({ request_id: 'r7', tenant: 'ac"me\n', sandbox: 's3', token_id: 'tok_7' }),
]

describe('a query', () => {
  const rows: readonly (readonly [string, AuditFilters, readonly string[]])[] = [
    ['no filter gives all, in order', {}, ['r1', 'r2', 'r3', 'r4', 'r1', 'admin', 'r7']],
    ['by tenant, not by what looks like one in a text', { tenant: 'acme' }, ['r1', 'r2', 'r1']],
    ['by a tenant that needs escaping', { tenant: 'ac"me\n' }, ['r7']],
    ['a part of a name is not the name', { tenant: 'acm' }, []],
    ['by sandbox', { sandbox: 's1' }, ['r1', 'r3']],
    ['by host', { host: 'a.example' }, ['r1', 'r3']],
    ['by reason', { reason: 'host_not_allowed' }, ['r2', 'r3']],
    ['by decision', { decision: 'deny' }, ['r2', 'r3', 'r4']],
    ['by what happened', { effective: 'deny' }, ['r2', 'r4']],
    ['by kind', { kind: 'close' }, ['r1']],
    ['by request', { request_id: 'r1' }, ['r1', 'r1']],
    ['by token', { token_id: 'tok_7' }, ['r7']],
    ['all filters must hold', { tenant: 'acme', decision: 'deny' }, ['r2']],
    ['since includes its moment', { sinceMs: NOON + 5000 }, ['admin', 'r7']],
    ['until excludes its moment', { untilMs: NOON + 2000 }, ['r1', 'r2']],
    ['between', { sinceMs: NOON + 1000, untilMs: NOON + 3000 }, ['r2', 'r3']],
    ['an instance that is not there', { instance: 'nope' }, []],
  ]

  it.each(rows)('%s', async (_name, filters, expected) => {
    const folder = makeFolder()
    writeLines(folder, 'gw', entries)
    expect(ids(await find({ path: folder, filters }))).toEqual(expected)
  })

  it('gives back pages that join without a gap or a repeat, at every size of page', async () => {
    const folder = makeFolder()
    writeLines(folder, 'gw', entries)
    writeLines(folder, 'gw2', entries, 2, NOON + 500)
    const all = await find({ path: folder })
    expect(all).toHaveLength(14)
    for (let limit = 1; limit <= 15; limit += 1) {
      const pages: Found[] = []
      for (let cursor: string | undefined; ; cursor = pages.at(-1)!.cursor()) {
        const page = await find({ path: folder, limit, ...(cursor === undefined ? {} : { cursor }) })
        if (page.length === 0) break
        pages.push(...page)
      }
      expect(pages.map(({ text }) => text)).toEqual(all.map(({ text }) => text))
    }
  })

  it('merges instances by time', async () => {
    const folder = makeFolder()
    writeLines(folder, 'a', entries.slice(0, 3), 3, NOON)
    writeLines(folder, 'b', entries.slice(0, 3), 3, NOON + 500)
    expect((await find({ path: folder })).map(({ line }) => `${line.instance}${line.seq}`)).toEqual([
      'a1',
      'b1',
      'a2',
      'b2',
      'a3',
      'b3',
    ])
    expect((await find({ path: folder, filters: { instance: 'b' } })).map(({ line }) => line.instance)).toEqual([
      'b',
      'b',
      'b',
    ])
  })

  it('leaves out what is no line, and a line that is only half written', async () => {
    const folder = makeFolder()
    const line = chainLine(formatEntry(decision(), 1, NOON, '"gw"'), '')
    writeFileSync(
      join(folder, 'audit-gw-000001.jsonl'),
      `${line}hello\n{"a":1}\n\n${'x'.repeat(3_000_000)}\n${line}${line.slice(0, 100)}`,
    )
    expect(await find({ path: folder })).toHaveLength(2)
    expect(await find({ path: join(folder, 'audit-gw-000001.jsonl'), filters: { tenant: 'acme' } })).toHaveLength(2)
  })

  it.each([
    '',
    'x',
    'e30x',
    Buffer.from('{"gw":[0,-1]}').toString('base64url'),
    Buffer.from('[]').toString('base64url'),
  ])('refuses the cursor `%s`', async (cursor) => {
    const folder = makeFolder()
    writeLines(folder, 'gw', entries)
    await expect(find({ path: folder, cursor })).rejects.toMatchObject({ code: 'SALLYPORT_AUDIT_UNREADABLE' })
  })

  it('refuses a path that is not there', async () => {
    await expect(find({ path: join(makeFolder(), 'x') })).rejects.toMatchObject({ code: 'SALLYPORT_AUDIT_UNREADABLE' })
  })

  it('stops when it is told to', async () => {
    const folder = makeFolder()
    writeLines(folder, 'gw', entries)
    await expect(find({ path: folder, signal: AbortSignal.abort() })).rejects.toMatchObject({ name: 'AbortError' })
  })

  it('reads a large log with bounded memory', async () => {
    const folder = makeFolder()
    const out = createWriteStream(join(folder, 'audit-gw-000001.jsonl'))
    const many = Buffer.from(chainLine(formatEntry(decision(), 1, NOON, '"gw"'), '').repeat(2000))
    const copies = Math.ceil((192 * 1024 * 1024) / many.length)
    for (let copy = 0; copy < copies; copy += 1) if (!out.write(many)) await once(out, 'drain')
    out.end(chainLine(formatEntry(decision({ request_id: 'needle' }), 2, NOON, '"gw"'), ''))
    await once(out, 'finish')
    const before = process.memoryUsage.rss()
    let peak = before
    const sampler = setInterval(() => (peak = Math.max(peak, process.memoryUsage.rss())), 20)
    expect(await find({ path: folder, filters: { request_id: 'needle' } })).toHaveLength(1)
    let count = 0
    for await (const { line } of queryAudit({ path: folder, limit: 100_000 })) count += line.seq
    clearInterval(sampler)
    expect(count).toBe(100_000)
    expect((peak - before) / 2 ** 20).toBeLessThan(96)
  })
})
