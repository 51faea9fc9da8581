/** Background processes: left alone, found again by their id, read from the beginning, fed, ended. */
import { once } from 'node:events'
import fs from 'node:fs'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createWorkerClient, type WorkerOutput } from '../../../provider/worker-client.ts'
import { isAlive, startWorker, until, type StartedWorker } from './start-worker.ts'

let worker: StartedWorker
beforeAll(async () => void (worker = await startWorker()))
afterAll(async () => worker[Symbol.asyncDispose]())

async function outputOf(id: string): Promise<WorkerOutput[]> {
  const pieces: WorkerOutput[] = []
  for await (const piece of worker.client.output(id)) pieces.push(piece)
  return pieces
}

const textOf = (pieces: readonly WorkerOutput[]) => pieces.map((piece) => piece.data).join('')

describe('a background process', () => {
  it('goes on without its caller, and tells its end to whoever asks', async () => {
    const id = await worker.client.spawn({ command: 'echo out; echo err >&2; exit 5' })
    const ended = { exitCode: 5, stdout: 'out\n', stderr: 'err\n', timedOut: false }
    expect(await worker.client.wait(id)).toMatchObject(ended)
    const another = createWorkerClient({ connect: worker.connect, token: worker.token })
    expect(await another.wait(id)).toMatchObject(ended)
    expect(await another.hasProcess(id)).toBe(true)
  })

  it('reads what is written to it, until stdin is closed', async () => {
    const id = await worker.client.spawn({ command: 'cat', args: [] })
    await worker.client.writeStdin(id, 'one ')
    await worker.client.writeStdin(id, new Uint8Array([0xc3]))
    await worker.client.writeStdin(id, new Uint8Array([0xa4]))
    await worker.client.closeStdin(id)
    expect(await worker.client.wait(id)).toMatchObject({ stdout: 'one ä', exitCode: 0 })
    await expect(worker.client.writeStdin(id, 'more')).rejects.toMatchObject({ cause: { code: 'ended' } })
  })

  it('shows its output from the beginning and as it comes, to several readers', async () => {
    const go = path.join(worker.root, 'go')
    const id = await worker.client.spawn({
      command: `echo first; while ! [ -e ${go} ]; do sleep 0.02; done; echo second`,
    })
    const early = worker.client.output(id)[Symbol.asyncIterator]()
    expect((await early.next()).value).toEqual({ stream: 'stdout', data: 'first\n' })
    const late = outputOf(id)
    fs.writeFileSync(go, '')
    expect(textOf(await late)).toBe('first\nsecond\n')
    expect((await early.next()).value).toEqual({ stream: 'stdout', data: 'second\n' })
    expect((await early.next()).done).toBe(true)
    expect(textOf(await outputOf(id))).toBe('first\nsecond\n')
  })

  it('lives on when a reader leaves', async () => {
    const id = await worker.client.spawn({ command: 'echo $$; exec sleep 1000' })
    let pid = 0
    for await (const { data } of worker.client.output(id)) {
      pid = Number(data)
      break
    }
    expect(await worker.client.hasProcess(id)).toBe(true)
    expect(isAlive(pid)).toBe(true)
    await worker.client.signal(id, 'SIGKILL')
    expect(await worker.client.wait(id)).toMatchObject({ exitCode: 137, signal: 'SIGKILL' })
  })

  it('gets signals with its whole group', async () => {
    const line = `trap 'echo caught; wait; exit 9' TERM; sh -c 'trap "echo child; exit" TERM; echo ready; while :; do sleep 0.02; done' & wait; wait`
    const id = await worker.client.spawn({ command: line })
    for await (const { data } of worker.client.output(id)) if (data.includes('ready')) break
    await worker.client.signal(id, 'SIGTERM')
    const { exitCode, stdout } = await worker.client.wait(id)
    expect(exitCode).toBe(9)
    expect(stdout).toContain('caught')
    expect(stdout).toContain('child')
    await worker.client.signal(id, 'SIGTERM')
  })

  it('has a deadline of its own', async () => {
    const id = await worker.client.spawn({ command: 'sleep 1000', timeoutMs: 100 })
    expect(await worker.client.wait(id)).toMatchObject({ timedOut: true, exitCode: 137 })
  })

  it('that writes more than is kept loses the beginning, and says so', async () => {
    const id = await worker.client.spawn({ command: 'seq 1 200000; printf end', maxOutputBytes: 100_000 })
    const result = await worker.client.wait(id)
    expect(result.stdout.endsWith('199999\n200000\nend')).toBe(true)
    expect(result.stdout.length).toBeLessThanOrEqual(100_000)
    const pieces = await outputOf(id)
    const lost = pieces.reduce((sum, piece) => sum + (piece.lostBytes ?? 0), 0)
    expect(lost).toBe(result.stdoutTruncated)
    const written = Number((await worker.client.execute({ command: 'seq 1 200000 | wc -c' })).stdout) + 3
    expect(lost + textOf(pieces).length).toBe(written)
  })

  it('ends its readers when the worker is gone, with an unknown outcome', async () => {
    await using other = await startWorker()
    const id = await other.client.spawn({ command: 'echo x; sleep 1000' })
    const reading = (async () => {
      for await (const { data } of other.client.output(id)) if (data === 'x\n') other.process.kill('SIGKILL')
    })()
    const lost = { code: 'SALLYPORT_SANDBOX_CONNECTION_LOST', outcome: 'unknown' }
    await expect(reading).rejects.toMatchObject(lost)
  })

  it('is waited for until the waiting is called off', async () => {
    const id = await worker.client.spawn({ command: 'sleep 1000' })
    const controller = new AbortController()
    const waiting = worker.client.wait(id, { signal: controller.signal })
    controller.abort(new Error('enough'))
    await expect(waiting).rejects.toThrow('enough')
    await worker.client.signal(id, 'SIGKILL')
  })
})

describe('a process that is not there', () => {
  it.each([['nope'], ['../healthz'], ['a/b'], ['%'], ['x'.repeat(200)]])('is not found: %s', async (id) => {
    const missing = { code: 'SALLYPORT_SANDBOX_NOT_FOUND', outcome: 'known' }
    expect(await worker.client.hasProcess(id)).toBe(false)
    await expect(worker.client.wait(id)).rejects.toMatchObject(missing)
    await expect(outputOf(id)).rejects.toMatchObject(missing)
    await expect(worker.client.writeStdin(id, 'x')).rejects.toMatchObject(missing)
    await expect(worker.client.signal(id, 'SIGTERM')).rejects.toMatchObject(missing)
  })

  it('is any one that could not be started', async () => {
    const fault = { code: 'SALLYPORT_SANDBOX_EXEC_FAILED', cause: { code: 'ENOENT' } }
    await expect(worker.client.spawn({ command: 'no-such-program', args: [] })).rejects.toMatchObject(fault)
  })
})

it('processes that ended long ago are forgotten, and others kept', async () => {
  const first = await worker.client.spawn({ command: 'true', args: [] })
  await worker.client.wait(first)
  const running = await worker.client.spawn({ command: 'cat', args: [] })
  for (let round = 0; round < 13; round++) {
    const ids = await Promise.all(Array.from({ length: 20 }, () => worker.client.spawn({ command: 'true', args: [] })))
    await Promise.all(ids.map((id) => worker.client.wait(id)))
  }
  expect(await worker.client.hasProcess(first)).toBe(false)
  expect(await worker.client.hasProcess(running)).toBe(true)
  await worker.client.closeStdin(running)
  await worker.client.wait(running)
}, 120_000)

it('all of them end with the worker', async () => {
  const other = await startWorker()
  const id = await other.client.spawn({ command: 'echo $$; (setsid sleep 1000 >/dev/null 2>&1 &) ; exec sleep 1000' })
  let pid = 0
  for await (const { data } of other.client.output(id)) {
    pid = Number(data)
    break
  }
  const gone = once(other.process, 'exit')
  other.process.kill('SIGTERM')
  await gone
  await until(() => !isAlive(pid), 'the process is dead')
  await other[Symbol.asyncDispose]()
})
