import { appendFileSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { type AuditReader, createAuditReader } from '../../../proxy/admin/audit-reader/audit-reader.ts'
import { summarize } from '../../../proxy/admin/audit-summary.ts'
import { type AuditFilters, queryAudit } from '../../../proxy/audit/query.ts'
import { decision, refused, writeLog } from '../cli/audit-lines.ts'

const NEVER = new AbortController().signal
const INDEX = 'audit-index.sqlite'
const FILE = 'audit-gw-000001.jsonl'

let folder: string
let reader: AuditReader
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-reader-'))
  writeLog(
    folder,
    Array.from({ length: 500 }, (_, index) =>
      (index % 5 === 0 ? refused : decision)(`h${index % 50}.example.com`, 443, { tenant: `t${index % 7}` }),
    ),
  )
  reader = createAuditReader(() => folder)
})
afterEach(async () => {
  await reader.close()
  rmSync(folder, { recursive: true, force: true })
})

const asked: readonly (readonly [string, AuditFilters])[] = [
  ['everything', {}],
  ['one host', { host: 'h5.example.com' }],
  ['refusals of a tenant', { tenant: 't3', effective: 'deny' }],
  ['a time that is over', { untilMs: Date.now() - 3_500_000 }],
  ['nobody', { sandbox: 'sbx_none' }],
]

describe('what it answers', () => {
  test.each(asked)(
    '%s: the lines that the files hold, before there is an index and by it',
    async (_sentence, filters) => {
      const expected = await seqs(filters)
      const page = async () => {
        const { lines } = await reader.lines({ filters, limit: 1_000 }, NEVER)
        return lines.map(({ seq }) => seq)
      }
      expect(await page()).toEqual(expected)
      await indexed()
      expect(await page()).toEqual(expected)
      const options = { top: 5 }
      expect(await reader.summary(filters, options, NEVER)).toEqual(
        await summarize(queryAudit({ path: folder, filters }), options),
      )
    },
  )

  test('pages follow one another without a gap or a repeat, also over the making of an index', async () => {
    const filters = { effective: 'deny' }
    const found: number[] = []
    let cursor: string | undefined
    do {
      const page = await reader.lines({ filters, limit: 7, cursor }, NEVER)
      expect(page.lines.length).toBeLessThanOrEqual(7)
      found.push(...page.lines.map(({ seq }) => seq))
      ;({ cursor } = page)
      if (found.length === 14) await indexed()
    } while (cursor !== undefined)
    expect(found).toEqual(await seqs(filters))
  })

  test('a line that was just written is there, whatever the index knows', async () => {
    await reader.lines({ filters: { host: 'h1.example.com' }, limit: 1 }, NEVER)
    await indexed()
    const line = { seq: 501, time: new Date().toISOString(), instance: 'gw', ...decision('new.example.com', 443) }
    appendFileSync(join(folder, FILE), `${JSON.stringify(line)}\n`)
    const { lines } = await reader.lines({ filters: { host: 'new.example.com' }, limit: 10 }, NEVER)
    expect(lines.map(({ seq }) => seq)).toEqual([501])
  })

  test('several at once each get their own', async () => {
    const all = await Promise.all(
      asked.map(async ([, filters]) => (await reader.lines({ filters, limit: 1_000 }, NEVER)).lines),
    )
    expect(all.map((lines) => lines.length)).toEqual(
      await Promise.all(asked.map(async ([, filters]) => (await seqs(filters)).length)),
    )
  })
})

describe('what goes wrong', () => {
  test('a cursor that is none, and a folder that is gone, are said', async () => {
    await expect(reader.lines({ filters: {}, limit: 1, cursor: 'nonsense' }, NEVER)).rejects.toMatchObject({
      code: 'SALLYPORT_AUDIT_UNREADABLE',
      message: expect.stringContaining('cursor') as string,
    })
    rmSync(folder, { recursive: true })
    await expect(reader.lines({ filters: {}, limit: 1 }, NEVER)).rejects.toMatchObject({
      code: 'SALLYPORT_AUDIT_UNREADABLE',
    })
  })

  test('an index that is garbage is made anew, and the answer is right', async () => {
    writeFileSync(join(folder, INDEX), 'garbage '.repeat(1_000))
    const filters = { host: 'h5.example.com' }
    for (let round = 0; round < 3; round++) {
      expect((await reader.lines({ filters, limit: 100 }, NEVER)).lines.map(({ seq }) => seq)).toEqual(
        await seqs(filters),
      )
      await indexed()
    }
  })

  test('a question that is given up ends, and the next is answered', async () => {
    const controller = new AbortController()
    const given = reader.lines({ filters: {}, limit: 10 }, controller.signal)
    controller.abort(new Error('enough'))
    await expect(given).rejects.toThrow('enough')
    await expect(reader.lines({ filters: {}, limit: 10 }, controller.signal)).rejects.toThrow('enough')
    expect((await reader.lines({ filters: {}, limit: 10 }, NEVER)).lines).toHaveLength(10)
  })

  test('a thread that ended for want of questions is started again', async () => {
    const short = createAuditReader(() => folder, 1)
    try {
      for (let round = 0; round < 2; round++) {
        expect((await short.lines({ filters: {}, limit: 3 }, NEVER)).lines).toHaveLength(3)
        await new Promise((resolve) => setTimeout(resolve, 50))
      }
    } finally {
      await short.close()
    }
  })

  test('after closing nothing is answered', async () => {
    const waiting = reader.lines({ filters: {}, limit: 1 }, NEVER)
    const outcome = expect(waiting).rejects.toThrow('ended')
    await reader.close()
    await outcome
    await expect(reader.lines({ filters: {}, limit: 1 }, NEVER)).rejects.toMatchObject({
      code: 'SALLYPORT_GATEWAY_CLOSED',
    })
    await reader.close()
  })
})

async function seqs(filters: AuditFilters): Promise<readonly number[]> {
  const found: number[] = []
  for await (const { line } of queryAudit({ path: folder, filters })) found.push(line.seq)
  return found
}

/** Waits until the thread made an index of what there is. */
async function indexed(): Promise<void> {
  await vi.waitFor(() => expect(existsSync(join(folder, INDEX))).toBe(true), { timeout: 5_000 })
  await new Promise((resolve) => setTimeout(resolve, 200))
}
