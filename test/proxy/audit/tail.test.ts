import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { describe, expect, it, onTestFinished } from 'vitest'
import { tailAudit, type Tailed, type TailOptions } from '../../../proxy/audit/tail.ts'
import { collect, decision, decisions, logFiles, makeFolder, openTestLog, until, writeAll } from './support.ts'

/** Follows until the test ends; what came so far. */
function follow(options: TailOptions): { readonly ids: () => string[] } {
  const stop = new AbortController()
  const seen: Tailed[] = []
  const done = (async () => {
    for await (const tailed of tailAudit({ pollMs: 5, signal: stop.signal, ...options })) seen.push(tailed)
  })()
  onTestFinished(async () => {
    stop.abort()
    await done
  })
  return { ids: () => seen.flatMap(({ line }) => line.request_id ?? []) }
}

describe('tail', () => {
  it('shows the last lines that pass, and ends when it is not to follow', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder, { maxFileBytes: 3000 })
    for (const entry of decisions(12)) await log.write(entry)
    await log.close()
    const shown = await collect(tailAudit({ path: folder, lines: 4, follow: false, filters: { kind: 'decision' } }))
    expect(shown.map(({ line }) => line.request_id)).toEqual(['req_9', 'req_10', 'req_11', 'req_12'])
    expect(await collect(tailAudit({ path: folder, lines: 0, follow: false }))).toEqual([])
  })

  it('follows over rotation, a restart and a second instance, each line once', async () => {
    const folder = makeFolder()
    const first = await openTestLog(folder, { maxFileBytes: 3000 })
    await first.write(decision({ request_id: 'before' }))
    const tail = follow({ path: folder })
    await until(() => tail.ids().length === 1, 'the line from before')
    for (const entry of decisions(30)) await first.write(entry)
    await first.close()
    expect(logFiles(folder).length).toBeGreaterThan(5)
    const second = await openTestLog(folder)
    await writeAll(second, decisions(1, 31))
    await until(() => tail.ids().length === 32, 'the first line of the second run')
    await writeAll(second, decisions(4, 32))
    await until(() => tail.ids().length === 36, 'all lines')
    const other = await openTestLog(folder, { instance: 'other' })
    await other.write(decision({ request_id: 'other' }))
    await until(() => tail.ids().length === 37, 'the line of the other instance')
    expect(tail.ids()).toEqual(['before', ...Array.from({ length: 35 }, (_, index) => `req_${index + 1}`), 'other'])
  })

  it.each([0, 2])(
    'begins where the log ends at the call, however late it is read: %i lines of before',
    async (lines) => {
      const folder = makeFolder()
      const log = await openTestLog(folder, { maxFileBytes: 3000 })
      for (const entry of decisions(9)) await log.write(entry)
      const stop = new AbortController()
      const tail = tailAudit({ path: folder, lines, filters: { kind: 'decision' }, pollMs: 5, signal: stop.signal })
      // More than are shown of before, and over several files.
      for (const entry of decisions(20, 10)) await log.write(entry)
      const expected = Array.from({ length: 20 + lines }, (_, index) => `req_${10 - lines + index}`)
      const seen: (string | undefined)[] = []
      for await (const { line } of tail) if (seen.push(line.request_id) === expected.length) stop.abort()
      expect(seen).toEqual(expected)
      await log.close()
    },
  )

  it('shows a line whole that was half written at the call', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    await log.write(decision({ request_id: 'whole' }))
    await log.close()
    const [file = ''] = logFiles(folder)
    const text = readFileSync(file, 'latin1')
    const cut = text.indexOf('"whole"')
    writeFileSync(file, text.slice(0, cut))
    const stop = new AbortController()
    const tail = tailAudit({ path: folder, lines: 0, filters: { kind: 'decision' }, pollMs: 5, signal: stop.signal })
    writeFileSync(file, text)
    for await (const { line } of tail) {
      expect(line.request_id).toBe('whole')
      stop.abort()
    }
    expect(stop.signal.aborted).toBe(true)
  })

  it('goes on when the file was removed and put back', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    const tail = follow({ path: folder })
    await log.write(decision({ request_id: 'one' }))
    await until(() => tail.ids().length === 1, 'the first line')
    rmSync(folder, { recursive: true })
    await log.write(decision({ request_id: 'two' }))
    await until(() => tail.ids().length === 2, 'the second line')
    expect(tail.ids()).toEqual(['one', 'two'])
  })

  it('refuses a folder that is not there', async () => {
    await expect(collect(tailAudit({ path: `${makeFolder()}/x` }))).rejects.toMatchObject({
      code: 'SALLYPORT_AUDIT_UNREADABLE',
    })
  })
})
