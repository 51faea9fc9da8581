/** `sallyport serve` with workers, as an operator has it: signals, files, and what becomes of the processes. */
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import net from 'node:net'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { runBinary, type Serving, startBinary, temporaryFolder } from '../cli/run-cli.ts'
import { WireClient } from '../../integration/wire.ts'
import { outcomeOf, workersOf } from './supervised.ts'

const folders: { readonly close: () => void }[] = []
const running: Serving[] = []
afterEach(async () => {
  for (const one of running.splice(0)) {
    one.kill('SIGKILL')
    await one.ended
  }
  for (const folder of folders.splice(0)) folder.close()
})

const CONFIG = `
workers: 2
listen: { proxy: 127.0.0.1:0, admin: off }
state: ./state
audit: { instance: gw }
policy: { ceiling: { kind: allow-all } }
`

async function serve() {
  const folder = temporaryFolder()
  folders.push(folder)
  const file = join(folder.path, 'sallyport.yaml')
  writeFileSync(file, CONFIG)
  const serving = startBinary(['serve', '--config', file], { cwd: folder.path })
  running.push(serving)
  const [, port] = await serving.until('stdout', /proxy {3}http:\/\/127\.0\.0\.1:(\d+)/)
  const state = join(folder.path, 'state')
  const workers = [...workersOf(serving.pid, state).values()]
  expect(workers).toHaveLength(2)
  return { serving, file, state, port: Number(port), workers }
}

/** One that ended and was not waited for is not running. */
function isRunning(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'))
  } catch {
    return false
  }
}

/** Whether somebody listens there. */
async function answers(port: number): Promise<boolean> {
  const socket = net.connect(port, '127.0.0.1')
  const answer = await once(socket, 'connect').then(
    () => true,
    () => false,
  )
  socket.destroy()
  return answer
}

/** Of each worker's log, the action of the line before the last checkpoint. */
function lastActions(state: string): readonly (string | undefined)[] {
  return ['gw', 'gw-1', 'gw-2'].map((instance) => {
    const lines = readFileSync(join(state, 'audit', `audit-${instance}-000001.jsonl`), 'utf8')
      .trimEnd()
      .split('\n')
    return /"action":"(\w+)"/.exec(lines.at(-2) ?? '')?.[1]
  })
}

describe('serve with workers', { timeout: 120_000 }, () => {
  test('at SIGTERM to the whole group, as a service manager sends it, all end in order', async () => {
    const { serving, state, port, workers } = await serve()
    for (const pid of [...workers, serving.pid]) process.kill(pid, 'SIGTERM')
    expect(await serving.ended).toBe(0)
    expect(workers.filter(isRunning)).toEqual([])
    expect(await answers(port)).toBe(false)
    expect(lastActions(state)).toEqual(['stop', 'stop', 'stop'])
    const verified = await runBinary(['audit', 'verify', '--json', join(state, 'audit')])
    expect(JSON.parse(verified.stdout)).toMatchObject({ ok: true })
  })

  test('when the supervising process is killed, no worker listens on, and each ends in order', async () => {
    const { serving, state, port, workers } = await serve()
    serving.kill('SIGKILL')
    await expect.poll(() => workers.filter(isRunning), { timeout: 30_000 }).toEqual([])
    expect(await answers(port)).toBe(false)
    expect(lastActions(state).slice(1)).toEqual(['stop', 'stop'])
  })

  test('while the supervising process hangs, a worker lets out nothing new', async () => {
    const { serving, port } = await serve()
    const ask = async () => {
      const client = await WireClient.connect({ port, host: '127.0.0.1' })
      client.send('CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n')
      const outcome = await outcomeOf(client)
      client.destroy()
      return outcome
    }
    expect(await ask()).toBe('407 token_missing')
    serving.kill('SIGSTOP')
    await expect.poll(ask, { timeout: 30_000, interval: 500 }).toBe('503 gateway_busy')
    serving.kill('SIGCONT')
    await expect.poll(ask, { timeout: 30_000, interval: 200 }).toBe('407 token_missing')
  })

  test('a file that is wrong changes nothing, in no worker; one that is right is taken by all', async () => {
    const { serving, file, state } = await serve()
    writeFileSync(file, `${CONFIG}limts: {}\n`)
    serving.kill('SIGHUP')
    await serving.until('stderr', /last good one stays in force/)
    writeFileSync(file, CONFIG.replace('allow-all', 'deny-all'))
    serving.kill('SIGHUP')
    await serving.until('stderr', /configuration reloaded/)
    for (const instance of ['gw-1', 'gw-2']) {
      const log = readFileSync(join(state, 'audit', `audit-${instance}-000001.jsonl`), 'utf8')
      expect(log.match(/"action":"\w+"/g)).toEqual(
        ['start', 'checkpoint', 'reload'].map((action) => `"action":"${action}"`),
      )
    }
  })

  test('another number of workers needs a restart, and says so', async () => {
    const { serving, file } = await serve()
    writeFileSync(file, CONFIG.replace('workers: 2', 'workers: 3'))
    serving.kill('SIGHUP')
    await serving.until('stderr', /"sections":\["workers"\]/)
  })

  test.each([
    ['listen: { proxy: "unix:/tmp/none/proxy" }', 'a unix socket can not be shared by several `workers`'],
    ['listen: { proxy: "off" }', 'workers serve `listen.proxy`, which is `off`'],
    [`audit: { instance: ${'x'.repeat(62)} }`, 'has no room for the number of a worker'],
    ['audit: { sinks: [{ name: out, kind: stdout }] }', 'lines of several `workers` would be mixed up'],
    ['workers: 65', 'workers:'],
  ])('what can not be is refused at the start: %s', async (line, says) => {
    const folder = temporaryFolder()
    folders.push(folder)
    const file = join(folder.path, 'sallyport.yaml')
    writeFileSync(file, line.startsWith('workers') ? line : `workers: 2\n${line}\n`)
    const { code, stderr } = await runBinary(['serve', '--config', file], { cwd: folder.path })
    expect({ code, stderr }).toEqual({ code: 3, stderr: expect.stringContaining(says) as string })
  })
})
