/** A sink that is down for an hour: the gateway goes on, nothing is lost, nothing grows but the lag, and afterwards all of it arrives, in order and once. */
import { setImmediate } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { createOtlpSink } from '../../../../proxy/audit/sinks/otlp.ts'
import type { ShipperTime } from '../../../../proxy/audit/sinks/shipper.ts'
import { systemClock } from '../../../../proxy/clock.ts'
import { decisions, logFiles, makeFolder, openTestLog, readAll, until, writeAll } from '../support.ts'
import { recordingLogger, startReceiver, startShipper } from './support.ts'

const HOUR_MS = 3_600_000
const STARTED_MS = Date.parse('2026-01-31T12:00:00Z')
const OTLP = { format: 'native', timeoutMs: 5000, instance: 'gw', version: '1' } as const

const seqsIn = (body: string) =>
  [...body.matchAll(/"sallyport\.seq","value":\{"intValue":"(\d+)"\}/g)].map(([, seq]) => Number(seq))

it('an outage of an hour makes lines late, and loses none, also over a restart in the middle of it', async () => {
  const folder = makeFolder()
  let nowMs = STARTED_MS
  const isDown = () => nowMs < STARTED_MS + HOUR_MS
  const log = await openTestLog(folder, { clock: { ...systemClock, wallMs: () => nowMs }, maxFileBytes: 100_000 })
  let written = 0
  /** A pause passes at once; in its time one tunnel a second is decided. */
  const time: ShipperTime = {
    wallMs: () => nowMs,
    sleep: async (ms, signal) => {
      await setImmediate()
      if (signal.aborted) return
      nowMs += ms
      const due = isDown() ? Math.floor((nowMs - STARTED_MS) / 1000) - written : 0
      // Every one of them is decided and written as if nothing were wrong.
      expect(await writeAll(log, decisions(due, written + 1))).not.toContain(false)
      written += due
    },
  }
  const receiver = await startReceiver((response) => void response.writeHead(isDown() ? 503 : 200).end())
  const logger = recordingLogger()
  const sink = () => createOtlpSink({ ...OTLP, url: `${receiver.url}v1/logs` })
  const options = { time, logger, pollMs: 200, firstPauseMs: 500, maxPauseMs: 60_000 }

  const first = startShipper(folder, sink(), options)
  await until(() => nowMs > STARTED_MS + HOUR_MS / 2, 'half of the outage')
  const halfway = await first.status()
  expect(halfway).toMatchObject({ delivered: 0, refused: 0, missing: 0 })
  expect(Math.abs(halfway.lagSeconds - 1800)).toBeLessThan(200)
  expect(halfway.lagRecords).toBeGreaterThan(1600)
  await first.close(0)
  const second = startShipper(folder, sink(), options)
  await until(() => !isDown(), 'the end of the outage')
  const attempts = receiver.requests.length
  // One attempt in 30 seconds at the most, but for the first pauses of each run.
  expect(attempts).toBeLessThan(HOUR_MS / 30_000 + 20)

  await until(() => receiver.requests.flatMap(({ body }) => seqsIn(body)).includes(readAll(folder).length), 'all lines')
  await until(() => logger.said.some((text) => text.includes('takes lines again')), 'the end of the fault')
  expect(await second.status()).toMatchObject({ refused: 0, missing: 0, lagRecords: 0 })
  expect(logFiles(folder).length).toBeGreaterThan(5)
  expect(written).toBeGreaterThan(3400)

  const arrived = receiver.requests.slice(attempts).flatMap(({ body }) => seqsIn(body))
  const unique = [...new Set(arrived)]
  expect(unique).toEqual(readAll(folder).map(({ seq }) => seq))
  // At least once: the batch that was on its way at the turn may have come twice, no other.
  expect(arrived.length - unique.length).toBeLessThanOrEqual(500)
  for (const { body } of receiver.requests) expect(seqsIn(body).length).toBeLessThanOrEqual(500)
  // One line for each run that met the fault and one for its end, not one for each attempt.
  expect(logger.said.filter((text) => text.includes('does not take lines'))).toHaveLength(2)
}, 60_000)
