import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, vi } from 'vitest'
import { verifyAudit } from '../../../proxy/audit/verify.ts'
import { generateAuditKey } from '../../../proxy/audit/key.ts'
import { logFiles, makeFolder, openTestLog, readAll, testKey } from './support.ts'

const child = new URL('./crash-child.ts', import.meta.url).pathname
const BOOT = '/proc/sys/kernel/random/boot_id'
const THIS_MACHINE = `${hostname()} ${existsSync(BOOT) ? readFileSync(BOOT, 'utf8') : ''}`.trim()
const { key, privateJwk } = generateAuditKey()

/** Starts the child, kills it with SIGKILL once it has acknowledged `lines`; what it acknowledged. */
async function killUnderLoad(folder: string, from: number, lines: number): Promise<number[]> {
  const running = spawn(process.execPath, [child, folder, String(from)], {
    env: { ...process.env, AUDIT_KEY: privateJwk },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let output = ''
  for await (const chunk of running.stdout) {
    output += String(chunk)
    if (output.split('\n').length > lines) running.kill('SIGKILL')
  }
  if (running.exitCode === null && running.signalCode === null) await once(running, 'exit')
  expect(running.signalCode).toBe('SIGKILL')
  return output.split('\n').slice(0, -1).map(Number)
}

describe('a gateway that is killed under load', { timeout: 120_000 }, () => {
  it('has every acknowledged line in the log; the next run goes on, and verify says where the last one ended', async () => {
    const folder = makeFolder()
    const acknowledged: number[] = []
    for (let run = 1; run <= 3; run += 1) {
      acknowledged.push(...(await killUnderLoad(folder, (acknowledged.at(-1) ?? 0) + 1000, 1000 * run)))
      const verified = await verifyAudit({ paths: [folder], keys: [key] })
      expect(verified).toMatchObject({
        ok: true,
        instances: [
          { runs: Array.from({ length: run }, (_, index) => ({ end: index === run - 1 ? 'open' : 'unclean' })) },
        ],
      })
    }
    const written = new Set(readAll(folder).flatMap(({ request_id }) => request_id ?? []))
    expect(acknowledged.length).toBeGreaterThan(5000)
    expect(acknowledged.filter((number) => !written.has(`req_${number}`))).toEqual([])
    const last = await openTestLog(folder, { signingKey: key })
    await last.close()
    expect(await verifyAudit({ paths: [folder], keys: [key] })).toMatchObject({
      ok: true,
      instances: [{ unsignedLines: 0, runs: [{}, {}, { end: 'unclean' }, { end: 'stop' }] }],
    })
    expect(logFiles(folder).length).toBeGreaterThan(5)
  })
})

describe('two gateways with one folder', () => {
  it('and one name: the second is refused with one line that names the first', async () => {
    const folder = makeFolder()
    const running = spawn(process.execPath, [child, folder], {
      env: { ...process.env, AUDIT_KEY: privateJwk },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    await once(running.stdout, 'data')
    running.stdout.resume()
    const second = openTestLog(folder)
    await expect(second).rejects.toMatchObject({
      code: 'SALLYPORT_AUDIT_UNWRITABLE',
      message: expect.stringContaining(`instance \`gw\` is in use by process ${running.pid}`) as string,
    })
    await expect(second).rejects.toMatchObject({ message: expect.not.stringContaining('\n') as string })
    await (await openTestLog(folder, { instance: 'other' })).close()
    running.kill('SIGKILL')
    await once(running, 'exit')
    // The lock file of a killed process locks nobody out.
    await (await openTestLog(folder, { signingKey: key })).close()
  })

  it('in one process are refused too', async () => {
    const folder = makeFolder()
    const first = await openTestLog(folder)
    await expect(openTestLog(folder)).rejects.toMatchObject({ code: 'SALLYPORT_AUDIT_UNWRITABLE' })
    await first.close()
    await (await openTestLog(folder)).close()
  })

  const lock = (folder: string, holder: string): void => writeFileSync(join(folder, 'audit-gw.lock'), holder)

  it.each([
    [
      'of a process with our pid that ran before, as in a restarted container',
      JSON.stringify({ pid: process.pid, started: '1', machine: THIS_MACHINE }),
    ],
    [
      'of a pid that another process has by now',
      JSON.stringify({ pid: process.ppid, started: '1', machine: THIS_MACHINE }),
    ],
    ['that was half written', '{"pid":'],
    ['that is empty', ''],
  ])('a lock %s is stale', async (_name, holder) => {
    const folder = makeFolder()
    lock(folder, holder)
    await (await openTestLog(folder)).close()
  })

  it('a lock of another machine is stale when it was not touched for a minute', async () => {
    const folder = makeFolder()
    lock(folder, JSON.stringify({ pid: 1, started: '1', machine: 'elsewhere boot' }))
    await expect(openTestLog(folder)).rejects.toMatchObject({
      message: expect.stringContaining('in use by process 1 on `elsewhere`') as string,
    })
    const later = { wallMs: () => Date.now() + 61_000, monotonicMs: () => 0 }
    await (await openTestLog(folder, { clock: later, signingKey: testKey.key })).close()
  })

  it('a gateway whose lock was taken over stops writing', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    try {
      const folder = makeFolder()
      const log = await openTestLog(folder)
      lock(folder, JSON.stringify({ pid: 1, started: '1', machine: 'elsewhere boot' }))
      vi.advanceTimersByTime(6000)
      expect(log.isWritable()).toBe(false)
      expect(await log.write({ kind: 'admin', action: 'reload' })).toBe(false)
      await log.close()
      expect(readAll(folder).map(({ action }) => action)).toEqual(['start', 'checkpoint'])
    } finally {
      vi.useRealTimers()
    }
  })
})
