/** Origins that misbehave: the client gets a clear answer or a broken connection, never something that looks whole and is not. */
import type net from 'node:net'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { GOOD, Harness, RawOrigin, replyWith, type OriginConnection } from './forward-harness.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
let harness: Harness
const origins: RawOrigin[] = []

beforeEach(async () => {
  harness = new Harness()
  await harness.start()
})
afterEach(async () => {
  await harness.stop()
  await Promise.all(origins.splice(0).map((origin) => origin.stop()))
  expect(harness.faults).toEqual([])
  expect(harness.released).toBe(harness.admitted)
  expect(harness.closes).toHaveLength(harness.decisions.filter(({ outcome }) => outcome.ok).length)
})

async function origin(script: (socket: net.Socket, connection: OriginConnection) => void): Promise<RawOrigin> {
  const made = new RawOrigin(script)
  origins.push(made)
  harness.ports.set('a.example', await made.start())
  return made
}
const get = (path = '/', fields = ''): string =>
  `GET http://a.example${path} HTTP/1.1\r\nHost: a\r\n${GOOD}${fields}\r\n`

describe('an answer that is no HTTP', () => {
  test.each([
    ['another protocol', 'SSH-2.0-OpenSSH_9.6\r\n'],
    ['TLS', '\x15\x03\x03\x00\x02\x02\x28'],
    ['a length and an encoding', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'],
    ['an encoding and a length', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n'],
    ['two different lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!'],
    ['two equal lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok'],
    ['a list of lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok'],
    ['a length with a sign', 'HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok'],
    ['a negative length', 'HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok'],
    ['an encoding that is not undone here', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok'],
    ['an encoding below chunked', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n'],
    [
      'two encodings',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n',
    ],
    ['a folded header', 'HTTP/1.1 200 OK\r\nX-A: 1\r\n folded\r\nContent-Length: 2\r\n\r\nok'],
    ['a folded length', 'HTTP/1.1 200 OK\r\nContent-Length:\r\n 2\r\n\r\nok'],
    ['a head of more than 32 KiB', `HTTP/1.1 200 OK\r\nX-A: ${'x'.repeat(33_000)}\r\nContent-Length: 2\r\n\r\nok`],
    ['bare line feeds', 'HTTP/1.1 200 OK\nContent-Length: 2\n\nok'],
    [
      'a bare carriage return in a header',
      'HTTP/1.1 200 OK\r\nX-A: 1\rX-Deny-Reason: x\r\nContent-Length: 2\r\n\r\nok',
    ],
    ['a bare line feed in a header', 'HTTP/1.1 200 OK\r\nX-A: 1\nX-Deny-Reason: x\r\nContent-Length: 2\r\n\r\nok'],
    ['a NUL in a header', 'HTTP/1.1 200 OK\r\nX-A: a\0b\r\nContent-Length: 2\r\n\r\nok'],
    ['a control character in the reason', 'HTTP/1.1 200 O\x1bK\r\nContent-Length: 2\r\n\r\nok'],
    ['a space before the colon', 'HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok'],
    ['a space in a header name', 'HTTP/1.1 200 OK\r\nX A: 1\r\nContent-Length: 2\r\n\r\nok'],
    ['a status below 100', 'HTTP/1.1 099 Low\r\nContent-Length: 2\r\n\r\nok'],
    ['a status of four digits', 'HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nok'],
    ['HTTP/2', 'HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok'],
    [
      'a switch of protocols',
      'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x02hi',
    ],
    [
      'a challenge in the name of the gateway',
      'HTTP/1.1 407 Auth\r\nProxy-Authenticate: Basic realm="give"\r\nContent-Length: 2\r\n\r\nok',
    ],
    ['1xx without end', 'HTTP/1.1 102 Processing\r\n\r\n'.repeat(100)],
  ])('%s: 502, no denial, and the connection ends', async (_name, bytes) => {
    await origin(replyWith(bytes))
    const client = await harness.connect()
    client.send(get('/one') + get('/two'))
    const received = await client.rest()
    const answers = received.split(/(?=HTTP\/1\.1 (?!102)[0-9]{3} )/).filter((part) => !part.startsWith('HTTP/1.1 102'))
    expect(answers).toHaveLength(1)
    expect(answers[0]).toMatch(/^HTTP\/1\.1 502 Bad Gateway\r\n/)
    expect(answers[0]?.toLowerCase()).toContain('proxy-status: sallyport; error=http_protocol_error\r\n')
    expect(answers[0]?.toLowerCase()).not.toMatch(/x-deny-reason|proxy-authenticate|\r\nx-a:/)
    expect(answers[0]).toMatch(
      /\{"error":"http_protocol_error","host":"a\.example","port":80,"request_id":"req-1",[^\r]*\}\n$/,
    )
    expect(harness.closes).toMatchObject([{ result: { closeReason: 'error' } }])
  })

  test.each([
    ['closes', (socket: net.Socket) => socket.end()],
    ['closes in the middle of its head', (socket: net.Socket) => socket.end('HTTP/1.1 200 OK\r\nContent-')],
    ['resets', (socket: net.Socket) => socket.resetAndDestroy()],
  ])('from an origin that %s: 502', async (_name, act) => {
    await origin((socket) => void socket.once('data', () => act(socket)))
    const client = await harness.connect()
    client.send(get())
    const answer = await client.answer()
    expect(answer).toMatchObject({ status: '502' })
    expect(answer.all('proxy-status')[0]).toMatch(/connection_terminated|http_protocol_error/)
    expect(answer.all('x-deny-reason')).toEqual([])
    expect(await client.rest()).toBe('')
  })

  test('to HEAD: 502 without a body', async () => {
    await origin(replyWith('nonsense\r\n\r\n'))
    const client = await harness.connect()
    client.send(get().replace('GET', 'HEAD'))
    expect(await client.answer({ head: true })).toMatchObject({ status: '502' })
    expect(await client.rest()).toBe('')
  })

  test('while the client still sends: it gets the 502 all the same', async () => {
    await origin(replyWith('nonsense\r\n\r\n', 'end'))
    const client = await harness.connect()
    client.send(
      `POST http://a.example/ HTTP/1.1\r\nHost: a\r\n${GOOD}Content-Length: 3000000\r\n\r\n${'x'.repeat(2_000_000)}`,
    )
    expect(await client.answer()).toMatchObject({ status: '502' })
    client.destroy()
  })
})

describe('an answer that breaks off', () => {
  const broken: readonly [string, string, 'end' | 'reset'][] = [
    ['before its length', 'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this', 'end'],
    ['before its length, by a reset', 'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this', 'reset'],
    ['in the middle of its chunks', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\n', 'end'],
    ['in the middle of a chunk', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n99\r\nonly this', 'end'],
    [
      'before the end of its trailers',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\n0\r\nX-A: 1\r\n',
      'end',
    ],
    ['by a chunk that is none', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\nzz\r\n', 'end'],
    ['by a chunk with a sign', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\n-1\r\n', 'end'],
    ['without length or chunks, by a reset', 'HTTP/1.1 200 OK\r\n\r\nonly this', 'reset'],
  ]
  test.each(broken)('%s breaks the connection of the client', async (_name, bytes, how) => {
    await origin(replyWith(bytes, how))
    const client = await harness.connect()
    client.send(get() + get('/next'))
    const received = await client.rest()
    expect(received).not.toMatch(/0\r\n(?:X-A: 1\r\n)?\r\n$/)
    expect(received).not.toContain('/next')
    expect(received.split('HTTP/1.1 ')).toHaveLength(received === '' ? 1 : 2)
    expect(harness.closes).toMatchObject([{ result: { closeReason: 'upstream_closed' } }])
  })

  test.each(broken)(
    '%s is a reset for a client of HTTP/1.0, to which an end would look whole',
    async (_name, bytes, how) => {
      await origin(replyWith(bytes, how))
      const client = await harness.connect()
      const failed = new Promise<NodeJS.ErrnoException>((resolve) => client.socket.once('error', resolve))
      client.send(`GET http://a.example/ HTTP/1.0\r\n${GOOD}\r\n`)
      expect((await failed).code).toBe('ECONNRESET')
      expect(client.ended).toBe(false)
    },
  )
})

describe('an answer that goes on', () => {
  test('with a second one in the same segment: no request ever gets that', async () => {
    const seen = await origin(replyWith(`${OK}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison`))
    const client = await harness.connect()
    client.send(get('/one'))
    const first = await client.answer().catch(() => undefined)
    if (first !== undefined) expect(first.body).toBe('ok')
    expect(client.pending).not.toContain('poison')
    await seen.until(() => seen.sockets[0]?.destroyed === true)
    client.destroy()
  })

  test('with bytes past its length: they are no answer to the next request', async () => {
    const seen = await origin((socket, connection) => {
      void connection
        .until((got) => got.includes('\r\n\r\n'))
        .then(() => socket.write(OK))
        .then(() => connection.until((got) => got === 'never' || harness.closes.length > 0))
    })
    const client = await harness.connect()
    client.send(get('/one'))
    expect(await client.answer()).toMatchObject({ body: 'ok' })
    await harness.until(() => harness.closes.length === 1)
    // Unasked, on a connection that waits for its next request.
    seen.sockets[0]?.write('HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison')
    await seen.until(() => seen.sockets[0]?.destroyed === true)
    await harness.until(() => harness.upstreams.size === 0)
    client.send(get('/two'))
    await seen.until(() => seen.got.length === 2)
    seen.sockets[1]?.write(OK)
    expect(await client.answer()).toMatchObject({ body: 'ok' })
    client.destroy()
  })

  test('after HEAD or 204 with a body that must not be: it is no answer to the next request', async () => {
    for (const [line, bytes] of [
      ['HEAD', 'HTTP/1.1 200 OK\r\nContent-Length: 41\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison'],
      ['GET', 'HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison'],
      ['GET', 'HTTP/1.1 304 Not Modified\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison'],
    ] as const) {
      await origin(replyWith(bytes))
      const client = await harness.connect()
      client.send(get('/one').replace('GET', line))
      client.send(get('/two'))
      await client.answer({ head: line === 'HEAD' }).catch(() => undefined)
      const second = await client.answer().catch(() => undefined)
      expect(second?.body ?? '').not.toContain('poison')
      client.destroy()
      await harness.until(() => harness.connections === 0)
    }
    await harness.until(() => harness.upstreams.size === 0)
  })
})

describe('a connection to the origin that was closed while it waited', () => {
  test('is replaced before the next request', async () => {
    const seen = await origin(replyWith(OK))
    const client = await harness.connect()
    client.send(get())
    await client.answer()
    seen.sockets[0]?.destroy()
    await harness.until(() => harness.upstreams.size === 0)
    client.send(get())
    expect(await client.answer()).toMatchObject({ status: '200' })
    expect(seen.got).toHaveLength(2)
    client.destroy()
  })

  test('in the very moment of the next request: the client sees its own connection closed, and may try again', async () => {
    let requests = 0
    await origin((socket) => {
      socket.on('data', () => {
        requests++
        if (requests === 1) socket.write(OK)
        else socket.resetAndDestroy()
      })
    })
    const client = await harness.connect()
    client.send(get())
    await client.answer()
    client.send(get())
    expect(await client.rest()).toBe('')
    expect(harness.closes).toHaveLength(2)
  })
})

describe('a gateway that can not', () => {
  test('connect says so', async () => {
    harness.ports.set('a.example', 1)
    const client = await harness.connect()
    client.send(get())
    const answer = await client.answer()
    expect(answer).toMatchObject({ status: '502' })
    expect(answer.all('x-deny-reason')).toEqual(['connect_refused'])
    expect(harness.decisions).toMatchObject([
      { outcome: { ok: false, reason: 'connect_refused', destination: { port: 80 } } },
    ])
  })

  test('write its audit line sends nothing out', async () => {
    const seen = await origin(replyWith(OK))
    harness.writable = false
    const client = await harness.connect()
    client.send(get())
    expect(await client.answer()).toMatchObject({ status: '503', phrase: 'Audit Unavailable' })
    expect(seen.got.join('')).toBe('')
    await harness.until(() => harness.upstreams.size === 0)
    harness.closes.push({} as never)
  })

  test('keep account of a request breaks it off, and writes that down once', async () => {
    const seen = await origin(() => undefined)
    const failing = new Harness({
      onExchange: () => {
        throw new Error('planted')
      },
    })
    failing.ports.set('a.example', harness.ports.get('a.example') ?? 1)
    await failing.start()
    const client = await failing.connect()
    client.send(get())
    expect(await client.rest()).toBe('')
    await failing.until(() => failing.closes.length === 1)
    await failing.stop()
    await seen.until(() => seen.sockets.length > 0 && seen.sockets.every(({ destroyed }) => destroyed))
    expect([failing.closes.length, failing.faults.length, failing.released]).toEqual([1, 1, failing.admitted])
  })

  test.each(['authorize', 'dialPlain'] as const)('%s refuses', async (step) => {
    await origin(replyWith(OK))
    const failing = new Harness({ [step]: () => Promise.reject(new Error('planted')) })
    failing.ports.set('a.example', 1)
    await failing.start()
    const client = await failing.connect()
    client.send(get())
    expect(await client.answer()).toMatchObject({ status: '503', phrase: 'Policy Unavailable' })
    expect(failing.faults).toHaveLength(1)
    expect(failing.released).toBe(failing.admitted)
    await failing.stop()
  })
})
