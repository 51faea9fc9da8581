/** What a gateway knows of its own log: the last checkpoint, and verifications that are made one at a time. */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { IntegrityWatch } from '../../../proxy/audit/integrity.ts'
import { decisions, logFiles, makeFolder, openTestLog, testKey } from './support.ts'

async function closedLog() {
  const folder = makeFolder()
  const keyFile = join(folder, 'key.jwk')
  writeFileSync(keyFile, testKey.publicJwk)
  const log = await openTestLog(folder)
  for (const entry of decisions(3)) await log.write(entry)
  await log.close()
  return { folder, keyFile, file: logFiles(folder)[0]! }
}

it('remembers the last checkpoint, and nothing of another line', async () => {
  const { folder, keyFile, file } = await closedLog()
  const watch = new IntegrityWatch({ folder, instance: 'gw', keyFile, signal: new AbortController().signal })
  expect(watch.read()).toEqual({ instance: 'gw', lastCheckpoint: undefined, isVerifying: false, last: undefined })
  const lines = readFileSync(file, 'latin1').trimEnd().split('\n')
  watch.note(lines.at(-1)!)
  expect(watch.read().lastCheckpoint).toMatchObject({
    seq: lines.length,
    segment: 1,
    signer: expect.any(String) as string,
  })
  watch.note('garbage')
  expect(watch.read().lastCheckpoint).toMatchObject({ seq: lines.length })
})

it('verifies one at a time, gives a fresh answer again, and finds what was changed', async () => {
  const { folder, keyFile, file } = await closedLog()
  const watch = new IntegrityWatch({ folder, instance: 'gw', keyFile, signal: new AbortController().signal })
  const first = watch.verify()
  expect(watch.read().isVerifying).toBe(true)
  expect(watch.verify()).toBe(first)
  expect(await first).toMatchObject({ outcome: 'verified', fault: undefined, report: { unsignedLines: 0 } })
  expect(watch.read().isVerifying).toBe(false)
  expect(await watch.verify(60_000)).toBe(await first)
  writeFileSync(file, readFileSync(file, 'latin1').replace('req_1', 'req_9'), 'latin1')
  expect(await watch.verify(60_000)).toBe(await first)
  expect(await watch.verify()).toMatchObject({ outcome: 'failed', fault: { code: 'chain_broken' } })
  expect(watch.read().last).toMatchObject({ outcome: 'failed' })
})

it('does not call sound what it can not read, and stops with the gateway', async () => {
  const { folder, keyFile } = await closedLog()
  const signal = new AbortController().signal
  const gone = new IntegrityWatch({ folder: join(folder, 'nowhere'), instance: 'gw', keyFile, signal })
  expect(await gone.verify()).toMatchObject({ outcome: 'unreadable' })
  const keyless = new IntegrityWatch({ folder, instance: 'gw', keyFile: join(folder, 'absent'), signal })
  expect(await keyless.verify()).toMatchObject({ outcome: 'unreadable' })
  const stopped = new AbortController()
  const ending = new IntegrityWatch({ folder, instance: 'gw', keyFile, signal: stopped.signal }).verify()
  stopped.abort()
  expect(await ending).toMatchObject({ outcome: 'unreadable' })
})
