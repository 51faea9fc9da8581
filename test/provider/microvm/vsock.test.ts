/** What the host does with a vsock device, or a guest, that says something else than it should: an end, soon, and bounded. */
import fs from 'node:fs'
import net from 'node:net'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { expectCall, type GuestCall } from '../../../provider/backends/microvm/guest-call.ts'
import { fileFault, printable } from '../../../provider/backends/microvm/microvm-error.ts'
import { launch } from '../../../provider/backends/microvm/launch.ts'
import { ordersFor } from '../../../provider/backends/microvm/guest-protocol.ts'
import { openToAll } from '../../../provider/backends/control-socket.ts'
import { claimUid } from '../../../provider/backends/microvm/uids.ts'
import { connectVsock } from '../../../provider/backends/microvm/vsock.ts'

let folder: string
const servers: net.Server[] = []
beforeEach(() => {
  folder = fs.mkdtempSync('/tmp/spv-')
})
afterEach(() => {
  for (const server of servers.splice(0)) server.close()
  fs.rmSync(folder, { recursive: true })
})

describe('a vsock device', () => {
  const device = (answer: (socket: net.Socket, line: string) => void): Promise<string> =>
    new Promise((resolve) => {
      const place = path.join(folder, 'v.sock')
      const server = net.createServer((socket) => {
        socket.on('error', () => undefined).once('data', (line: Buffer) => answer(socket, line.toString()))
      })
      servers.push(server.listen(place, () => resolve(place)))
    })

  test.each([1, 2, 5, 14])('is answered whatever the size of its pieces: %i bytes', async (size) => {
    const bytes = 'OK 1073741824\nhello'
    const place = await device((socket, line) => {
      expect(line).toBe('CONNECT 2024\n')
      const next = (at: number): void => {
        if (at < bytes.length) socket.write(bytes.slice(at, at + size), () => setImmediate(() => next(at + size)))
        else socket.end()
      }
      next(0)
    })
    const socket = await connectVsock(place, 2024)
    let text = ''
    for await (const chunk of socket) text += String(chunk)
    expect(text).toBe('hello')
  })

  test.each<[string, (socket: net.Socket) => unknown, string]>([
    ['closes without a word', (socket) => socket.end(), 'nobody listens'],
    ['breaks off', (socket) => socket.destroy(), 'nobody listens'],
    ['says something else', (socket) => socket.end('ERROR\n'), 'something else than `OK`'],
    ['says `OK` and no number', (socket) => socket.end('OK \n'), 'something else than `OK`'],
    ['never ends its line', (socket) => socket.write('OK '.repeat(1_000)), 'too much'],
  ])('that %s leads nowhere', async (_what, answer, message) => {
    const place = await device(answer)
    await expect(connectVsock(place, 2024)).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_CONNECTION_LOST', message: expect.stringContaining(message) as string }) // prettier-ignore
  })
})

describe('a guest that calls', () => {
  let call: GuestCall
  beforeEach(async () => {
    call = await expectCall(folder)
  })
  afterEach(() => call.close())
  const dial = (): Promise<net.Socket> =>
    new Promise((resolve) => {
      const socket = net.connect(path.join(folder, 'v.sock_1024'))
      socket.on('error', () => undefined).once('connect', () => resolve(socket))
    })
  const order = { workerToken: 'a-bearer-that-is-long-enough-to-be-one', env: {}, timeoutMs: 2_500, maxProcesses: 10 }

  test('gets its orders when it waits, and a worker that answers is the end of it', async () => {
    const socket = await dial()
    socket.write('waiting 1\n')
    await call.waiting
    const given = call.give(order)
    const [first] = (await new Promise<Buffer[]>((resolve) => socket.once('data', (chunk: Buffer) => resolve([chunk])))) // prettier-ignore
    expect(first?.toString()).toMatch(
      /^time \d+\.\d{3}\nseed [0-9a-f]{128}\nprocesses 34\nlife 4\nsettings \{"token":"a-bearer.*\}\n$/,
    )
    socket.write('ready\n')
    await given
  })

  test('again, as one of a snapshot does, gets other seeds', async () => {
    const seeds = new Set<string>()
    const given = call.give(order)
    for (let each = 0; each < 3; each++) {
      const socket = await dial()
      socket.write('waiting 1\n')
      const text = await new Promise<string>((resolve) =>
        socket.once('data', (chunk: Buffer) => resolve(chunk.toString())),
      )
      seeds.add(/^seed (.*)$/m.exec(text)?.[1] ?? '')
      if (each === 2) socket.write('ready\n')
    }
    await given
    expect(seeds.size).toBe(3)
  })

  test.each([
    ['of another version', 'waiting 2\n'],
    ['says that it is ready before it was asked', 'ready\n'],
    ['says something else', 'SSH-2.0-x\n'],
    ['never ends its line', 'x'.repeat(10_000)],
  ])('and %s is refused, in one line', async (_what, words) => {
    const socket = await dial()
    socket.write(words)
    const error: unknown = await call.waiting.catch((thrown: unknown) => thrown)
    expect(error).toMatchObject({ fault: 'image_unusable' })
    expect((error as Error).message.length).toBeLessThan(600)
  })

  test('opens at most a few connections', async () => {
    const sockets = await Promise.all(Array.from({ length: 12 }, dial))
    const closed = sockets.map((socket) => new Promise<void>((resolve) => void socket.resume().once('close', () => resolve()))) // prettier-ignore
    await Promise.race(closed)
    for (const socket of sockets) socket.destroy()
  })

  test('finds nobody once it has been answered', async () => {
    call.close()
    await expect.poll(() => fs.existsSync(path.join(folder, 'v.sock_1024'))).toBe(false)
  })
})

test('orders without a seed are not made', () => {
  const order = { workerToken: 'x'.repeat(32), env: {}, timeoutMs: undefined, maxProcesses: 1 }
  expect(() => ordersFor(order, { nowMs: 0, seed: Buffer.alloc(8) })).toThrow(TypeError)
})

test('an order is one line for each of its parts, whatever the environment holds', () => {
  const env = { EVIL: 'x\nlife 1\nsettings {}\r\u2028' }
  const text = ordersFor({ workerToken: 'x'.repeat(32), env, timeoutMs: undefined, maxProcesses: 1 }, { nowMs: 0, seed: Buffer.alloc(64) }) // prettier-ignore
  const lines = text.split('\n')
  expect(lines.map((line) => line.split(' ')[0])).toEqual(['time', 'seed', 'processes', 'settings', ''])
})

describe('users of machines', () => {
  const range = { first: 3_000_000, count: 3 }

  test('are each given once, and again when the machine’s folder is gone', async () => {
    const folders = ['a', 'b', 'c'].map((name) => path.join(folder, name))
    for (const each of folders) fs.mkdirSync(each)
    const claims = path.join(folder, 'claims')
    const given = await Promise.all(folders.map((each) => claimUid(each, range, claims)))
    expect(new Set(given.map(({ uid }) => uid))).toEqual(new Set([3_000_000, 3_000_001, 3_000_002]))
    await expect(claimUid(folder, range, claims)).rejects.toMatchObject({ fault: 'quota_exhausted' })
    fs.rmSync(folders[1] ?? '', { recursive: true })
    expect((await claimUid(folder, range, claims)).uid).toBe(given[1]?.uid)
  })
})

test('a full disk has a name, and so has an image that can not be read', () => {
  const failed = (code: string): Error => Object.assign(new Error(code), { code })
  expect(fileFault('copy the image `x`', failed('ENOSPC'))).toMatchObject({ fault: 'quota_exhausted', code: 'SALLYPORT_SANDBOX_BACKEND_FAILED' }) // prettier-ignore
  expect(fileFault('copy the image `x`', failed('EACCES'))).toMatchObject({ fault: 'image_missing', message: expect.stringContaining('EACCES') as string }) // prettier-ignore
})

test('what a guest says on its console is one bounded line', () => {
  expect(printable(`a\n\u001b[31m\`b\`${'x'.repeat(10_000)}`)).toMatch(/^a \[31m b x{1,300}$/)
})

test('a program that can not be started is named, and starts in nothing of the host’s environment', async () => {
  const where = { cwd: folder, joinFiles: [] }
  const missing = await launch({ command: ['/nowhere/firecracker'], ...where })
  await missing.exited
  expect(missing.said()).toContain('/nowhere/firecracker')
  process.env['SALLYPORT_MARKER'] = 'a-secret-of-the-host'
  const env = await launch({ command: ['sh', '-c', 'echo "<$SALLYPORT_MARKER>"'], ...where })
  await env.exited
  expect(env.said()).toBe('<>')
  delete process.env['SALLYPORT_MARKER']
})

test('a link that has taken the place of a socket is not followed when that is opened to all', async () => {
  const secret = path.join(folder, 'secret')
  fs.writeFileSync(secret, '', { mode: 0o600 })
  fs.symlinkSync(secret, path.join(folder, 'link'))
  for (const name of ['link', 'secret']) await expect(openToAll(path.join(folder, name))).rejects.toThrow()
  expect(fs.statSync(secret).mode & 0o777).toBe(0o600)
})
