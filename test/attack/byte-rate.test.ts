/** A sandbox that has so many bytes a second gets no more by opening many connections, by another dialect, or by either direction; and what it gets is whole. */
import crypto from 'node:crypto'
import { once } from 'node:events'
import http from 'node:http'
import net, { type AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startTestGateway, type TestGateway } from '../integration/test-gateway.ts'
import { WireClient } from '../integration/wire.ts'

const HOST = '127.66.0.41'
const RATE = 512 * 1024
const BYTES = 768 * 1024
/** What may pass at once: a burst, and reads that were under way. */
const AHEAD = 0.05 * RATE + 64 * 1024
const payload = crypto.randomBytes(BYTES)

/** Sends the payload to whoever connects, and takes what comes. */
const source = net.createServer((socket) => {
  socket.on('error', () => undefined).end(payload)
  socket.resume()
})
/** Says the hash of what came. */
const sink = net.createServer({ allowHalfOpen: true }, (socket) => {
  const hash = crypto.createHash('sha256')
  socket.on('error', () => undefined).on('data', (chunk: Buffer) => hash.update(chunk))
  socket.on('end', () => socket.end(hash.digest('hex')))
})
/** Answers as soon as it has 60 KiB. */
const taker = net.createServer((socket) => {
  let taken = 0
  socket
    .on('error', () => undefined)
    .on('data', (chunk: Buffer) => {
      taken += chunk.length
      if (taken === 60 * 1024) socket.write('!')
    })
})
const LONG = 'x'.repeat(12 * 1024)
const web = http.createServer((request, response) => {
  if (request.method === 'HEAD') return void response.setHeader('x-long', LONG).end()
  const hash = crypto.createHash('sha256')
  request.on('data', (chunk: Buffer) => hash.update(chunk))
  request.on('end', () => {
    if (request.method === 'POST') response.end(hash.digest('hex'))
    else response.end(payload)
  })
})
const portOf = (server: net.Server): number => (server.address() as AddressInfo).port
let gateway: TestGateway

beforeAll(async () => {
  for (const server of [source, sink, taker, web]) {
    server.listen(0, HOST)
    await once(server, 'listening')
  }
  gateway = await startTestGateway({
    policy: { ceiling: { kind: 'allow-all' } },
    network: { allowPrivate: ['127.66.0.0/24'] },
    limits: { perSandbox: { bytesPerSecond: RATE } },
  })
})
afterAll(async () => {
  await gateway.close()
  for (const server of [source, sink, taker, web]) server.close()
})

const sha = (bytes: Buffer): string => crypto.createHash('sha256').update(bytes).digest('hex')
const bearer = async (sandbox: string): Promise<string> =>
  `Proxy-Authorization: Bearer ${await gateway.token({ sandbox, sub: sandbox, egress: { kind: 'allow-all' } })}\r\n`

async function tunnel(port: number, sandbox: string): Promise<WireClient> {
  const client = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
  client.send(`CONNECT ${HOST}:${port} HTTP/1.1\r\nHost: x\r\n${await bearer(sandbox)}\r\n`)
  expect((await client.answer({ hasBody: false }))?.status).toBe(200)
  return client
}

/** Milliseconds that `bytes` take at least. */
const leastMs = (bytes: number): number => ((bytes - AHEAD) / RATE) * 1000 * 0.95
const timed = async (work: () => Promise<void>): Promise<number> => {
  const startedMs = performance.now()
  await work()
  return performance.now() - startedMs
}

async function download(sandbox: string): Promise<void> {
  const client = await tunnel(portOf(source), sandbox)
  expect(sha(await client.over(60_000))).toBe(sha(payload))
}

async function upload(sandbox: string): Promise<void> {
  const client = await tunnel(portOf(sink), sandbox)
  client.send(payload)
  client.end()
  expect((await client.over(60_000)).toString()).toBe(sha(payload))
}

test('down', async () => {
  expect(await timed(() => download('down'))).toBeGreaterThan(leastMs(BYTES))
})

test('up', async () => {
  expect(await timed(() => upload('up'))).toBeGreaterThan(leastMs(BYTES))
})

test('four connections both ways share it', async () => {
  const all = () => Promise.all([download('many'), upload('many'), download('many'), upload('many')])
  const tookMs = await timed(async () => {
    await all()
  })
  // Each of the four may have one read under way.
  expect(tookMs).toBeGreaterThan(leastMs(4 * BYTES - 3 * 64 * 1024))
})

test('plain requests, and their bodies', async () => {
  const origin = `http://${HOST}:${portOf(web)}/`
  const line = (await bearer('plain')).trim()
  const [name = '', value = ''] = line.split(': ')
  const ask = (method: string, body?: Buffer): Promise<Buffer> =>
    new Promise((resolve, reject) => {
      const headers = { [name]: value, host: 'x', ...(body && { 'content-length': body.length }) }
      const request = http.request({ host: '127.0.0.1', port: gateway.port, method, path: origin, headers })
      request.on('error', reject).on('response', (response) => {
        const pieces: Buffer[] = []
        response.on('data', (piece: Buffer) => pieces.push(piece)).on('error', reject)
        response.on('end', () => resolve(Buffer.concat(pieces)))
      })
      request.end(body)
    })
  const tookMs = await timed(async () => {
    const [got, hash] = await Promise.all([ask('GET'), ask('POST', payload)])
    expect([sha(got), hash.toString()]).toEqual([sha(payload), sha(payload)])
  })
  expect(tookMs).toBeGreaterThan(leastMs(2 * BYTES - 64 * 1024))
})

test('many short connections with one read each', async () => {
  const piece = payload.subarray(0, 60 * 1024)
  // Whoever ends waits until that is read: these go as soon as the origin says that their bytes are there.
  const one = async (): Promise<void> => {
    const client = await tunnel(portOf(taker), 'short')
    client.send(piece)
    await client.take(1)
    client.socket.destroy()
  }
  const count = 40
  const tookMs = await timed(async () => {
    for (let done = 0; done < count; done += 4) await Promise.all([one(), one(), one(), one()])
  })
  // The last four may be under way.
  expect(tookMs).toBeGreaterThan(leastMs((count - 4) * piece.length))
}, 60_000)

test('bytes in heads', async () => {
  const line = await bearer('heads')
  const request = `HEAD http://${HOST}:${portOf(web)}/ HTTP/1.1\r\nHost: x\r\nX-Long: ${LONG}\r\n${line}\r\n`
  const count = 50
  const tookMs = await timed(async () => {
    let client = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
    for (let done = 0; done < count; done++) {
      // Half of them by a connection of their own.
      if (done % 2 === 0) {
        client.socket.destroy()
        client = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
      }
      client.send(request)
      expect((await client.answer({ hasBody: false }))?.status).toBe(200)
    }
  })
  expect(tookMs).toBeGreaterThan(leastMs((count - 1) * 2 * LONG.length))
}, 60_000)

test('another sandbox waits for none of it', async () => {
  const busy = Array.from({ length: 8 }, () => download('busy'))
  const client = await tunnel(portOf(sink), 'calm')
  client.send('x')
  client.end()
  expect((await client.over()).toString()).toBe(sha(Buffer.from('x')))
  const stillBusy = await Promise.race([
    Promise.all(busy).then(() => false),
    new Promise((resolve) => setImmediate(() => resolve(true))),
  ])
  expect(stillBusy).toBe(true)
  await Promise.all(busy)
}, 60_000)

test('one that waits for its turn is cut at once when it is closed, and nothing of it is left', async () => {
  const client = await tunnel(portOf(source), 'leaves')
  await client.take(RATE / 4)
  client.socket.resetAndDestroy()
  const line = await gateway.auditLine(({ kind, sandbox }) => kind === 'close' && sandbox === 'leaves')
  expect(line['close_reason']).toBe('client_closed')
  expect(Number(line['bytes_in'])).toBeLessThan(BYTES)
})
