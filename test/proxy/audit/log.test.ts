import { Ajv2020 } from 'ajv/dist/2020.js'
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { openAuditLog } from '../../../proxy/audit/log.ts'
import { auditJsonSchema } from '../../../proxy/audit/schema.ts'
import { verifyAudit } from '../../../proxy/audit/verify.ts'
import { systemClock } from '../../../proxy/clock.ts'
import {
  decision,
  decisions,
  logFiles,
  makeFolder,
  openTestLog,
  rawLines,
  readAll,
  testKey,
  until,
  writeAll,
} from './support.ts'

const isLine = new Ajv2020({ strict: true, validateFormats: false }).compile(auditJsonSchema())

describe('an audit log', () => {
  it('has each line in the file before its promise resolves, in order, each holding the hash of the one before', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    for (let turn = 0; turn < 5; turn += 1) {
      const ids = decisions(20, turn * 20 + 1)
      await writeAll(log, ids)
      expect(readAll(folder).filter(({ kind }) => kind === 'decision')).toHaveLength((turn + 1) * 20)
    }
    await log.close()
    const lines = rawLines(join(folder, 'audit-gw-000001.jsonl'))
    let head = '0'.repeat(64)
    for (const [index, line] of lines.entries()) {
      const value = JSON.parse(line) as { seq: number; prev: string }
      expect(value.seq).toBe(index + 1)
      expect(value.prev).toBe(head)
      expect(isLine(value), JSON.stringify(isLine.errors)).toBe(true)
      head = createHash('sha256').update(line).digest('hex')
    }
    expect(readAll(folder).flatMap(({ request_id }) => request_id ?? [])).toEqual(
      Array.from({ length: 100 }, (_, index) => `req_${index + 1}`),
    )
  })

  it('begins with a signed `start` and ends with `stop` and the checkpoint that closes the file', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder, { start: { detail: 'sallyport 0.1.0', policy_version: 'v1' } })
    await log.write(decision())
    await log.close()
    const lines = readAll(folder)
    expect(lines.map(({ kind, action, cause }) => [kind, action, cause])).toEqual([
      ['admin', 'start', undefined],
      ['admin', 'checkpoint', 'start'],
      ['decision', undefined, undefined],
      ['admin', 'stop', undefined],
      ['admin', 'checkpoint', 'stop'],
    ])
    expect(lines[0]).toMatchObject({
      detail: 'sallyport 0.1.0',
      policy_version: 'v1',
      previous: 'none',
      torn_bytes: 0,
      segment: 1,
    })
  })

  it('says when a thing happened, not when it was written', async () => {
    const folder = makeFolder()
    let nowMs = 1_700_000_000_123
    const log = await openTestLog(folder, { clock: { ...systemClock, wallMs: () => nowMs } })
    const written = log.write(decision())
    nowMs += 5000
    await written
    expect(rawLines(logFiles(folder)[0]!)[2]).toContain('"time":"2023-11-14T22:13:20.123Z"')
  })

  it('goes on in a new file when one is full, and every file ends with a checkpoint', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder, { maxFileBytes: 4096 })
    for (const entry of decisions(40)) await log.write(entry)
    await log.close()
    const files = logFiles(folder)
    expect(files.length).toBeGreaterThan(4)
    for (const file of files) {
      expect(statSync(file).size).toBeLessThan(4096 + 2048)
      expect(statSync(file).mode & 0o777).toBe(0o600)
      expect(rawLines(file).at(-1)).toMatch(/"action":"checkpoint".*"cause":"(segment|stop)"/)
    }
    expect(await verifyAudit({ paths: [folder], keys: [testKey.key] })).toMatchObject({
      ok: true,
      instances: [{ lastSegment: files.length, unsignedLines: 0 }],
    })
  })

  it('goes on where the last run stopped', async () => {
    const folder = makeFolder()
    for (let run = 1; run <= 3; run += 1) {
      const log = await openTestLog(folder)
      await writeAll(log, decisions(3))
      await log.close()
    }
    const lines = readAll(folder)
    expect(lines.map(({ seq }) => seq)).toEqual(lines.map((_, index) => index + 1))
    expect(lines.flatMap(({ action, previous }) => (action === 'start' ? [previous] : []))).toEqual([
      'none',
      'stop',
      'stop',
    ])
    expect(await verifyAudit({ paths: [folder], keys: [testKey.key] })).toMatchObject({
      ok: true,
      instances: [{ runs: [{ end: 'stop' }, { end: 'stop' }, { end: 'stop' }] }],
    })
  })

  it('signs at the latest after a thousand lines, also within one write', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    await writeAll(log, decisions(3000))
    await log.close()
    const checkpoints = readAll(folder).filter(({ action }) => action === 'checkpoint')
    expect(checkpoints.filter(({ cause }) => cause === 'lines')).toHaveLength(3)
    expect(await verifyAudit({ paths: [folder], keys: [testKey.key] })).toMatchObject({ ok: true })
  })

  it('signs what is unsigned after a while, once, and hands the checkpoint on', async () => {
    const folder = makeFolder()
    const checkpoints: string[] = []
    const headPath = join(makeFolder(), 'head')
    const log = await openTestLog(folder, {
      checkpointMs: 10,
      headPath,
      onCheckpoint: (line) => checkpoints.push(line),
    })
    await log.write(decision())
    await until(() => checkpoints.length === 2, 'a checkpoint after the line')
    expect(rawLines(logFiles(folder)[0]!).at(-1)).toBe(checkpoints[1])
    await log.write(decision())
    await until(() => checkpoints.length === 3, 'a checkpoint after the next line')
    await log.close()
    expect(readFileSync(headPath, 'latin1')).toBe(checkpoints.at(-1))
    expect(readAll(folder).filter(({ cause }) => cause === 'interval')).toHaveLength(2)
  })

  it('goes on when whoever takes checkpoints throws', async () => {
    const log = await openTestLog(makeFolder(), {
      onCheckpoint: () => {
        throw new Error('not mine')
      },
    })
    expect(await log.write(decision())).toBe(true)
  })

  it('takes nothing after it was closed, and closes once', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    const pending = log.write(decision())
    await Promise.all([log.close(), log.close()])
    expect(await pending).toBe(true)
    expect(log.isWritable()).toBe(false)
    expect(await log.write(decision())).toBe(false)
    expect(readAll(folder).filter(({ action }) => action === 'stop')).toHaveLength(1)
  })

  it.each(['', 'a b', '../x', 'a/b', '-a', 'a-', 'é', 'x'.repeat(65)])(
    'refuses the instance name `%s`',
    async (instance) => {
      await expect(openTestLog(makeFolder(), { instance })).rejects.toThrow(TypeError)
    },
  )

  it('refuses a path that is a file, in one line', async () => {
    const path = join(makeFolder(), 'file')
    writeFileSync(path, '')
    const opened = openAuditLog({
      path,
      instance: 'gw',
      onFailure: 'deny',
      signingKey: testKey.key,
      clock: systemClock,
    })
    await expect(opened).rejects.toMatchObject({
      code: 'SALLYPORT_AUDIT_UNWRITABLE',
      message: `the audit log can't be written to \`${path}\` (something else has that name)`,
    })
  })

  it('refuses to continue what is no log', async () => {
    const folder = makeFolder()
    writeFileSync(join(folder, 'audit-gw-000001.jsonl'), 'not a log\n'.repeat(200_000))
    await expect(openTestLog(folder)).rejects.toMatchObject({ code: 'SALLYPORT_AUDIT_UNWRITABLE' })
  })

  it('leaves other instances and other files alone', async () => {
    const folder = makeFolder()
    mkdirSync(join(folder, 'archive'))
    writeFileSync(join(folder, 'notes.txt'), 'x')
    const [one, two] = [await openTestLog(folder, { instance: 'gw' }), await openTestLog(folder, { instance: 'gw-2' })]
    await Promise.all([one.write(decision()), two.write(decision())])
    await Promise.all([one.close(), two.close()])
    expect(await verifyAudit({ paths: [folder], keys: [testKey.key] })).toMatchObject({
      ok: true,
      instances: [{ instance: 'gw' }, { instance: 'gw-2' }],
    })
  })

  it('says at a restart that a signed end is gone, and verify finds the place', async () => {
    const folder = makeFolder()
    const headPath = join(makeFolder(), 'head')
    const first = await openTestLog(folder, { headPath })
    await writeAll(first, decisions(5))
    await first.close()
    const file = logFiles(folder)[0]!
    writeFileSync(file, rawLines(file).slice(0, 4).join(''))
    const second = await openTestLog(folder, { headPath })
    await second.close()
    expect(readAll(folder).find(({ previous }) => previous === 'missing')?.detail).toBe(
      'line 9 had been signed, but the files end at line 4',
    )
    expect(await verifyAudit({ paths: [folder], keys: [testKey.key] })).toMatchObject({
      ok: false,
      fault: { code: 'lines_missing' },
    })
  })
})
