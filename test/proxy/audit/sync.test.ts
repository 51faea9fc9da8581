import { fdatasync, writeFileSync } from 'node:fs'
import net from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, vi } from 'vitest'
import { stringify } from 'yaml'
import { verifyAudit } from '../../../proxy/audit/verify.ts'
import { runBinary, startBinary, temporaryFolder } from '../cli/run-cli.ts'
import { decision, decisions, logFiles, makeFolder, openTestLog, readAll, testKey, until, writeAll } from './support.ts'

/** A disk that takes its time: what it is asked for is done when the test says so, or fails. */
function slowDisk() {
  const asked: (() => void)[] = []
  const disk = {
    code: undefined as string | undefined,
    /** Calls that wait. */
    asked,
    sync: (fd: number, done: (error: Error | null) => void): void => {
      asked.push(() => {
        const { code } = disk
        if (code === undefined) fdatasync(fd, done)
        else done(Object.assign(new Error(code), { code }))
      })
    },
    /** Does all that was asked for, from now on at once. */
    hurry: (): void => {
      asked.push = (...calls) => {
        for (const call of calls) call()
        return 0
      }
      for (const call of asked.splice(0)) call()
    },
  }
  return disk
}

const verify = (folder: string) => verifyAudit({ paths: [folder], keys: [testKey.key] })

describe('with `sync: each`', () => {
  it('no answer is given before the disk has the line; lines that come meanwhile share the next turn', async () => {
    const folder = makeFolder()
    const disk = slowDisk()
    const log = await openTestLog(folder, { sync: 'each', syncFile: disk.sync })
    const answers: string[] = []
    const write = (id: string) => log.write(decision({ request_id: id })).then(() => void answers.push(id))
    const first = write('a')
    await until(() => disk.asked.length === 1, 'the disk was asked')
    const others = [write('b'), write('c')]
    await until(() => readAll(folder).filter(({ kind }) => kind === 'decision').length === 3, 'three lines in the file')
    expect(answers).toEqual([])
    expect(disk.asked).toHaveLength(1)
    disk.asked.shift()?.()
    await first
    await until(() => disk.asked.length === 1, 'the disk was asked again')
    expect(answers).toEqual(['a'])
    disk.hurry()
    await Promise.all(others)
    expect(answers).toEqual(['a', 'b', 'c'])
  })

  it('the line of an end waits for nothing', async () => {
    const disk = slowDisk()
    const log = await openTestLog(makeFolder(), { sync: 'each', syncFile: disk.sync })
    const end = { kind: 'close', close_reason: 'client_closed', bytes_in: 0, bytes_out: 0, duration_ms: 1 } as const
    expect(await log.write(end)).toBe(true)
    expect(disk.asked).toEqual([])
    disk.hurry()
  })

  it.each([
    ['deny', 'connections that waited for that were refused'],
    ['allow', 'could not be brought to the disk'],
  ] as const)(
    'a disk that fails refuses them, and the log goes on in a new file that says so (onFailure: %s)',
    async (onFailure, told) => {
      const folder = makeFolder()
      const disk = slowDisk()
      disk.hurry()
      const log = await openTestLog(folder, { sync: 'each', syncFile: disk.sync, onFailure })
      expect(await writeAll(log, decisions(3))).toEqual([true, true, true])
      disk.code = 'EIO'
      expect(await writeAll(log, decisions(2, 4))).toEqual([false, false])
      expect(log.isWritable()).toBe(false)
      disk.code = undefined
      await until(() => log.isWritable(), 'writable again')
      expect(await log.write(decision({ request_id: 'req_6' }))).toBe(true)
      await log.close()
      const lines = readAll(folder)
      expect(lines.flatMap(({ request_id }) => request_id ?? [])).toEqual([1, 2, 3, 4, 5, 6].map((id) => `req_${id}`))
      const failed = lines.find(({ action }) => action === 'sync_failed')
      expect(failed?.detail).toMatch(/^lines 6 to 7 were written/)
      expect(failed?.detail?.endsWith(told)).toBe(true)
      expect(logFiles(folder)).toHaveLength(2)
      expect(await verify(folder)).toMatchObject({ ok: true, instances: [{ unsignedLines: 0 }] })
    },
  )

  it('a file that was closed and could not be brought to the disk counts too', async () => {
    const folder = makeFolder()
    const disk = slowDisk()
    const log = await openTestLog(folder, { sync: 'each', syncFile: disk.sync, maxFileBytes: 600 })
    const answer = log.write(decision())
    await until(() => disk.asked.length > 0, 'the file that is full is closed')
    disk.code = 'EIO'
    disk.hurry()
    expect(await answer).toBe(false)
    disk.code = undefined
    await until(() => log.isWritable(), 'writable again')
    await log.close()
    expect(await verify(folder)).toMatchObject({ ok: true })
  })

  it('a gateway that is killed has a line for every answer that it gave', { timeout: 120_000 }, async () => {
    const folder = temporaryFolder()
    try {
      const file = join(folder.path, 'sallyport.yaml')
      writeFileSync(
        file,
        stringify({
          state: './state',
          listen: { proxy: 'unix:./proxy', admin: 'unix:./admin' },
          audit: { sync: 'each', instance: 'gw' },
        }),
      )
      const answered: string[] = []
      for (let run = 0; run < 2; run += 1) {
        const serving = startBinary(['serve', '--config', file], { cwd: folder.path })
        const clients = new AbortController()
        const asking = Array.from({ length: 8 }, (_, client) =>
          askUntilGone(join(folder.path, 'proxy'), `r${run}c${client}`, answered, clients.signal),
        )
        const wanted = answered.length + 100
        try {
          await expect.poll(() => answered.length, { timeout: 60_000 }).toBeGreaterThan(wanted)
        } finally {
          serving.kill('SIGKILL')
          await serving.ended
          clients.abort()
          await Promise.all(asking)
        }
      }
      const written = new Set(readAll(join(folder.path, 'state/audit')).map((line) => line.requested))
      expect(answered.filter((target) => !written.has(target))).toEqual([])
      const { code } = await runBinary(['audit', 'verify', '--config', file], { cwd: folder.path })
      expect(code).toBe(0)
    } finally {
      folder.close()
    }
  })
})

describe('the disk is asked', () => {
  const twoSeconds = async (sync: 'interval' | 'os') => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    try {
      const disk = slowDisk()
      const log = await openTestLog(makeFolder(), { sync, syncFile: disk.sync, checkpointMs: 10_000 })
      expect(await writeAll(log, decisions(3))).toEqual([true, true, true])
      expect(disk.asked).toHaveLength(0)
      await vi.advanceTimersByTimeAsync(2000)
      const early = disk.asked.length
      await vi.advanceTimersByTimeAsync(10_000)
      const late = disk.asked.length
      disk.hurry()
      return { early, late }
    } finally {
      vi.useRealTimers()
    }
  }

  it('within a second of a line with `interval`, and no answer waits', async () => {
    expect(await twoSeconds('interval')).toMatchObject({ early: 1 })
  })

  it('at checkpoints alone with `os`', async () => {
    expect(await twoSeconds('os')).toEqual({ early: 0, late: 1 })
  })

  it('and when it fails, the log can not be written, whoever waited or not', async () => {
    const folder = makeFolder()
    const disk = slowDisk()
    disk.hurry()
    const log = await openTestLog(folder, { sync: 'interval', syncFile: disk.sync })
    disk.code = 'EIO'
    expect(await log.write(decision())).toBe(true)
    await until(() => !log.isWritable(), 'not writable')
    disk.code = undefined
    await until(() => log.isWritable(), 'writable again')
    await log.close()
    const failed = readAll(folder).find(({ action }) => action === 'sync_failed')
    expect(failed?.detail).toMatch(/^lines \d+ to \d+ were written, but could not be brought to the disk$/)
    expect(await verify(folder)).toMatchObject({ ok: true })
  })
})

/** Asks for one target after the other; an answer is one once its first byte is there. */
async function askUntilGone(proxy: string, name: string, answered: string[], gone: AbortSignal): Promise<void> {
  for (let count = 0; !gone.aborted; count += 1) {
    const target = `${name}-${count}.example:443`
    const isAnswered = await new Promise<boolean>((resolve) => {
      const socket = net.connect(proxy)
      let hasData = false
      socket.on('error', () => socket.destroy())
      socket.on('data', () => {
        hasData = true
        socket.destroy()
      })
      socket.on('close', () => resolve(hasData))
      socket.write(`CONNECT ${target} HTTP/1.1\r\n\r\n`)
    })
    if (isAnswered) answered.push(target)
    else await new Promise((resolve) => setTimeout(resolve, 20))
  }
}
