/** Reaching a worker through a folder that a hostile sandbox can write to. */
import fs from 'node:fs/promises'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { connectControl } from '../../../provider/backends/control-socket.ts'

describe.runIf(process.platform === 'linux')('the control socket', () => {
  let folder: string
  let server: net.Server
  let connections: number

  beforeEach(async () => {
    folder = await fs.mkdtemp(path.join(os.tmpdir(), 'sps-'))
    connections = 0
    server = net.createServer((socket) => {
      connections += 1
      socket.on('error', () => undefined).end('hello')
    })
    await new Promise<void>((resolve) => server.listen(path.join(folder, 'a.sock'), resolve))
  })
  afterEach(async () => {
    await new Promise((resolve) => server.close(resolve))
    await fs.rm(folder, { recursive: true })
  })

  const attempt = (name: string): Promise<net.Socket> => connectControl(path.join(folder, name))
  const lost = { code: 'SALLYPORT_SANDBOX_CONNECTION_LOST', outcome: 'known' }

  test('is connected to', async () => {
    const socket = await attempt('a.sock')
    expect(String(await new Promise((resolve) => socket.once('data', resolve)))).toBe('hello')
    socket.destroy()
  })

  test('is connected to by a path longer than a socket’s address', async () => {
    const long = path.join(folder, 'x'.repeat(100), 'y'.repeat(100))
    await fs.mkdir(long, { recursive: true })
    await fs.link(path.join(folder, 'a.sock'), path.join(long, 'b.sock'))
    const socket = await connectControl(path.join(long, 'b.sock'))
    socket.destroy()
  })

  test('a link to another program’s socket is not followed', async () => {
    await fs.symlink(path.join(folder, 'a.sock'), path.join(folder, 'link.sock'))
    await expect(attempt('link.sock')).rejects.toMatchObject(lost)
    expect(connections).toBe(0)
  })

  test.each([
    ['a file', (file: string) => fs.writeFile(file, '')],
    ['a folder', (file: string) => fs.mkdir(file)],
    ['a link to nothing', (file: string) => fs.symlink('nowhere', file)],
  ])('%s in its place is refused', async (_what, put) => {
    await put(path.join(folder, 'other'))
    await expect(attempt('other')).rejects.toMatchObject(lost)
  })

  test('nothing in its place, or a socket that nobody listens on', async () => {
    await expect(attempt('gone.sock')).rejects.toMatchObject(lost)
    await fs.link(path.join(folder, 'a.sock'), path.join(folder, 'dead.sock'))
    await new Promise((resolve) => server.close(resolve))
    await expect(attempt('dead.sock')).rejects.toMatchObject(lost)
    server.listen()
  })

  test('leaves no descriptor open', async () => {
    const before = (await fs.readdir('/proc/self/fd')).length
    for (let round = 0; round < 20; round += 1) await attempt('gone.sock').catch(() => undefined)
    for (let round = 0; round < 20; round += 1) {
      const socket = await attempt('a.sock')
      await new Promise((resolve) => socket.resume().once('close', resolve).end())
    }
    expect((await fs.readdir('/proc/self/fd')).length).toBeLessThanOrEqual(before + 2)
  })
})
