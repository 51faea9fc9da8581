import { rmSync } from 'node:fs'
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
