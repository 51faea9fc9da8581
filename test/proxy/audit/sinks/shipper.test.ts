import { readFileSync, rmSync, truncateSync, writeFileSync, appendFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { type AuditRecord } from '../../../../proxy/audit/sinks/reader.ts'
import { DeliveryFault, type Sink } from '../../../../proxy/audit/sinks/sink.ts'
import { decision, decisions, logFiles, makeFolder, openTestLog, readAll, until, writeAll } from '../support.ts'
import { recordingLogger, startShipper } from './support.ts'

interface Taken {
  readonly sink: Sink
  readonly seqs: number[]
  readonly batches: number[]
  /** Thrown while it is there. */
  fault: ((records: readonly AuditRecord[]) => DeliveryFault | undefined) | undefined
}

/** A sink in memory: what is under test is the shipper. */
function takingSink(): Taken {
  const taken: Taken = {
    seqs: [],
    batches: [],
    fault: undefined,
    sink: {
      send: (records) => {
        const fault = taken.fault?.(records)
        if (fault !== undefined) return Promise.reject(fault)
        taken.batches.push(records.length)
        taken.seqs.push(...records.map(({ line }) => line.seq))
        return Promise.resolve()
      },
      close: () => undefined,
    },
  }
  return taken
}

const down = () => new DeliveryFault('down')
const upTo = (count: number) => Array.from({ length: count }, (_, index) => index + 1)
const lastSeqOf = (folder: string) => readAll(folder).at(-1)?.seq ?? 0

describe('a shipper', () => {
  it('carries every line once and in order, over rotation and a restart of the gateway', async () => {
    const folder = makeFolder()
    const taken = takingSink()
    const first = await openTestLog(folder, { maxFileBytes: 5000 })
    const shipper = startShipper(folder, taken.sink)
    for (const entry of decisions(60)) await first.write(entry)
    await first.close()
    const second = await openTestLog(folder)
    await writeAll(second, decisions(10))
    await second.close()
    expect(logFiles(folder).length).toBeGreaterThan(5)
    await until(() => taken.seqs.length >= lastSeqOf(folder), 'all lines')
    expect(taken.seqs).toEqual(upTo(lastSeqOf(folder)))
    await until(() => shipper.segment === logFiles(folder).length, 'the last position')
    expect(await shipper.status()).toMatchObject({ lagRecords: 0, lagSeconds: 0, missing: 0, refused: 0 })
  })

  it('goes on where it was after a restart, and repeats nothing that was acknowledged', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    await writeAll(log, decisions(20))
    const before = takingSink()
    const shipper = startShipper(folder, before.sink)
    await until(() => before.seqs.length === lastSeqOf(folder), 'the first lines')
    await shipper.close(1000)
    await writeAll(log, decisions(5))
    const after = takingSink()
    startShipper(folder, after.sink)
    await until(() => (after.seqs.at(-1) ?? 0) === lastSeqOf(folder), 'the rest')
    expect([...before.seqs, ...after.seqs]).toEqual(upTo(lastSeqOf(folder)))
  })

  it('makes a sink that is down late and loses nothing; the lag is told', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder, { maxFileBytes: 20_000 })
    const taken = takingSink()
    taken.fault = down
    const logger = recordingLogger()
    const shipper = startShipper(folder, taken.sink, { logger, batchRecords: 7 })
    await writeAll(log, decisions(300))
    await until(() => logger.said.length > 0, 'the first failure')
    const status = await shipper.status()
    expect(status).toMatchObject({ lagRecords: lastSeqOf(folder), delivered: 0 })
    expect(status.failures).toBeGreaterThan(0)
    taken.fault = undefined
    await until(() => (taken.seqs.at(-1) ?? 0) >= lastSeqOf(folder), 'everything')
    expect(taken.seqs).toEqual(upTo(lastSeqOf(folder)))
    expect(Math.max(...taken.batches)).toBe(7)
    // One line for the fault, however often it is tried, and one for its end.
    expect(logger.said).toEqual([
      expect.stringContaining('"fault":"down"'),
      expect.stringContaining('takes lines again'),
    ])
  })

  it('sends the rest when the gateway stops, and does not wait for a sink that is down', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    const taken = takingSink()
    const shipper = startShipper(folder, taken.sink, { pollMs: 60_000 })
    await until(() => taken.seqs.length > 0, 'the first lines')
    await writeAll(log, decisions(3))
    await log.close()
    await shipper.close(20_000)
    expect(taken.seqs).toEqual(upTo(lastSeqOf(folder)))

    const deaf = takingSink()
    deaf.fault = down
    const late = startShipper(folder, deaf.sink, {
      positionPath: join(folder, 'other.json'),
      firstPauseMs: 1e9,
      maxPauseMs: 1e9,
    })
    await late.close(1e9)
    expect(deaf.seqs).toEqual([])
  })
})

describe('a line that a sink refuses', () => {
  const refusing =
    (...seqs: number[]) =>
    (records: readonly AuditRecord[]) =>
      records.some(({ line }) => seqs.includes(line.seq)) ? new DeliveryFault('status 400', 'refused') : undefined

  it('is found, told and passed over, and holds up no other', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    await writeAll(log, decisions(40))
    const taken = takingSink()
    taken.fault = refusing(17, 18, 40)
    const refused: number[] = []
    const shipper = startShipper(folder, taken.sink, { onRefused: ({ line }) => void refused.push(line.seq) })
    await until(() => new Set(taken.seqs).size === lastSeqOf(folder) - 3, 'all but the three')
    expect(refused).toEqual([17, 18, 40])
    expect([...new Set(taken.seqs)].sort((a, b) => a - b)).toEqual(
      upTo(lastSeqOf(folder)).filter((seq) => !refused.includes(seq)),
    )
    expect(await shipper.status()).toMatchObject({ refused: 3 })
  })

  it('is not to blame while every line is refused: nothing is passed over', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    await writeAll(log, decisions(40))
    const taken = takingSink()
    let attempts = 0
    taken.fault = () => {
      attempts += 1
      return new DeliveryFault('status 400', 'refused')
    }
    const shipper = startShipper(folder, taken.sink)
    await until(() => attempts > 100, 'many attempts')
    expect(await shipper.status()).toMatchObject({ refused: 0, delivered: 0, lagRecords: lastSeqOf(folder) })
    taken.fault = undefined
    await until(() => (taken.seqs.at(-1) ?? 0) >= lastSeqOf(folder), 'everything')
    expect(taken.seqs).toEqual(upTo(lastSeqOf(folder)))
  })
})

describe('files that somebody touched', () => {
  it('removed ones are counted as missing, and the rest is carried', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder, { maxFileBytes: 3000 })
    const taken = takingSink()
    const shipper = startShipper(folder, taken.sink)
    await writeAll(log, decisions(1))
    await until(() => taken.seqs.length === lastSeqOf(folder), 'the first lines')
    await shipper.close(1000)
    for (const entry of decisions(30)) await log.write(entry)
    const files = logFiles(folder)
    const gone = readAll(folder).length
    for (const file of files.slice(0, 4)) rmSync(file)
    const missing = gone - readAll(folder).length - taken.seqs.length
    const logger = recordingLogger()
    const next = startShipper(folder, taken.sink, { logger })
    await until(() => (taken.seqs.at(-1) ?? 0) === lastSeqOf(folder), 'the rest')
    expect(await next.status()).toMatchObject({ missing })
    expect(logger.said.join()).toContain('removed from the audit log before a sink had taken them')
  })

  it('a file that was cut and grew again is read from its beginning, without a repeat', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    await writeAll(log, decisions(10))
    await log.close()
    const taken = takingSink()
    const shipper = startShipper(folder, taken.sink)
    await until(() => taken.seqs.length === lastSeqOf(folder), 'all')
    await shipper.close(1000)
    const [file = ''] = logFiles(folder)
    const whole = readFileSync(file)
    // The place of the sink is then in the middle of a line.
    writeFileSync(file, Buffer.concat([whole.subarray(0, -1), Buffer.from(' \n')]))
    truncateSync(file, whole.length)
    appendFileSync(file, '\n{"no":"line"}\n')
    const logger = recordingLogger()
    startShipper(folder, taken.sink, { logger })
    await until(() => logger.said.some((text) => text.includes('no audit lines')), 'the foreign line')
    expect(taken.seqs).toEqual(upTo(taken.seqs.length))
  })

  it.each(['', '{', '{"segment":-1,"offset":0,"seq":0}', '{"segment":"x"}', '\0'.repeat(4096)])(
    'a position that says %j is none: everything is sent again, and the log says so',
    async (text) => {
      const folder = makeFolder()
      const log = await openTestLog(folder)
      await writeAll(log, decisions(3))
      writeFileSync(join(folder, 'position.json'), text)
      const taken = takingSink()
      const logger = recordingLogger()
      startShipper(folder, taken.sink, { logger })
      await until(() => taken.seqs.length === lastSeqOf(folder), 'all lines')
      expect(logger.said.join()).toContain('starts at the oldest file again')
    },
  )

  it('a position beyond the end waits for the lines that follow', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    const size = readFileSync(logFiles(folder)[0] ?? '').length
    writeFileSync(join(folder, 'position.json'), JSON.stringify({ segment: 1, offset: size, seq: lastSeqOf(folder) }))
    const taken = takingSink()
    startShipper(folder, taken.sink)
    await log.write(decision())
    await until(() => taken.seqs.length === 1, 'the new line')
    expect(taken.seqs).toEqual([lastSeqOf(folder)])
  })

  it('leaves no draft of a position behind', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    const taken = takingSink()
    const shipper = startShipper(folder, taken.sink)
    await writeAll(log, decisions(50))
    await until(() => taken.seqs.length === lastSeqOf(folder), 'all')
    await shipper.close(1000)
    expect(readdirSync(folder).filter((name) => name.endsWith('.draft'))).toEqual([])
  })
})
