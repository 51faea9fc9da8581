import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { generateAuditKey } from '../../../../proxy/audit/key.ts'
import { type RetentionOptions, retireFiles } from '../../../../proxy/audit/retention/retire.ts'
import { SignedTo } from '../../../../proxy/audit/retention/signed-to.ts'
import { verifyApart } from '../../../../proxy/audit/retention/verify-apart.ts'
import { verifyAudit } from '../../../../proxy/audit/verify.ts'
import { openAuditKey } from '../../../../proxy/state/audit-key.ts'
import { parseVerifyKeys } from '../../../../proxy/audit/key.ts'
import { decisions, logFiles, makeFolder, openTestLog, readAll, testKey } from '../support.ts'
import { recordingLogger } from '../sinks/support.ts'

interface Kept {
  readonly folder: string
  readonly retire: (options?: Partial<RetentionOptions>) => Promise<number>
  readonly close: () => Promise<void>
  readonly unverified: string[]
}

/** A log of several files, and retention over it; what is written is signed at once. */
async function makeLog(): Promise<Kept> {
  const folder = makeFolder()
  const signedTo = new SignedTo({ folder, instance: 'gw', withinMs: 20_000 })
  const log = await openTestLog(folder, {
    maxFileBytes: 4000,
    checkpointMs: 5,
    onCheckpoint: (line) => signedTo.note(line),
  })
  for (const entry of decisions(40)) await log.write(entry)
  const unverified: string[] = []
  return {
    folder,
    unverified,
    close: () => log.close(),
    retire: (options = {}) =>
      retireFiles({
        folder,
        instance: 'gw',
        keys: [testKey.key],
        log,
        signed: () => signedTo.reached(new AbortController().signal),
        neededFrom: () => Infinity,
        maxSinkLagBytes: Number.MAX_SAFE_INTEGER,
        nowMs: Date.now,
        logger: recordingLogger(),
        onUnverified: (fault) => unverified.push(fault),
        ...options,
      }),
  }
}

const verify = (folder: string) => verifyAudit({ paths: [folder], keys: [testKey.key] })
const sizeOf = (folder: string) => logFiles(folder).reduce((total, file) => total + statSync(file).size, 0)
const retentionLines = (folder: string) => readAll(folder).filter(({ action }) => action === 'retention')

describe('retention', () => {
  it('keeps everything without a rule, and while the rules hold', async () => {
    const { folder, retire } = await makeLog()
    const files = logFiles(folder)
    expect(await retire()).toBe(0)
    expect(await retire({ maxBytes: 1e9, maxAgeMs: 1e9 })).toBe(0)
    expect(logFiles(folder)).toEqual(files)
  })

  it('by size: the oldest go, each is written down first, and what is left verifies without them', async () => {
    const { folder, retire, close } = await makeLog()
    const [first = '', second = ''] = logFiles(folder)
    const count = await retire({ maxBytes: sizeOf(folder) - statSync(first).size - 100 })
    expect(count).toBeGreaterThanOrEqual(2)
    expect([existsSync(first), existsSync(second)]).toEqual([false, false])
    expect(retentionLines(folder).map(({ detail }) => detail)).toContain('file 1 is removed; it was verified')
    await close()
    expect(await verify(folder)).toMatchObject({ ok: true })
  })

  it('by age: what is old goes but for the newest file', async () => {
    const { folder, retire, close } = await makeLog()
    await retire({ maxAgeMs: 1000, nowMs: () => Date.now() + 1e9 })
    expect(logFiles(folder).length).toBeLessThan(4)
    expect(logFiles(folder).length).toBeGreaterThan(0)
    await close()
    expect(await verify(folder)).toMatchObject({ ok: true })
  })

  it('a file that a sink needs stays, until too much follows it', async () => {
    const { folder, retire } = await makeLog()
    expect(await retire({ maxBytes: 1, neededFrom: () => 1 })).toBe(0)
    expect(await retire({ maxBytes: 1, neededFrom: () => 3 })).toBe(2)
    expect(basename(logFiles(folder)[0] ?? '')).toBe('audit-gw-000003.jsonl')
    expect(
      await retire({ maxBytes: sizeOf(folder) - 100, neededFrom: () => 0, maxSinkLagBytes: 5000 }),
    ).toBeGreaterThan(0)
  })

  it('a file that does not verify goes only with a line that says so', async () => {
    const { folder, retire, close, unverified } = await makeLog()
    const [first = ''] = logFiles(folder)
    writeFileSync(first, readFileSync(first, 'latin1').replace('"tenant":"acme"', '"tenant":"evil"'), 'latin1')
    await retire({ maxBytes: sizeOf(folder) - 100 })
    expect(existsSync(first)).toBe(false)
    expect(retentionLines(folder)[0]?.detail).toContain('NOT verified: chain_broken')
    expect(unverified.length).toBeGreaterThan(0)
    await close()
    expect(await verify(folder)).toMatchObject({ ok: true })
  })

  it.each([
    ['can not be written', { log: { write: () => Promise.resolve(false) } }],
    ['is not signed in time', { signed: () => Promise.resolve(false) }],
  ])('nothing goes when the line about it %s', async (_sentence, options) => {
    const { folder, retire } = await makeLog()
    const files = logFiles(folder).slice(0, 3)
    expect(await retire({ maxBytes: 1, ...options })).toBe(0)
    expect(files.every((file) => existsSync(file))).toBe(true)
  })

  it('does not cover for whoever removes more: the next file, or one without a signed line', async () => {
    const { folder, retire, close } = await makeLog()
    await retire({ maxBytes: 1, neededFrom: () => 3 })
    await close()
    expect(await verify(folder)).toMatchObject({ ok: true })
    rmSync(logFiles(folder)[0] ?? '')
    expect(await verify(folder)).toMatchObject({
      ok: false,
      fault: { code: 'segment_missing', message: 'files 1 to 3 are missing' },
    })
  })

  it('a line that is not signed removes nothing', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder, { maxFileBytes: 3000, checkpointMs: 1e8 })
    for (const entry of decisions(12)) await log.write(entry)
    const entry = { kind: 'admin', action: 'retention', segment: 1, detail: 'forged' } as const
    await log.write(entry)
    rmSync(logFiles(folder)[0] ?? '')
    expect(await verify(folder)).toMatchObject({ ok: false, fault: { code: 'segment_missing' } })
  })
})

describe('a rotated checkpoint key', () => {
  it('what the old key signed still verifies with the public keys of the state folder, and not with the new key alone', async () => {
    const [state, folder] = [makeFolder(), makeFolder()]
    const publicFile = join(state, 'audit-key.public.jwk')
    for (let round = 0; round < 3; round += 1) {
      rmSync(join(state, 'audit-key.private.jwk'), { force: true })
      const log = await openTestLog(folder, { signingKey: await openAuditKey(state) })
      for (const entry of decisions(3)) await log.write(entry)
      await log.close()
    }
    const keys = parseVerifyKeys(readFileSync(publicFile, 'utf8'), publicFile)
    expect(keys).toHaveLength(3)
    expect(readFileSync(publicFile, 'utf8')).not.toContain('"d"')
    expect(await verifyAudit({ paths: [folder], keys })).toMatchObject({ ok: true, signatures: 'checked' })
    const { ok, fault } = await verifyAudit({ paths: [folder], keys: keys.slice(0, 1) })
    expect([ok, fault?.code]).toEqual([false, 'signer_unknown'])
    expect(fault?.message).toContain('of which there is no public key')
  })
})

describe('verifying in a thread of its own', () => {
  it('says nothing of a log that is whole, and what is wrong with one that is not', async () => {
    const folder = makeFolder()
    const keyFile = join(folder, 'key.jwk')
    writeFileSync(keyFile, testKey.publicJwk)
    const log = await openTestLog(folder)
    for (const entry of decisions(3)) await log.write(entry)
    await log.close()
    const job = { folder, instance: 'gw', keyFile }
    const { signal } = new AbortController()
    expect(await verifyApart(job, signal)).toMatchObject({ fault: undefined, report: { instance: 'gw', lost: 0 } })
    const [file = ''] = logFiles(folder)
    writeFileSync(file, readFileSync(file, 'latin1').replace('req_1', 'req_9'), 'latin1')
    expect(await verifyApart(job, signal)).toMatchObject({ fault: { code: 'chain_broken' } })
    writeFileSync(keyFile, generateAuditKey().publicJwk)
    await expect(verifyApart({ ...job, folder: join(folder, 'nowhere') }, signal)).rejects.toThrow()
  })
})
