/** One end of a connection: pulled, put back, handed on to node:http. */
import crypto from 'node:crypto'
import { once } from 'node:events'
import fs from 'node:fs'
import http from 'node:http'
import type net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { type Listener, listenTcp, listenUnix } from '../../../proxy/relay/listen.ts'
import { Side } from '../../../proxy/relay/side.ts'
import { SocketWire } from '../../../proxy/relay/socket-wire.ts'
import { connectPlain, connectTls, readBytes, startOrigin, tlsMaterial, turnsOfTheLoop } from './harness.ts'

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

type Transport = 'tcp' | 'unix' | 'tls' | 'plain events'

/** A listener that gives its sides to `serve`; returns how to connect to it. */
async function accepting(transport: Transport, serve: (side: Side) => void): Promise<() => net.Socket> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'side-'))
  closers.push(() => fs.rmSync(folder, { recursive: true, force: true }))
  const onSide = (side: Side): void => {
    closers.push(() => side.destroy())
    serve(side)
  }
  if (transport === 'plain events') {
    const server = await startOrigin((socket) => onSide(new Side(new SocketWire(socket))), { pauseOnConnect: true })
    closers.push(() => server.close())
    return () => track(connectPlain({ port: server.port, host: '127.0.0.1' }))
  }
  const { cert, key, ca } = tlsMaterial()
  const listener: Listener =
    transport === 'unix'
      ? await listenUnix({ path: path.join(folder, 's'), onSide })
      : await listenTcp({ host: '127.0.0.1', port: 0, onSide, ...(transport === 'tls' && { tls: { cert, key } }) })
  closers.push(() => listener.close())
  return () => {
    if (transport === 'unix') return track(connectPlain({ path: path.join(folder, 's') }))
    return track(
      transport === 'tls' ? connectTls(listener.port, ca) : connectPlain({ port: listener.port, host: '127.0.0.1' }),
    )
  }
}

function track(socket: net.Socket): net.Socket {
  closers.push(() => void socket.destroy())
  return socket
}

/** One side and the client's socket at its other end. */
async function pair(transport: Transport): Promise<{ side: Side; client: net.Socket }> {
  const { promise, resolve } = Promise.withResolvers<Side>()
  const connect = await accepting(transport, resolve)
  const client = connect()
  return { client, side: await promise }
}

async function readText(side: Side): Promise<string> {
  let text = ''
  for (;;) {
    const bytes = await side.read()
    if (bytes === null) return text
    text += bytes.toString('latin1')
  }
}

describe.each(['tcp', 'unix', 'tls', 'plain events'] as const)('a side over %s', (transport) => {
  test('gives what arrives, what was put back first, and null at the end', async () => {
    const { side, client } = await pair(transport)
    client.write('one')
    const first = await side.read()
    expect(first?.toString()).toBe('one')
    side.unread(Buffer.from('two'))
    side.unread(Buffer.from('before '))
    client.end(' three')
    expect(await readText(side)).toBe('before two three')
    expect(await side.read()).toBeNull()
    expect(side.closed).toBe(false)
    side.end(Buffer.from('bye'))
    client.resume()
    await once(client, 'end')
  })

  test('does not read ahead of its reader', async () => {
    const { side, client } = await pair(transport)
    const chunk = crypto.randomBytes(1024 * 1024)
    let sent = 0
    const fill = (): void => {
      while (sent < 64) {
        sent++
        if (!client.write(chunk)) return
      }
    }
    client.on('drain', fill)
    fill()
    const first = await side.read()
    await turnsOfTheLoop(200)
    expect(sent).toBeLessThan(64)
    let bytes = first?.length ?? 0
    while (bytes < 64 * chunk.length) bytes += (await side.read())?.length ?? Infinity
    expect(bytes).toBe(64 * chunk.length)
  })

  test("bytes that were read are the reader's own", async () => {
    const { side, client } = await pair(transport)
    const other = await pair(transport)
    client.write('mine, not yours')
    const mine = await side.read()
    other.client.write('XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX')
    await other.side.read()
    expect(mine?.toString()).toBe('mine, not yours')
  })

  test('destroy answers a pending read, tells its listener once, and later calls do nothing', async () => {
    const { side, client } = await pair(transport)
    let closes = 0
    side.onClose(() => closes++)
    const pending = side.read()
    side.destroy()
    side.destroy()
    side.abort()
    expect(await pending).toBeNull()
    expect(side.closed).toBe(true)
    expect(await side.read()).toBeNull()
    side.end(Buffer.from('too late'))
    side.write(Buffer.from('too late'))
    await turnsOfTheLoop(3)
    expect(closes).toBe(1)
    const { promise: told, resolve } = Promise.withResolvers<undefined>()
    side.onClose(() => resolve(undefined))
    await told
    client.destroy()
  })

  test('a client that breaks off ends a pending read with null and closes the side', async () => {
    const { side, client } = await pair(transport)
    client.write('x')
    await side.read()
    const pending = side.read()
    const closed = new Promise<void>((resolve) => side.onClose(resolve))
    if (transport === 'tcp' || transport === 'plain events') client.resetAndDestroy()
    else client.destroy()
    expect(await pending).toBeNull()
    side.destroy()
    await closed
  })

  describe('handed on to node:http', () => {
    interface Seen {
      readonly url: string
      readonly body: string
    }

    /** A real server; sides come to it after their first read was put back. */
    async function serving(reads: 1 | 2 = 1): Promise<{ connect: () => net.Socket; seen: Seen[] }> {
      const seen: Seen[] = []
      const server = http.createServer((request, response) => {
        const hash = crypto.createHash('sha256')
        let length = 0
        request.on('data', (chunk: Buffer) => {
          hash.update(chunk)
          length += chunk.length
        })
        request.on('end', () => {
          seen.push({ url: request.url ?? '', body: hash.digest('hex') })
          response.end(`${request.url} ${length}\n`)
        })
      })
      const connect = await accepting(transport, (side) => {
        void (async () => {
          const pieces: Buffer[] = []
          while (pieces.length < reads) {
            const bytes = await side.read()
            if (bytes === null) {
              side.destroy()
              return
            }
            pieces.push(bytes)
          }
          for (const piece of pieces.reverse()) side.unread(piece)
          server.emit('connection', side.toStream())
        })()
      })
      closers.push(() => server.closeAllConnections())
      return { connect, seen }
    }

    /** Reads whole answers until so many bodies came. */
    function bodies(client: net.Socket, count: number): Promise<string[]> {
      return new Promise((resolve, reject) => {
        let text = ''
        client.on('data', (chunk: Buffer) => {
          text += chunk.toString('latin1')
          const found = [...text.matchAll(/\r\n\r\n(\/[^\n]*)\n/g)].map((match) => match[1]!)
          if (found.length >= count) resolve(found)
        })
        client.on('close', () => reject(new Error(`closed after: ${text}`)))
      })
    }

    const sha = (bytes: Buffer | string): string => crypto.createHash('sha256').update(bytes).digest('hex')

    test('a request that was read before, then kept-alive ones', async () => {
      const { connect, seen } = await serving()
      const client = connect()
      for (const url of ['/one', '/two', '/three']) {
        client.write(`GET ${url} HTTP/1.1\r\nHost: x\r\n\r\n`)
        expect(await bodies(client, 1)).toEqual([`${url} 0`])
        client.removeAllListeners('data')
      }
      expect(seen.map(({ url }) => url)).toEqual(['/one', '/two', '/three'])
    })

    test('pipelined requests in the first read and after it', async () => {
      const { connect } = await serving()
      const client = connect()
      const answers = bodies(client, 6)
      client.write(['/a', '/b', '/c'].map((url) => `GET ${url} HTTP/1.1\r\nHost: x\r\n\r\n`).join(''))
      await once(client, 'data')
      client.write(['/d', '/e', '/f'].map((url) => `GET ${url} HTTP/1.1\r\nHost: x\r\n\r\n`).join(''))
      expect(await answers).toEqual(['/a 0', '/b 0', '/c 0', '/d 0', '/e 0', '/f 0'])
    })

    test('a head in two reads', async () => {
      const { connect } = await serving(2)
      const client = connect()
      const answers = bodies(client, 1)
      client.write('GET /halv')
      if (transport === 'tls') await once(client, 'secureConnect')
      await turnsOfTheLoop(50)
      client.write('es HTTP/1.1\r\nHost: x\r\n\r\n')
      expect(await answers).toEqual(['/halves 0'])
    })

    test('a body that came with the head, whole and in part, then big ones', async () => {
      const { connect, seen } = await serving()
      const client = connect()
      const big = crypto.randomBytes(9 * 1024 * 1024 + 13)
      const answers = bodies(client, 4)
      client.write('POST /whole HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello')
      client.write(`POST /part HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\nhello`)
      await once(client, 'data')
      client.write(' world')
      client.write(`POST /big HTTP/1.1\r\nHost: x\r\nContent-Length: ${big.length}\r\n\r\n`)
      client.write(big)
      client.write('GET /after HTTP/1.1\r\nHost: x\r\n\r\n')
      expect(await answers).toEqual(['/whole 5', '/part 11', `/big ${big.length}`, '/after 0'])
      expect(seen.map(({ body }) => body)).toEqual([sha('hello'), sha('hello world'), sha(big), sha('')])
    })

    test('a big body whose beginning was read with the head', async () => {
      const { connect, seen } = await serving()
      const client = connect()
      const big = crypto.randomBytes(3 * 1024 * 1024)
      const answers = bodies(client, 1)
      client.write(
        Buffer.concat([Buffer.from(`POST /big HTTP/1.1\r\nHost: x\r\nContent-Length: ${big.length}\r\n\r\n`), big]),
      )
      expect(await answers).toEqual([`/big ${big.length}`])
      expect(seen).toEqual([{ url: '/big', body: sha(big) }])
    })

    test('chunked bodies and Connection: close', async () => {
      const { connect, seen } = await serving()
      const client = connect()
      const answers = bodies(client, 1)
      client.write(
        'POST /chunked HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n',
      )
      await turnsOfTheLoop(20)
      client.write('6\r\n world\r\n0\r\n\r\n')
      expect(await answers).toEqual(['/chunked 11'])
      expect(seen).toEqual([{ url: '/chunked', body: sha('hello world') }])
      await once(client, 'end')
    })

    test('many connections at once do not mix', async () => {
      const { connect } = await serving()
      await Promise.all(
        Array.from({ length: 30 }, async (_, index) => {
          const client = connect()
          const answers = bodies(client, 2)
          const body = crypto.randomBytes(100_000 + index)
          client.write(`POST /n${index} HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n`)
          client.write(body)
          client.write(`GET /m${index} HTTP/1.1\r\nHost: x\r\n\r\n`)
          expect(await answers).toEqual([`/n${index} ${body.length}`, `/m${index} 0`])
        }),
      )
    })

    test('a request with the end of the stream right behind it is answered', async () => {
      const { connect } = await serving()
      const client = connect()
      const answers = bodies(client, 1)
      client.end('GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
      expect(await answers).toEqual(['/last 0'])
    })

    test('a client that breaks off is a request that breaks off, and no more', async () => {
      const { promise: aborted, resolve } = Promise.withResolvers<undefined>()
      const server = http.createServer((request) => {
        request.on('error', () => undefined)
        request.on('close', () => resolve(undefined))
        request.resume()
      })
      const connect = await accepting(transport, (side) => {
        void side.read().then((bytes) => {
          side.unread(bytes ?? Buffer.alloc(0))
          server.emit('connection', side.toStream())
        })
      })
      const client = connect()
      client.write('POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf')
      await once(server, 'request')
      client.destroy()
      await aborted
    })

    test('an upgrade leaves node:http and gives the bytes to whoever took the socket', async () => {
      const server = http.createServer()
      server.on('upgrade', (_request, socket, head) => {
        socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n')
        socket.write(head)
        socket.pipe(socket)
      })
      const connect = await accepting(transport, (side) => {
        void side.read().then((bytes) => {
          side.unread(bytes ?? Buffer.alloc(0))
          server.emit('connection', side.toStream())
        })
      })
      const client = connect()
      const sent = crypto.randomBytes(2 * 1024 * 1024)
      client.write('GET /up HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nhead')
      await once(client, 'data')
      const got: Buffer[] = []
      client.on('data', (chunk: Buffer) => got.push(chunk))
      client.end(sent)
      await once(client, 'end')
      const echoed = Buffer.concat(got)
      expect(sha(echoed.subarray(-sent.length))).toBe(sha(sent))
    })

    test('a response that the client does not read holds node:http up, and then comes whole', async () => {
      const big = crypto.randomBytes(24 * 1024 * 1024)
      const server = http.createServer((_request, response) => response.end(big))
      const connect = await accepting(transport, (side) => {
        void side.read().then((bytes) => {
          side.unread(bytes ?? Buffer.alloc(0))
          server.emit('connection', side.toStream())
        })
      })
      const client = connect()
      client.write('GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
      await once(server, 'request')
      await turnsOfTheLoop(100)
      const answer = await readBytes(client)
      expect(sha(answer.subarray(answer.indexOf('\r\n\r\n') + 4))).toBe(sha(big))
    })
  })
})
