/** The ends of tunnels that a killed process left open: each once, whatever happened in between. */
import fs from 'node:fs'
import path from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { closeLostTunnels, earlierFiles } from '../../../proxy/audit/close-lost-tunnels.ts'
import { findLostTunnels } from '../../../proxy/audit/lost-tunnels.ts'
import type { AuditEntry, AuditLog } from '../../../proxy/audit/record.ts'
import { verifyAudit } from '../../../proxy/audit/verify.ts'
import { systemClock } from '../../../proxy/clock.ts'
import { decision, makeFolder, openTestLog, readAll, testKey, writeAll } from './support.ts'

const folders: string[] = []
afterEach(() => {
  for (const folder of folders.splice(0)) fs.rmSync(folder, { recursive: true, force: true })
})

function newFolder(): string {
  const folder = makeFolder()
  folders.push(folder)
  return folder
}

const opened = (id: string, more = {}): AuditEntry => decision({ request_id: id, effective: 'allow', ...more })
const closed = (id: string): AuditEntry => ({
  kind: 'close',
  request_id: id,
  close_reason: 'client_closed',
  bytes_in: 1,
  bytes_out: 1,
  duration_ms: 1,
})

/** A run that is killed: what it wrote stays as it was, without its end. */
async function killedRun(folder: string, entries: readonly AuditEntry[], more = {}): Promise<void> {
  const copy = `${folder}-copy`
  const log = await openTestLog(folder, more)
  for (const entry of entries) await log.write(entry)
  fs.cpSync(folder, copy, { recursive: true })
  await log.close()
  fs.rmSync(folder, { recursive: true })
  fs.renameSync(copy, folder)
  for (const name of fs.readdirSync(folder)) if (name.endsWith('.lock')) fs.rmSync(path.join(folder, name))
}

async function nextRun(folder: string, more = {}): Promise<AuditLog> {
  const files = earlierFiles(folder, 'gw')
  const log = await openTestLog(folder, more)
  await closeLostTunnels({
    files,
    audit: log,
    clock: systemClock,
    signal: new AbortController().signal,
    onClose: () => undefined,
  })
  return log
}

const closeReason = (line: object): unknown => ('close_reason' in line ? line.close_reason : undefined)

const lostIn = (folder: string) =>
  readAll(folder)
    .filter((line) => closeReason(line) === 'process_lost')
    .map((line) => line['request_id'])

describe('tunnels that a killed process left open', () => {
  test('are closed once, with what their decision said; refused ones and failed ones had no end', async () => {
    const folder = newFolder()
    await killedRun(folder, [
      opened('a', { tenant: 'acme', host: 'x.example' }),
      opened('b'),
      opened('refused', { decision: 'deny', effective: 'deny', reason: 'host_not_allowed' }),
      opened('failed', { reason: 'connect_refused' }),
      opened('reported', { decision: 'deny', effective: 'allow', reason: 'host_not_allowed' }),
      closed('b'),
    ])
    const log = await nextRun(folder)
    await log.close()
    expect(lostIn(folder)).toEqual(['a', 'reported'])
    expect(readAll(folder).find((line) => closeReason(line) === 'process_lost')).toMatchObject({
      tenant: 'acme',
      host: 'x.example',
      bytes_in: 0,
      bytes_out: 0,
    })
    await (await nextRun(folder)).close()
    expect(lostIn(folder)).toEqual(['a', 'reported'])
    expect(await verifyAudit({ paths: [folder], keys: [testKey.key] })).toMatchObject({ ok: true })
  })

  test('are found over several files, and over a run that was killed before it had closed them', async () => {
    const folder = newFolder()
    const small = { maxFileBytes: 4_096 }
    const many = Array.from({ length: 40 }, (_none, index) => opened(`r${index}`))
    await killedRun(folder, [...many, ...many.slice(2).map(({ request_id: id }) => closed(id ?? ''))], small)
    expect(earlierFiles(folder, 'gw').length).toBeGreaterThan(3)
    // This one wrote the end of one of them, and was killed.
    await killedRun(folder, [{ ...closed('r0'), close_reason: 'process_lost' } as AuditEntry, opened('later')], small)
    await (await nextRun(folder, small)).close()
    expect(lostIn(folder).sort()).toEqual(['later', 'r0', 'r1'])
  })

  test('are found after runs that ended in order before they had found them, or could not look', async () => {
    const folder = newFolder()
    await killedRun(folder, [opened('a')])
    for (const how of ['told to end', 'can not look', 'told to end']) {
      const files = earlierFiles(folder, 'gw')
      const log = await openTestLog(folder)
      const ending = new AbortController()
      const looking = closeLostTunnels({
        files: how === 'can not look' ? files.map((file) => ({ ...file, path: `${file.path}-gone` })) : files,
        audit: log,
        clock: systemClock,
        signal: ending.signal,
        onClose: () => undefined,
      })
      if (how === 'told to end') ending.abort()
      await looking.catch(() => undefined)
      await log.close()
    }
    expect(lostIn(folder)).toEqual([])
    for (let run = 0; run < 3; run++) await (await nextRun(folder)).close()
    expect(lostIn(folder)).toEqual(['a'])
    const actions = readAll(folder).map((line) => line['action'])
    expect(actions.filter((action) => action === 'lost_tunnels_left')).toHaveLength(3)
    expect(actions.filter((action) => action === 'lost_tunnels_closed').length).toBeLessThanOrEqual(2)
  })

  test('of two runs that were killed, one before and one after such a run, are all found', async () => {
    const folder = newFolder()
    await killedRun(folder, [opened('a')])
    const files = earlierFiles(folder, 'gw')
    const log = await openTestLog(folder)
    const ending = new AbortController()
    const looking = closeLostTunnels({
      ...{ files, audit: log, clock: systemClock, signal: ending.signal, onClose: () => undefined },
    })
    ending.abort()
    await looking
    await log.close()
    await killedRun(folder, [opened('b')])
    await (await nextRun(folder)).close()
    expect(lostIn(folder).sort()).toEqual(['a', 'b'])
  })

  test('are not looked for where the last run ended in order', async () => {
    const folder = newFolder()
    const log = await openTestLog(folder)
    await writeAll(log, [opened('a')])
    await log.close()
    const options = { nowMs: Date.now, signal: new AbortController().signal }
    expect(await findLostTunnels(earlierFiles(folder, 'gw'), options)).toBeUndefined()
  })

  test('are looked for in so many bytes and no more, and the log says so', async () => {
    const folder = newFolder()
    await killedRun(
      folder,
      Array.from({ length: 40 }, (_none, index) => opened(`r${index}`)),
      { maxFileBytes: 4_096 },
    )
    const files = earlierFiles(folder, 'gw')
    const signal = new AbortController().signal
    const found = await findLostTunnels(files, { nowMs: Date.now, signal, maxBytes: 5_000 })
    expect(found?.stoppedAt).toBe(files.at(-2)?.number)
    expect(found?.closes.length).toBeGreaterThan(0)
    expect(found?.closes.length).toBeLessThan(40)
  })

  test('what a client wrote into a line is no line of its own', async () => {
    const folder = newFolder()
    const requested = '"kind":"close","request_id":"a"'
    await killedRun(folder, [opened('a'), opened('b', { requested, rule: requested })])
    await (await nextRun(folder)).close()
    expect(lostIn(folder).sort()).toEqual(['a', 'b'])
  })
})
