/** Connections by Node's own handles, and what there is where Node gives none. */
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import net from 'node:net'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterEach, describe, expect, test } from 'vitest'
import { HandleWire } from '../../../proxy/relay/handle-wire.ts'
import { hasHandles, type StreamHandle, takeConnections } from '../../../proxy/relay/node-handles.ts'
import type { WireOwner } from '../../../proxy/relay/wire.ts'
import { connectPlain, turnsOfTheLoop } from './harness.ts'

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

/** Writes down what it is told. */
class Notes implements WireOwner {
  readonly heard: string[] = []
  readonly closed = Promise.withResolvers<undefined>()
  /** Whether to read on. */
  goesOn = true

  onRead(bytesRead: number): boolean {
    this.heard.push(`read ${bytesRead}`)
    return this.goesOn
  }

  onChunk(): boolean {
    throw new Error('a handle has no chunks')
  }

  onEnd(): void {
    this.heard.push('end')
  }

  onDrain(): void {
    this.heard.push('drain')
  }

  onFault(fault: string): void {
    this.heard.push(fault)
  }

  onClosed(): void {
    this.heard.push('closed')
    this.closed.resolve(undefined)
  }
}

interface Pair {
  readonly wire: HandleWire
  readonly handle: StreamHandle
  readonly notes: Notes
  readonly client: net.Socket
}

async function pair(): Promise<Pair> {
  const server = net.createServer()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { promise, resolve } = Promise.withResolvers<StreamHandle>()
  expect(takeConnections(server, resolve)).toBe(true)
  const client = connectPlain({ port: (server.address() as net.AddressInfo).port, host: '127.0.0.1' })
  const handle = await promise
  server.close()
  const wire = new HandleWire(handle)
  const notes = new Notes()
  wire.own(notes)
  closers.push(
    () => client.destroy(),
    () => wire.destroy(),
  )
  return { wire, handle, notes, client }
}

describe('a wire by handle', () => {
  test('says who the peer is, until it is closed', async () => {
    const { wire, client } = await pair()
    expect(wire.peer).toMatchObject({ address: '127.0.0.1', port: client.localPort })
    wire.destroy()
    expect(wire.peer).toEqual({})
  })

  test('reads nothing before it is told to, and nothing after it was told not to', async () => {
    const { wire, notes, client } = await pair()
    client.write('one')
    await turnsOfTheLoop(20)
    expect(notes.heard).toEqual([])
    notes.goesOn = false
    wire.read()
    await expect.poll(() => notes.heard).toEqual(['read 3'])
    client.write('two')
    await turnsOfTheLoop(20)
    expect(notes.heard).toEqual(['read 3'])
    wire.read()
    await expect.poll(() => notes.heard).toEqual(['read 3', 'read 3'])
  })

  test('closes by itself when both ends are out, in either order', async () => {
    const first = await pair()
    first.wire.read()
    first.wire.end()
    first.wire.end()
    await once(first.client.resume(), 'end')
    expect(first.wire.destroyed).toBe(false)
    first.client.end()
    await first.notes.closed.promise
    expect(first.notes.heard).toEqual(['end', 'closed'])

    const second = await pair()
    second.wire.read()
    second.client.end()
    await expect.poll(() => second.notes.heard).toEqual(['end'])
    expect(second.wire.destroyed).toBe(false)
    second.wire.end()
    await once(second.client.resume(), 'end')
    await second.notes.closed.promise
    expect(second.notes.heard).toEqual(['end', 'closed'])
  })

  test('what waits for a slow reader is sent before the end, and then said to be through', async () => {
    const { wire, notes, client } = await pair()
    const chunk = Buffer.alloc(1024 * 1024, 'x')
    let sent = 1
    while (wire.send(chunk)) sent++
    wire.end()
    let received = 0
    client.on('data', (data) => (received += data.length))
    await once(client, 'end')
    expect(received).toBe(sent * chunk.length)
    expect(notes.heard).toEqual(['drain'])
  })

  test('what waits is void once it is closed; nobody hears of it later', async () => {
    const { wire, notes } = await pair()
    const chunk = Buffer.alloc(1024 * 1024)
    while (wire.send(chunk));
    wire.destroy()
    wire.destroy()
    wire.abort()
    wire.send(chunk)
    await notes.closed.promise
    await turnsOfTheLoop(5)
    expect(notes.heard).toEqual(['closed'])
    expect(wire.send(chunk)).toBe(true)
  })

  test('a reset of the peer is a fault, then closed', async () => {
    const { wire, notes, client } = await pair()
    wire.read()
    client.resetAndDestroy()
    await notes.closed.promise
    expect(notes.heard).toEqual(['ECONNRESET', 'closed'])
  })

  test('a peer that has gone is heard of by writing too, and closes it in a later turn', async () => {
    const { wire, notes, client } = await pair()
    client.resetAndDestroy()
    await once(client, 'close')
    await expect
      .poll(() => {
        wire.send(Buffer.from('x'))
        return notes.heard[0]
      })
      .toMatch(/^(?:EPIPE|ECONNRESET)$/)
    expect(notes.heard).toHaveLength(1)
    await notes.closed.promise
    expect(notes.heard.slice(1)).toEqual(['closed'])
  })

  test('aborting resets; after our own end it closes', async () => {
    const reset = await pair()
    const fault = once(reset.client, 'error').catch((error: unknown) => [error])
    reset.wire.abort()
    expect(await fault).toMatchObject([{ code: 'ECONNRESET' }])
    await reset.notes.closed.promise

    const ended = await pair()
    ended.wire.end()
    ended.wire.abort()
    await ended.notes.closed.promise
    expect(ended.notes.heard).toEqual(['closed'])
  })

  test('a handle keeps its wire until it is closed, and no longer', async () => {
    const { wire, handle, notes } = await pair()
    expect(handle.wire).toBe(wire)
    wire.destroy()
    await notes.closed.promise
    expect(handle.wire).toBeUndefined()
  })

  test('given up as a socket it is inert, also when the peer had ended', async () => {
    const { wire, notes, client } = await pair()
    wire.read()
    client.end('x')
    await expect.poll(() => notes.heard).toEqual(['read 1', 'end'])
    const socket = wire.toStream()
    closers.push(() => socket.destroy())
    wire.destroy()
    wire.abort()
    wire.read()
    expect(wire.send(Buffer.from('not sent'))).toBe(true)
    socket.end('sent')
    const [data] = (await once(client, 'data')) as [Buffer]
    expect(data.toString()).toBe('sent')
    await once(socket.resume(), 'close')
    expect(notes.heard).toEqual(['read 1', 'end'])
  })
})

describe('a Node without handles', () => {
  const child = path.join(import.meta.dirname, 'relay-process.ts')
  const run = async (...flags: readonly string[]): Promise<unknown> => {
    const { stdout } = await promisify(execFile)(process.execPath, ['--no-warnings', ...flags, child])
    return JSON.parse(stdout) as unknown
  }
  const whole = { isWhole: true, closeReason: 'client_closed' }

  test('this one has them', async () => {
    expect(hasHandles).toBe(true)
    expect(await run()).toEqual({ hasHandles: true, ...whole })
  })

  test.each([
    ['the permission model', ['--permission', '--allow-fs-read=/', '--allow-worker', '--allow-addons']],
    ['another Node', ['--import', 'data:text/javascript,process.binding=undefined']],
    ['other handles', ['--import', 'data:text/javascript,process.binding=()=>({TCP:class{}})']],
  ])('%s: relays all the same', async (_sentence, flags) => {
    expect(await run(...flags)).toEqual({ hasHandles: false, ...whole })
  })
})
