/** Large bodies both ways, slow readers, and the limits on time and number. */
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import net from 'node:net'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { GOOD, Harness, RawClient, RawOrigin, replyWith } from './forward-harness.ts'

const MIB = 1024 * 1024
const SIZE = 50 * MIB
/** What may be under way: the socket buffers of the kernel at four ends (up to 6 MiB each) and a little of ours. */
const UNDER_WAY = 28 * MIB
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
let harness: Harness
const origins: RawOrigin[] = []

beforeEach(() => {
  harness = new Harness()
})
afterEach(async () => {
  await harness.stop()
  await Promise.all(origins.splice(0).map((origin) => origin.stop()))
  expect(harness.faults).toEqual([])
  expect(harness.released).toBe(harness.admitted)
})

async function origin(script: (socket: net.Socket) => void): Promise<RawOrigin> {
  const made = new RawOrigin(script)
  origins.push(made)
  harness.ports.set('a.example', await made.start())
  return made
}
const request = (method: string, fields = ''): string =>
  `${method} http://a.example/ HTTP/1.1\r\nHost: a\r\n${GOOD}${fields}\r\n`
const payload = randomBytes(SIZE)
const digest = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex')

/** Writes as fast as the socket takes it. */
async function writeAll(socket: net.Socket, bytes: Buffer): Promise<void> {
  for (let at = 0; at < bytes.length; at += 256 * 1024) {
    await new Promise((resolve) => socket.write(bytes.subarray(at, at + 256 * 1024), resolve))
  }
}

/** Reads with a pause of many turns of the event loop after each chunk; tells `onBytes` how many have come. */
function readSlowly(socket: net.Socket, onBytes: (total: number) => void): Promise<Buffer> {
  const chunks: Buffer[] = []
  let total = 0
  return new Promise((resolve) => {
    socket.on('data', (chunk: Buffer) => {
      chunks.push(chunk)
      total += chunk.length
      onBytes(total)
      socket.pause()
      let turns = 4
      const next = (): void => {
        turns--
        if (turns === 0) socket.resume()
        else setImmediate(next)
      }
      setImmediate(next)
    })
    socket.on('end', () => resolve(Buffer.concat(chunks)))
  })
}

describe('50 MiB', () => {
  test.each([
    ['with a length', `Content-Length: ${String(SIZE)}\r\n`],
    ['until the end of the connection', ''],
  ])('down %s arrive whole at a slow reader, and are not piled up', async (_name, field) => {
    await harness.start()
    await origin((socket) => {
      socket.once('data', () => {
        socket.write(`HTTP/1.1 200 OK\r\nConnection: close\r\n${field}\r\n`)
        void writeAll(socket, payload).then(() => socket.end())
      })
    })
    const socket = await harness.open()
    let mostUnderWay = 0
    const received = readSlowly(socket, (total) => {
      mostUnderWay = Math.max(mostUnderWay, (harness.exchanges[0]?.bytesIn ?? 0) - total)
    })
    socket.write(request('GET', 'Connection: close\r\n'))
    const bytes = await received
    const body = bytes.subarray(bytes.indexOf('\r\n\r\n') + 4)
    expect(digest(field === '' ? dechunk(body) : body)).toBe(digest(payload))
    expect(mostUnderWay).toBeLessThan(UNDER_WAY)
    expect(harness.closes[0]?.result.bytesIn).toBeGreaterThan(SIZE)
  })

  test.each([
    ['with a length', `Content-Length: ${String(SIZE)}\r\n`],
    ['in chunks', 'Transfer-Encoding: chunked\r\n'],
  ])('up %s arrive whole at a slow origin, and are not piled up', async (_name, field) => {
    await harness.start()
    let mostUnderWay = 0
    let gotWhole: (bytes: Buffer) => void = () => undefined
    const whole = new Promise<Buffer>((resolve) => (gotWhole = resolve))
    const isChunked = field.startsWith('T')
    const server = net.createServer({ allowHalfOpen: true }, (socket) => {
      const chunks: Buffer[] = []
      let total = 0
      void readSlowly(socket, (now) => {
        mostUnderWay = Math.max(mostUnderWay, (harness.exchanges[0]?.bytesOut ?? 0) - now)
      })
      socket.on('data', (chunk: Buffer) => {
        chunks.push(chunk)
        total += chunk.length
        const headLength = (chunks[0]?.indexOf('\r\n\r\n') ?? 0) + 4
        const tail = isChunked ? Buffer.concat(chunks.slice(-3)).toString('latin1') : ''
        if (total < headLength + SIZE || (isChunked && !tail.endsWith('0\r\n\r\n'))) return
        socket.end(OK)
        server.close()
        gotWhole(Buffer.concat(chunks))
      })
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    harness.ports.set('a.example', (server.address() as net.AddressInfo).port)
    const client = await harness.connect()
    client.send(request('POST', field))
    if (isChunked) {
      client.send(`${SIZE.toString(16)}\r\n`)
      await writeAll(client.socket, payload)
      client.send('\r\n0\r\n\r\n')
    } else {
      await writeAll(client.socket, payload)
    }
    const bytes = await whole
    const body = bytes.subarray(bytes.indexOf('\r\n\r\n') + 4)
    const sent = isChunked ? dechunk(body) : body.subarray(0, SIZE)
    expect(digest(sent)).toBe(digest(payload))
    expect(mostUnderWay).toBeLessThan(UNDER_WAY)
    expect(await client.answer()).toMatchObject({ status: '200' })
    client.destroy()
    await harness.until(() => harness.closes.length === 1)
  })
})

describe('time', () => {
  test('a head that does not come whole is refused when its time is up', async () => {
    harness = new Harness({ headTimeoutMs: 60 })
    await harness.start()
    const client = await harness.connect()
    client.send('GET http://a.example/ HTTP/1.1\r\nHost:')
    const answer = await client.answer()
    expect(answer).toMatchObject({ status: '400', phrase: 'Request Malformed' })
    expect(await client.rest()).toBe('')
    expect(harness.decisions).toMatchObject([{ outcome: { ok: false, reason: 'request_malformed' } }])
  })

  test('a connection over which nothing flows while a request is under way is cut', async () => {
    harness = new Harness({ idleTimeoutMs: 60 })
    await harness.start()
    await origin(() => undefined)
    const client = await harness.connect()
    client.send(request('GET'))
    expect(await client.rest()).toBe('')
    await harness.until(() => harness.closes.length === 1)
    expect(harness.closes).toMatchObject([{ result: { closeReason: 'idle_timeout' } }])
  })

  test('a connection that waits for its next request is closed when its time is up', async () => {
    harness = new Harness({ keepAliveTimeoutMs: 50 })
    await harness.start()
    await origin(replyWith(OK))
    const client = await harness.connect()
    client.send(request('GET'))
    await client.answer()
    expect(await client.rest()).toBe('')
  })
})

describe('number', () => {
  test('of requests that wait on one connection is bounded', async () => {
    await harness.start()
    const seen = await origin(() => undefined)
    const client = await harness.connect()
    client.send(request('GET').repeat(200))
    expect(await client.rest()).toBe('')
    expect(seen.got.length).toBeLessThanOrEqual(1)
    await harness.until(() => harness.decisions.some(({ outcome }) => !outcome.ok))
    expect(harness.decisions.length).toBeLessThanOrEqual(2)
  })
})

test('a connection whose first bytes were read and put back is served from the first byte', async () => {
  await harness.start()
  await origin(replyWith(OK))
  const listener = net.createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) => {
    socket.once('readable', () => {
      const first = socket.read() as Buffer
      socket.unshift(first)
      harness.forwarder.serve(socket, { address: '127.0.0.1', port: 1 })
    })
  })
  listener.listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const client = new RawClient(net.connect((listener.address() as net.AddressInfo).port, '127.0.0.1'))
  for (const part of [
    request('POST', 'Content-Length: 5\r\n').slice(0, 20),
    request('POST', 'Content-Length: 5\r\n').slice(20),
    'hello',
    request('GET'),
  ])
    client.send(part)
  expect(await client.answer()).toMatchObject({ status: '200' })
  expect(await client.answer()).toMatchObject({ status: '200' })
  client.destroy()
  listener.close()
  await once(listener, 'close')
})

function dechunk(bytes: Buffer): Buffer {
  const parts: Buffer[] = []
  for (let at = 0; ;) {
    const lineEnd = bytes.indexOf('\r\n', at)
    const size = Number.parseInt(bytes.toString('latin1', at, lineEnd), 16)
    if (!(size > 0)) return Buffer.concat(parts)
    parts.push(bytes.subarray(lineEnd + 2, lineEnd + 2 + size))
    at = lineEnd + 4 + size
  }
}
