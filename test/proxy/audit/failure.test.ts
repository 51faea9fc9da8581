import {
  appendFileSync,
  copyFileSync,
  readFileSync,
  renameSync,
  rmSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, vi } from 'vitest'
import { openAuditLog } from '../../../proxy/audit/log.ts'
import { Segment } from '../../../proxy/audit/segment.ts'
import { verifyAudit } from '../../../proxy/audit/verify.ts'
import { systemClock } from '../../../proxy/clock.ts'
import {
  decision,
  decisions,
  logFiles,
  makeFolder,
  mountTmpfs,
  openTestLog,
  rawLines,
  readAll,
  readOne,
  subfolder,
  testKey,
  until,
  writeAll,
} from './support.ts'

function verify(folder: string) {
  return verifyAudit({ paths: [folder], keys: [testKey.key] })
}

/** A write that fails while `code` is set, after `partial` bytes. */
function faultyDisk(): { code: string | undefined; partial: number; write: typeof writeBytes } {
  const disk = { code: undefined as string | undefined, partial: 0, write: writeBytes }
  function writeBytes(fd: number, bytes: Buffer, offset: number, length: number): number {
    if (disk.code === undefined) return writeSync(fd, bytes, offset, length)
    if (disk.partial > 0) {
      const count = writeSync(fd, bytes, offset, Math.min(disk.partial, length))
      disk.partial = 0
      return count
    }
    throw Object.assign(new Error(disk.code), { code: disk.code })
  }
  return disk
}

it('an attempt that failed by itself keeps its reason when its line could not be written in time', async () => {
  const folder = makeFolder()
  const disk = faultyDisk()
  const log = await openTestLog(folder, { writeBytes: disk.write })
  disk.code = 'ENOSPC'
  const failed = decision({ request_id: 'req_1', reason: 'dns_failed', resolved: undefined, dialled: undefined })
  expect(await writeAll(log, [failed, decision({ request_id: 'req_2' })])).toEqual([false, false])
  disk.code = undefined
  await until(() => log.isWritable(), 'writable again')
  const lines = readAll(folder).filter(({ kind }) => kind === 'decision')
  expect(lines.map(({ effective, reason }) => [effective, reason])).toEqual([
    ['allow', 'dns_failed'],
    ['deny', 'audit_unavailable'],
  ])
})

describe('a full disk', () => {
  it('refuses while it is full, keeps the lines, and goes on when there is room', async ({ skip }) => {
    const disk = mountTmpfs('64k')
    if (disk === undefined) return skip()
    const folder = subfolder(disk.path)
    writeFileSync(join(disk.path, 'ballast'), Buffer.alloc(16 * 1024))
    const states: boolean[] = []
    const log = await openTestLog(folder, { onWritable: (writable) => states.push(writable) })
    const answers: boolean[] = []
    let count = 0
    while (log.isWritable() && count < 1000)
      answers.push(await log.write(decision({ request_id: `req_${(count += 1)}` })))
    expect(count).toBeLessThan(1000)
    expect(answers.lastIndexOf(true)).toBe(answers.length - 2)
    expect(await log.write(decision({ request_id: `req_${(count += 1)}` }))).toBe(false)
    expect(readFileSync(logFiles(folder)[0]!, 'latin1').endsWith('"}\n')).toBe(true)

    rmSync(join(disk.path, 'ballast'))
    await until(() => log.isWritable(), 'writable again')
    expect(await log.write(decision({ request_id: `req_${(count += 1)}` }))).toBe(true)
    await log.close()
    expect(states).toEqual([false, true])
    const lines = readAll(folder).filter(({ kind }) => kind === 'decision')
    expect(lines.map(({ request_id }) => request_id)).toEqual(
      Array.from({ length: count }, (_, index) => `req_${index + 1}`),
    )
    // The two that could not be written in time were refused, and say so.
    expect(
      lines.filter(({ effective }) => effective === 'deny').map(({ request_id, reason }) => [request_id, reason]),
    ).toEqual([
      [`req_${count - 2}`, 'audit_unavailable'],
      [`req_${count - 1}`, 'audit_unavailable'],
    ])
    expect(await verify(folder)).toMatchObject({
      ok: true,
      instances: [{ lost: 0, unsignedLines: 0, runs: [{ end: 'stop' }] }],
    })
  })

  it('under `onFailure: allow` writes late lines as they were', async () => {
    const folder = makeFolder()
    const disk = faultyDisk()
    const log = await openTestLog(folder, { onFailure: 'allow', writeBytes: disk.write })
    disk.code = 'ENOSPC'
    expect(await log.write(decision())).toBe(false)
    disk.code = undefined
    await until(() => log.isWritable(), 'writable again')
    await log.close()
    expect(readAll(folder).find(({ kind }) => kind === 'decision')).toMatchObject({ effective: 'allow' })
  })

  it('tells with a `gap` line, and in the numbers, how many lines were lost', async () => {
    const folder = makeFolder()
    const disk = faultyDisk()
    const onLost = vi.fn()
    const log = await openTestLog(folder, { writeBytes: disk.write, maxKeptLines: 5, onLost })
    disk.code = 'ENOSPC'
    expect(await writeAll(log, decisions(20))).toEqual(Array(20).fill(false))
    disk.code = undefined
    await until(() => log.isWritable(), 'writable again')
    await log.write(decision({ request_id: 'req_after' }))
    await log.close()
    expect(onLost).toHaveBeenCalledTimes(15)
    const lines = readAll(folder)
    const gap = lines.findIndex(({ action }) => action === 'gap')
    expect(lines[gap]).toMatchObject({ lost: 15, seq: lines[gap - 1]!.seq + 16 })
    expect(lines.slice(gap - 5, gap).map(({ request_id }) => request_id)).toEqual([
      'req_1',
      'req_2',
      'req_3',
      'req_4',
      'req_5',
    ])
    expect(lines[gap + 1]).toMatchObject({ request_id: 'req_after' })
    expect(await verify(folder)).toMatchObject({ ok: true, instances: [{ lost: 15 }] })
  })

  it('a gap line does not excuse more than it counts', async () => {
    const folder = makeFolder()
    const disk = faultyDisk()
    const log = await openTestLog(folder, { writeBytes: disk.write, maxKeptLines: 1 })
    disk.code = 'ENOSPC'
    await writeAll(log, decisions(4))
    disk.code = undefined
    await until(() => log.isWritable(), 'writable again')
    await log.close()
    const file = logFiles(folder)[0]!
    const lines = rawLines(file)
    writeFileSync(file, lines.toSpliced(lines.findIndex((line) => line.includes('"gap"')) - 1, 1).join(''))
    expect(await verify(folder)).toMatchObject({ ok: false, fault: { code: 'lines_missing' } })
  })
})

describe('what is counted', () => {
  it.each(['deny', 'allow'] as const)('is what the lines say, each once, under onFailure: %s', async (onFailure) => {
    const folder = makeFolder()
    const disk = faultyDisk()
    const counted: [string | undefined, string | undefined, string | undefined][] = []
    const log = await openTestLog(folder, {
      onFailure,
      writeBytes: disk.write,
      onEntry: (entry) =>
        counted.push([
          entry.request_id,
          'effective' in entry ? entry.effective : undefined,
          'reason' in entry ? entry.reason : undefined,
        ]),
    })
    await writeAll(log, decisions(3))
    disk.code = 'EIO'
    // Those that wait when the write fails, and those that come while it can't be written.
    await writeAll(log, decisions(3, 4))
    await writeAll(log, decisions(3, 7))
    disk.code = undefined
    await until(() => log.isWritable(), 'writable again')
    await writeAll(log, decisions(3, 10))
    const lines = readAll(folder).filter(({ kind }) => kind === 'decision')
    expect(counted).toEqual(lines.map(({ request_id, effective, reason }) => [request_id, effective, reason]))
    expect(counted).toHaveLength(12)
    const refused = counted.filter(([, , reason]) => reason === 'audit_unavailable')
    expect(refused).toHaveLength(onFailure === 'deny' ? 6 : 0)
  })
})

describe('a write that stops half way', () => {
  it('answers `true` for the whole lines and takes the rest back', async () => {
    const folder = makeFolder()
    const disk = faultyDisk()
    const log = await openTestLog(folder, { writeBytes: disk.write })
    Object.assign(disk, { code: 'EIO', partial: 1500 })
    const answers = await writeAll(log, decisions(5))
    expect(answers).toEqual([true, true, false, false, false])
    expect(readAll(folder).filter(({ kind }) => kind === 'decision')).toHaveLength(2)
    expect(await verify(folder)).toMatchObject({ ok: true, instances: [{ runs: [{ tornBytes: 0 }] }] })
    disk.code = undefined
    await until(() => log.isWritable(), 'writable again')
    await log.close()
    expect(readAll(folder).flatMap(({ request_id }) => request_id ?? [])).toEqual([
      'req_1',
      'req_2',
      'req_3',
      'req_4',
      'req_5',
    ])
    expect(await verify(folder)).toMatchObject({ ok: true })
  })

  it('leaves the next run to say that the line was torn, when nothing could be taken back', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    await writeAll(log, decisions(3))
    await log.close()
    const killed = makeFolder()
    const path = join(killed, 'audit-gw-000001.jsonl')
    copyFileSync(logFiles(folder)[0]!, path)
    writeFileSync(path, `${rawLines(path).slice(0, 4).join('')}{"seq":5,"time":"20`)
    expect(await verify(killed)).toMatchObject({ ok: true, instances: [{ runs: [{ end: 'open', tornBytes: 19 }] }] })
    await (await openTestLog(killed)).close()
    expect(readAll(killed)[4]).toMatchObject({ seq: 5, action: 'start', previous: 'unclean', torn_bytes: 19 })
    expect(await verify(killed)).toMatchObject({
      ok: true,
      instances: [{ runs: [{ end: 'unclean', lastSeq: 4, tornBytes: 19 }, { end: 'stop' }] }],
    })
    appendFileSync(path, 'x')
    expect(await verify(killed)).toMatchObject({ ok: false, fault: { code: 'file_end_differs' } })
  })

  it('survives a kill before the first line of a file was whole', async () => {
    const folder = makeFolder()
    writeFileSync(join(folder, 'audit-gw-000001.jsonl'), '')
    writeFileSync(join(folder, 'audit-gw-000002.jsonl'), '{"seq":1,')
    await (await openTestLog(folder)).close()
    expect(readAll(folder)[0]).toMatchObject({ seq: 1, action: 'start', previous: 'unclean', torn_bytes: 9 })
    expect(await verify(folder)).toMatchObject({ ok: true })
  })
})

describe('a read-only disk', () => {
  it('refuses until it can be written again', async ({ skip }) => {
    const disk = mountTmpfs('1m')
    if (disk === undefined) return skip()
    const folder = subfolder(disk.path)
    // Each line fills a file, so none is open between two lines and the disk can be remounted.
    const log = await openTestLog(folder, { maxFileBytes: 100 })
    expect(await log.write(decision({ request_id: 'req_1' }))).toBe(true)
    await until(() => {
      try {
        disk.remount('ro')
        return true
      } catch {
        return false
      }
    }, 'remounted')
    expect(await log.write(decision({ request_id: 'req_2' }))).toBe(false)
    expect(log.isWritable()).toBe(false)
    disk.remount('rw')
    await until(() => log.isWritable(), 'writable again')
    expect(await log.write(decision({ request_id: 'req_3' }))).toBe(true)
    await log.close()
    expect(readAll(folder).flatMap(({ request_id }) => request_id ?? [])).toEqual(['req_1', 'req_2', 'req_3'])
    expect(await verify(folder)).toMatchObject({ ok: true })
  })

  it('refuses the start with one line', async ({ skip }) => {
    const disk = mountTmpfs('1m')
    if (disk === undefined) return skip()
    const path = subfolder(disk.path)
    disk.remount('ro')
    const opened = openAuditLog({
      path,
      instance: 'gw',
      onFailure: 'deny',
      signingKey: testKey.key,
      clock: systemClock,
    })
    await expect(opened).rejects.toMatchObject({
      code: 'SALLYPORT_AUDIT_UNWRITABLE',
      message: `the audit log can't be written to \`${path}\` (the file system is read-only)`,
    })
  })

  it('a start on a full disk is refused too, and leaves no empty file', async ({ skip }) => {
    const disk = mountTmpfs('8k')
    if (disk === undefined) return skip()
    const path = subfolder(disk.path)
    try {
      writeFileSync(join(disk.path, 'ballast'), Buffer.alloc(8 * 1024))
    } catch {
      // Full is what it should be.
    }
    const opened = openAuditLog({
      path,
      instance: 'gw',
      onFailure: 'deny',
      signingKey: testKey.key,
      clock: systemClock,
    })
    await expect(opened).rejects.toMatchObject({ code: 'SALLYPORT_AUDIT_UNWRITABLE' })
    expect(logFiles(path)).toEqual([])
  })
})

describe('files that somebody touches under a running log', () => {
  it.each(['the file', 'the folder'])('%s was removed: the next line puts the file back, whole', async (what) => {
    const folder = join(makeFolder(), 'audit')
    const logger = { info: vi.fn(), warn: vi.fn(), error: vi.fn() }
    const log = await openTestLog(folder, { logger })
    await writeAll(log, decisions(10))
    rmSync(what === 'the file' ? logFiles(folder)[0]! : folder, { recursive: true })
    expect(await log.write(decision({ request_id: 'req_11' }))).toBe(true)
    await log.close()
    expect(logFiles(folder)).toHaveLength(1)
    const lines = readAll(folder)
    expect(lines.flatMap(({ request_id }) => request_id ?? [])).toEqual(
      Array.from({ length: 11 }, (_, index) => `req_${index + 1}`),
    )
    expect(lines.find(({ action }) => action === 'restored')?.detail).toMatch(/^file 1 had been removed/)
    expect(logger.error).toHaveBeenCalledTimes(1)
    expect(await verify(folder)).toMatchObject({ ok: true })
  })

  it('the folder was removed and can not be made: refuses, then puts all back', async () => {
    const parent = makeFolder()
    const folder = join(parent, 'audit')
    const log = await openTestLog(folder)
    await writeAll(log, decisions(3))
    rmSync(folder, { recursive: true })
    writeFileSync(folder, 'in the way')
    expect(await log.write(decision({ request_id: 'req_4' }))).toBe(false)
    expect(log.isWritable()).toBe(false)
    rmSync(folder)
    await until(() => log.isWritable(), 'writable again')
    await log.close()
    expect(readAll(folder).flatMap(({ request_id }) => request_id ?? [])).toEqual(['req_1', 'req_2', 'req_3', 'req_4'])
    expect(await verify(folder)).toMatchObject({ ok: true })
  })

  it('a closed file was removed: verify says which', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder, { maxFileBytes: 2000 })
    for (const entry of decisions(10)) await log.write(entry)
    rmSync(logFiles(folder)[1]!)
    await log.close()
    expect(await verify(folder)).toMatchObject({
      ok: false,
      fault: { code: 'segment_missing', message: 'file 2 is missing' },
    })
  })

  it('the file was moved away: it is closed where it is, and both parts verify together', async () => {
    const [folder, elsewhere] = [makeFolder(), makeFolder()]
    const log = await openTestLog(folder)
    await writeAll(log, decisions(3))
    renameSync(logFiles(folder)[0]!, join(elsewhere, 'audit-gw-000001.jsonl'))
    expect(await log.write(decision({ request_id: 'req_4' }))).toBe(true)
    expect(await log.write(decision({ request_id: 'req_5' }))).toBe(true)
    await log.close()
    expect(readAll(elsewhere).at(-1)).toMatchObject({ action: 'checkpoint', cause: 'segment' })
    expect(readAll(folder)[0]).toMatchObject({ action: 'segment', previous: 'segment' })
    expect(await verifyAudit({ paths: [elsewhere, folder], keys: [testKey.key] })).toMatchObject({ ok: true })
    expect(await verify(folder)).toMatchObject({ ok: false, fault: { code: 'segment_missing' } })
  })

  it('the file was moved away before the stop: it is closed once', async () => {
    const [folder, elsewhere] = [makeFolder(), makeFolder()]
    const log = await openTestLog(folder)
    await log.write(decision())
    renameSync(logFiles(folder)[0]!, join(elsewhere, 'audit-gw-000001.jsonl'))
    await log.close()
    expect(await verify(elsewhere)).toMatchObject({ ok: true, instances: [{ runs: [{ end: 'stop' }] }] })
  })

  it.each([
    ['was truncated', (path: string) => truncateSync(path, 100)],
    ['was written to', (path: string) => appendFileSync(path, 'x\n')],
    [
      'was replaced by a changed copy',
      (path: string) => {
        copyFileSync(path, `${path}.new`)
        appendFileSync(`${path}.new`, 'x\n')
        renameSync(`${path}.new`, path)
      },
    ],
  ] as const)('the file %s: the log goes on in a new one, and verify finds the place', async (_what, touch) => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    await writeAll(log, decisions(3))
    touch(logFiles(folder)[0]!)
    expect(await log.write(decision({ request_id: 'req_4' }))).toBe(true)
    await log.close()
    expect(readOne(logFiles(folder)[1]!)).toMatchObject([
      { action: 'segment', previous: 'abandoned', detail: 'file 1 was replaced or changed by somebody else' },
      { request_id: 'req_4' },
      {},
      {},
    ])
    expect(await verify(folder)).toMatchObject({ ok: false, fault: { file: logFiles(folder)[0] } })
  })

  it('a file of somebody else has the next name: it is not written to', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder, { maxFileBytes: 100 })
    await log.write(decision())
    const next = join(folder, `audit-gw-00000${logFiles(folder).length + 1}.jsonl`)
    writeFileSync(next, 'mine')
    expect(await log.write(decision())).toBe(false)
    rmSync(next)
    await until(() => log.isWritable(), 'writable again')
    await log.close()
    expect(await verify(folder)).toMatchObject({ ok: true })
  })
})

describe('a disk that fails for good', () => {
  it('closes without hanging, and says how many lines are lost', async () => {
    const folder = makeFolder()
    const disk = faultyDisk()
    const logger = { info: vi.fn(), warn: vi.fn(), error: vi.fn() }
    const log = await openTestLog(folder, { writeBytes: disk.write, logger })
    disk.code = 'EIO'
    await writeAll(log, decisions(7))
    await log.close()
    expect(logger.error).toHaveBeenLastCalledWith({ code: 'EIO', lines: 7 }, expect.any(String))
    disk.code = undefined
    await (await openTestLog(folder)).close()
    expect(readAll(folder).at(2)).toMatchObject({ action: 'start', previous: 'unclean' })
    expect(await verify(folder)).toMatchObject({ ok: true })
  })

  it('gives up a file that can neither be written nor cut, and goes on in the next', async () => {
    const folder = makeFolder()
    const disk = faultyDisk()
    const log = await openTestLog(folder, { writeBytes: disk.write })
    await log.write(decision({ request_id: 'req_1' }))
    Object.assign(disk, { code: 'EIO', partial: 100 })
    const takeBack = vi.spyOn(Segment.prototype, 'takeBack').mockImplementation((written) => written)
    expect(await log.write(decision({ request_id: 'req_2' }))).toBe(false)
    takeBack.mockRestore()
    disk.code = undefined
    await until(() => log.isWritable(), 'writable again')
    await log.close()
    expect(readAll(folder).flatMap(({ request_id }) => request_id ?? [])).toEqual(['req_1', 'req_2'])
    expect(readOne(logFiles(folder)[1]!)[0]).toMatchObject({
      action: 'segment',
      previous: 'abandoned',
      torn_bytes: 100,
    })
    expect(await verify(folder)).toMatchObject({ ok: true, instances: [{ runs: [{ end: 'stop' }] }] })
  })
})
