/** Plain HTTP through the forwarder: what reaches the origin, what comes back, and that each request is decided on its own. */
import net from 'node:net'
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
  // Nothing is kept open, nothing is counted twice.
  expect(harness.connections).toBe(0)
  expect(harness.released).toBe(harness.admitted)
})

async function origin(
  script: (socket: net.Socket, connection: OriginConnection) => void,
  name = 'a.example',
): Promise<RawOrigin> {
  const made = new RawOrigin(script)
  origins.push(made)
  harness.ports.set(name, await made.start())
  return made
}
const request = (line: string, fields = ''): string => `${line} HTTP/1.1\r\nHost: whatever\r\n${GOOD}${fields}\r\n`
const get = (path = '/', fields = ''): string => request(`GET http://a.example${path}`, fields)

describe('a request', () => {
  test('reaches the origin in origin-form with the Host of its target, without what is not for it', async () => {
    const seen = await origin(replyWith(OK))
    const client = await harness.connect()
    client.send(
      get(
        '/x?q=1',
        'Proxy-Connection: keep-alive\r\nConnection: close, X-Secret\r\nX-Secret: 1\r\nProxy: http://evil/\r\nTE: trailers\r\nX-Kept: yes\r\n',
      ),
    )
    const answer = await client.answer()
    expect(answer).toMatchObject({ status: '200', body: 'ok' })
    expect(answer.all('via')).toEqual(['1.1 sallyport'])
    expect(seen.got).toEqual([
      'GET /x?q=1 HTTP/1.1\r\nHost: a.example\r\nX-Kept: yes\r\nVia: 1.1 sallyport\r\nConnection: keep-alive\r\n\r\n',
    ])
    expect(await client.rest()).toBe('')
    expect(harness.decisions).toMatchObject([
      { request: { target: 'a.example:80', dialect: 'http' }, outcome: { ok: true }, dialled: '127.0.0.1' },
    ])
    expect(harness.closes).toMatchObject([
      { result: { closeReason: 'upstream_closed', bytesIn: OK.length, bytesOut: seen.got[0]?.length } },
    ])
    client.destroy()
  })

  test('of each ordinary method is passed on with its body', async () => {
    const seen = await origin(replyWith(OK))
    const client = await harness.connect()
    for (const method of ['POST', 'PUT', 'PATCH', 'DELETE', 'PROPFIND', 'GET']) {
      client.send(request(`${method} http://a.example/m`, 'Content-Length: 5\r\n') + 'hello')
      expect(await client.answer()).toMatchObject({ status: '200' })
      await seen.until(() => seen.got.join('').endsWith('hello'))
    }
    expect(seen.got.join('')).toMatch(
      /^(?:[A-Z]+ \/m HTTP\/1\.1\r\nHost: a\.example\r\nContent-Length: 5\r\nVia: 1\.1 sallyport\r\nConnection: keep-alive\r\n\r\nhello){6}$/,
    )
    client.destroy()
  })

  test('with chunks and trailers arrives in chunks with the trailers that may pass', async () => {
    const seen = await origin((socket, connection) => {
      void connection.until((got) => got.endsWith('\r\n\r\n') && got.includes('0\r\n')).then(() => socket.write(OK))
    })
    const client = await harness.connect()
    client.send(request('POST http://a.example/', 'Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n'))
    client.send('5;ext=1\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 11\r\nAuthorization: x\r\nX-Deny-Reason: x\r\n\r\n')
    expect(await client.answer()).toMatchObject({ status: '200' })
    expect(seen.got[0]).toContain('Transfer-Encoding: chunked')
    expect(seen.got[0]).toMatch(/\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 11\r\n\r\n$/)
    client.destroy()
  })

  test('that waits for 100 Continue gets it from the origin, and only once it was let out', async () => {
    const seen = await origin((socket, connection) => {
      void connection
        .until((got) => got.includes('\r\n\r\n'))
        .then(() => socket.write('HTTP/1.1 100 Continue\r\n\r\n'))
        .then(() => connection.until((got) => got.endsWith('hello')))
        .then(() => socket.write(OK))
    })
    const client = await harness.connect()
    client.send(request('PUT http://a.example/', 'Content-Length: 5\r\nExpect: 100-continue\r\n'))
    expect(await client.answer()).toMatchObject({ status: '100' })
    expect(seen.got[0]).toContain('Expect: 100-continue')
    client.send('hello')
    expect(await client.answer()).toMatchObject({ status: '200' })
    client.destroy()
  })

  test('that waits for 100 Continue is refused without one', async () => {
    const client = await harness.connect()
    client.send(request('PUT http://denied.example/', 'Content-Length: 5\r\nExpect: 100-continue\r\n'))
    expect(await client.answer()).toMatchObject({ status: '403' })
    expect(await client.rest()).toBe('')
  })

  test('that waits for 100 Continue may get its answer at once', async () => {
    await origin(replyWith('HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n', 'end'))
    const client = await harness.connect()
    client.send(request('PUT http://a.example/', 'Content-Length: 5\r\nExpect: 100-continue\r\n'))
    expect(await client.answer()).toMatchObject({ status: '413' })
    client.destroy()
    await harness.until(() => harness.closes.length === 1)
  })

  test('of OPTIONS without a path asks the origin for *', async () => {
    const seen = await origin(replyWith(OK))
    const client = await harness.connect()
    client.send(request('OPTIONS http://a.example', 'Max-Forwards: 2\r\n'))
    expect(await client.answer()).toMatchObject({ status: '200' })
    expect(seen.got[0]).toMatch(/^OPTIONS \* HTTP\/1\.1\r\nHost: a\.example\r\nMax-Forwards: 1\r\n/)
    client.destroy()
  })

  test('that asks for another protocol is served in this one', async () => {
    const seen = await origin(replyWith(OK))
    const client = await harness.connect()
    client.send(
      get(
        '/',
        'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: websocket, h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n',
      ),
    )
    expect(await client.answer()).toMatchObject({ status: '200' })
    expect(seen.got[0]?.toLowerCase()).not.toMatch(/upgrade|http2/)
    client.destroy()
  })
})

describe('an answer', () => {
  test.each([
    ['with a length', OK, '200', 'ok'],
    ['in chunks', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n', '200', 'ok'],
    ['without a body', 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n', '200', ''],
    ['of 204', 'HTTP/1.1 204 No Content\r\n\r\n', '204', ''],
    ['of 204 with a length', 'HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n', '204', ''],
    [
      'of 304 with the length of what it stands for',
      'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 999\r\n\r\n',
      '304',
      '',
    ],
    ['with an odd status', 'HTTP/1.1 299 Odd\r\nContent-Length: 0\r\n\r\n', '299', ''],
  ])('%s comes through, and the connection is used again', async (_name, bytes, status, body) => {
    const seen = await origin(replyWith(bytes))
    const client = await harness.connect()
    for (let round = 0; round < 3; round++) {
      client.send(get(`/${String(round)}`))
      const answer = await client.answer()
      expect(answer).toMatchObject({ status, body })
      if (status === '204') expect(answer.all('content-length')).toEqual([])
      if (status === '304') expect(answer.all('content-length')).toEqual(['999'])
      expect(answer.all('transfer-encoding')).toEqual(bytes.includes('chunked') ? ['chunked'] : [])
    }
    expect(seen.got).toHaveLength(1)
    expect(harness.dials).toBe(1)
    expect(harness.decisions).toHaveLength(3)
    expect(client.pending).toBe('')
    client.destroy()
  })

  test('that ends with the connection is framed for a client of HTTP/1.1', async () => {
    await origin(replyWith('HTTP/1.0 200 OK\r\n\r\nuntil the end', 'end'))
    const client = await harness.connect()
    client.send(get())
    const answer = await client.answer()
    expect(answer).toMatchObject({ status: '200', body: 'until the end' })
    expect(answer.all('transfer-encoding')).toEqual(['chunked'])
    expect(answer.all('via')).toEqual(['1.0 sallyport'])
    client.destroy()
  })

  test('in chunks is unwrapped for a client of HTTP/1.0', async () => {
    await origin(
      replyWith(
        'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 2\r\n\r\n',
      ),
    )
    const client = await harness.connect()
    client.send(`GET http://a.example/ HTTP/1.0\r\n${GOOD}\r\n`)
    const answer = await client.answer()
    expect(answer.body).toBe('ok')
    expect(answer.all('connection')).toEqual(['close'])
  })

  test('of HEAD has the length and no body', async () => {
    await origin(replyWith('HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n'))
    const client = await harness.connect()
    client.send(request('HEAD http://a.example/'))
    const answer = await client.answer({ head: true })
    expect(answer.all('content-length')).toEqual(['5000'])
    client.send(request('HEAD http://a.example/'))
    await client.answer({ head: true })
    expect(client.pending).toBe('')
    client.destroy()
  })

  test('keeps its trailers, but for those that must not stand there', async () => {
    await origin(
      replyWith(
        'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 2\r\nX-Deny-Reason: host_denied\r\nSet-Cookie: a\r\n\r\n',
      ),
    )
    const client = await harness.connect()
    client.send(get())
    expect(await client.take(/0\r\n(?:[^\r\n]+\r\n)*\r\n$/)).toMatch(/2\r\nok\r\n0\r\nX-Sum: 2\r\n\r\n$/)
    client.destroy()
  })

  test('is preceded by the 1xx answers of the origin', async () => {
    await origin(
      replyWith(
        `HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nX-Deny-Reason: x\r\nConnection: x-gone\r\nX-Gone: 1\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n${OK}`,
      ),
    )
    const client = await harness.connect()
    client.send(get())
    expect((await client.answer()).head).toBe('HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n')
    expect(await client.answer()).toMatchObject({ status: '102' })
    expect(await client.answer()).toMatchObject({ status: '200', body: 'ok' })
    client.destroy()
  })

  test('to HTTP/1.0 is not preceded by 1xx, nor is one that nobody waits for', async () => {
    await origin(replyWith(`HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n${OK}`))
    const old = await harness.connect()
    old.send(`GET http://a.example/ HTTP/1.0\r\n${GOOD}\r\n`)
    expect(await old.answer()).toMatchObject({ status: '200' })
    const client = await harness.connect()
    client.send(get())
    expect(await client.answer()).toMatchObject({ status: '103' })
    expect(await client.answer()).toMatchObject({ status: '200' })
    client.destroy()
  })

  test('is sent as it comes: its head before its body, each part at once', async () => {
    let more: net.Socket | undefined
    await origin((socket) => {
      more = socket
      replyWith('HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n')(socket)
    })
    const client = await harness.connect()
    client.send(get())
    await client.take(/^HTTP\/1\.1 200 OK\r\n[^]*?\r\n\r\n/)
    for (const event of ['data: 1\n\n', 'data: 2\n\n']) {
      more?.write(event)
      expect(await client.take(/data: .\n\n\r\n/)).toContain(event)
    }
    more?.end()
    await client.take(/0\r\n\r\n$/)
    client.destroy()
  })

  test('can begin before the request has ended, and the rest of the request still arrives', async () => {
    const seen = await origin((socket, connection) => {
      void connection.until((got) => got.includes('\r\n\r\n')).then(() => socket.write(OK))
    })
    const client = await harness.connect()
    client.send(request('POST http://a.example/', 'Content-Length: 10\r\n') + 'hello')
    expect(await client.answer()).toMatchObject({ status: '200' })
    client.send('world')
    await seen.until(() => (seen.got[0] ?? '').endsWith('helloworld'))
    client.send(get('/next'))
    expect(harness.closes.length).toBeLessThan(2)
    await seen.until(() => (seen.got[0] ?? '').includes('GET /next'))
    client.destroy()
    await harness.until(() => harness.closes.length === 2)
  })

  test('can come from an origin that then closes without reading the request', async () => {
    await origin(replyWith('HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig', 'end'))
    const client = await harness.connect()
    client.send(request('POST http://a.example/', 'Content-Length: 3000000\r\n') + 'x'.repeat(1_000_000))
    expect(await client.answer()).toMatchObject({ status: '413', body: 'big' })
    client.send('x'.repeat(2_000_000) + request('GET http://denied.example/'))
    expect(await client.answer()).toMatchObject({ status: '403' })
    client.destroy()
  })
})

describe('each request of a connection', () => {
  test('is decided on its own', async () => {
    const seen = await origin(replyWith(OK))
    const client = await harness.connect()
    client.send(get('/first'))
    expect(await client.answer()).toMatchObject({ status: '200' })
    client.send(request('GET http://denied.example/second'))
    const answer = await client.answer()
    expect(answer).toMatchObject({ status: '403', phrase: 'Host Not Allowed' })
    expect(answer.all('x-deny-reason')).toEqual(['host_not_allowed'])
    expect(await client.rest()).toBe('')
    expect(seen.got.join('')).not.toContain('/second')
    expect(harness.decisions.map(({ outcome }) => outcome.ok)).toEqual([true, false])
  })

  test('needs its own credentials', async () => {
    const seen = await origin(replyWith(OK))
    const client = await harness.connect()
    client.send(get('/first'))
    await client.answer()
    client.send('GET http://a.example/second HTTP/1.1\r\nHost: a.example\r\n\r\n')
    const answer = await client.answer()
    expect(answer).toMatchObject({ status: '407' })
    expect(answer.all('proxy-authenticate')).toEqual(['Basic realm="sallyport"', 'Bearer'])
    expect(seen.got.join('')).not.toContain('/second')
    // The bare challenge leaves the connection open for the retry.
    client.send(get('/third'))
    expect(await client.answer()).toMatchObject({ status: '200' })
    client.destroy()
  })

  test('is answered in order when several are sent at once', async () => {
    const seen = await origin((socket, connection) => {
      let answered = 0
      void (async () => {
        for (;;) {
          await connection.until((got) => got.split('\r\n\r\n').length - 1 > answered)
          const path = /^GET (\S+)/m.exec(connection.got().split('\r\n\r\n')[answered] ?? '')?.[1] ?? ''
          answered++
          socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${String(path.length)}\r\n\r\n${path}`)
        }
      })()
    })
    const client = await harness.connect()
    client.send(Array.from({ length: 20 }, (_, index) => get(`/${String(index)}`)).join(''))
    for (let index = 0; index < 20; index++) expect(await client.answer()).toMatchObject({ body: `/${String(index)}` })
    expect(seen.got).toHaveLength(1)
    expect(harness.decisions).toHaveLength(20)
    client.destroy()
  })

  test('waits for the one before it: nothing is decided out of turn', async () => {
    let answerNow: () => void = () => undefined
    const seen = await origin((socket) => {
      answerNow = () => socket.write(OK)
    })
    const client = await harness.connect()
    client.send(get('/1') + get('/2'))
    await seen.until(() => (seen.got[0] ?? '').includes('GET /1'))
    expect(harness.decisions).toHaveLength(1)
    answerNow()
    expect(await client.answer()).toMatchObject({ status: '200' })
    await seen.until(() => (seen.got[0] ?? '').includes('GET /2'))
    answerNow()
    expect(await client.answer()).toMatchObject({ status: '200' })
    client.destroy()
  })

  test('behind a refused one is never read', async () => {
    const seen = await origin(replyWith(OK))
    const client = await harness.connect()
    client.send(request('GET http://denied.example/') + get('/smuggled'))
    expect(await client.answer()).toMatchObject({ status: '403' })
    expect(await client.rest()).toBe('')
    expect(seen.got).toEqual([])
    expect(harness.decisions).toHaveLength(1)
  })

  test('behind a challenge that it did not wait for is never read', async () => {
    const seen = await origin(replyWith(OK))
    const client = await harness.connect()
    client.send('GET http://a.example/ HTTP/1.1\r\nHost: a\r\n\r\n' + get('/smuggled'))
    expect(await client.answer()).toMatchObject({ status: '407' })
    expect(await client.rest()).toBe('')
    expect(seen.got).toEqual([])
  })

  test('goes over a new connection when the open one leads elsewhere', async () => {
    const one = await origin(replyWith(OK))
    const other = await origin(replyWith(OK), 'b.example')
    const client = await harness.connect()
    for (const host of ['a.example', 'b.example', 'a.example', 'a.example:81']) {
      client.send(request(`GET http://${host}/`))
      expect(await client.answer()).toMatchObject({ status: '200' })
    }
    expect([one.got.length, other.got.length, harness.dials]).toEqual([3, 1, 4])
    await harness.until(() => harness.upstreams.size === 1)
    client.destroy()
  })

  test('goes over a new connection when the address of the open one is no longer permitted', async () => {
    const seen = await origin(replyWith(OK))
    const client = await harness.connect()
    client.send(get('/1'))
    await client.answer()
    harness.address = '127.0.0.2'
    client.send(get('/2'))
    await client.answer()
    expect(seen.got).toHaveLength(2)
    client.destroy()
  })

  test('never goes over the connection of another client', async () => {
    const seen = await origin(replyWith(OK))
    const clients = [await harness.connect(), await harness.connect()]
    for (const client of clients) {
      client.send(get())
      await client.answer()
    }
    expect(seen.got).toHaveLength(2)
    for (const client of clients) client.destroy()
  })
})

describe('a connection', () => {
  test('that the client closes takes its connection to the origin along', async () => {
    const seen = await origin(replyWith(OK))
    const client = await harness.connect()
    client.send(get())
    await client.answer()
    client.destroy()
    await seen.until(() => seen.sockets[0]?.destroyed === true)
  })

  test('that the client closes while it waits ends the request at the origin', async () => {
    const seen = await origin(() => undefined)
    const client = await harness.connect()
    client.send(get())
    await seen.until(() => (seen.got[0] ?? '') !== '')
    client.destroy()
    await seen.until(() => seen.sockets[0]?.destroyed === true)
    await harness.until(() => harness.closes.length === 1)
    expect(harness.closes[0]?.result.closeReason).toBe('client_closed')
  })

  test('that the client breaks off in the middle of a body ends the request at the origin, not as a whole one', async () => {
    const seen = await origin(() => undefined)
    const client = await harness.connect()
    client.send(request('POST http://a.example/', 'Transfer-Encoding: chunked\r\n') + '5\r\nhello\r\n')
    await seen.until(() => (seen.got[0] ?? '').includes('hello'))
    client.destroy()
    await seen.until(() => seen.sockets[0]?.destroyed === true)
    expect(seen.got[0]).not.toContain('0\r\n\r\n')
    await harness.until(() => harness.closes.length === 1)
  })

  test.each([
    ['ends', (socket: net.Socket) => void socket.end()],
    ['resets', (socket: net.Socket) => void socket.resetAndDestroy()],
  ])('that the client %s while its request is decided dials nothing that stays open', async (_how, leave) => {
    const seen = await origin(replyWith(OK))
    const client = await harness.connect()
    harness.beforeAuthorize = async () => {
      leave(client.socket)
      await harness.until(() => harness.clientsLeft === 1)
    }
    client.send(get())
    await harness.until(() => harness.closes.length === 1)
    expect(harness.closes[0]?.result).toMatchObject({ closeReason: 'client_closed', bytesIn: 0, bytesOut: 0 })
    expect(seen.got.join('')).toBe('')
    await harness.until(() => harness.upstreams.size === 0 && harness.connections === 0)
  })

  test('that the client ends while its request is decided is told why it is refused', async () => {
    const client = await harness.connect()
    harness.beforeAuthorize = async () => {
      client.socket.end()
      await harness.until(() => harness.clientsLeft === 1)
    }
    client.send(get())
    expect(await client.answer()).toMatchObject({ status: '403' })
    expect(await client.rest()).toBe('')
    await harness.until(() => harness.connections === 0)
  })

  test('can be cut from outside, both ways, and never looks whole', async () => {
    const seen = await origin(replyWith('HTTP/1.1 200 OK\r\n\r\nbegun'))
    const client = await harness.connect()
    client.send(get())
    await client.take(/begun/)
    harness.exchanges[0]?.cut('token_revoked')
    expect(await client.rest()).not.toContain('0\r\n\r\n')
    await seen.until(() => seen.sockets[0]?.destroyed === true)
    expect(harness.closes).toMatchObject([{ result: { closeReason: 'token_revoked' } }])
    harness.exchanges[0]?.cut('policy_changed')
    expect(harness.closes).toHaveLength(1)
    expect(harness.ended).toEqual(harness.exchanges)
  })

  test('tells how many bytes flowed, while they do', async () => {
    let socket: net.Socket | undefined
    await origin((opened) => {
      socket = opened
      replyWith('HTTP/1.1 200 OK\r\n\r\n')(opened)
    })
    const client = await harness.connect()
    client.send(get())
    await client.take(/\r\n\r\n/)
    const [exchange] = harness.exchanges
    expect(harness.ended).toEqual([])
    const before = exchange?.bytesIn ?? 0
    const activeMs = exchange?.lastActivityMs ?? 0
    socket?.write('12345')
    await client.take(/12345/)
    expect(exchange?.bytesIn).toBe(before + 5)
    expect(exchange?.lastActivityMs).toBeGreaterThan(activeMs)
    client.destroy()
    await harness.until(() => harness.closes.length === 1)
  })

  test('is closed after its answer once the gateway drains, at once when it waits for none', async () => {
    let answerNow: () => void = () => undefined
    const seen = await origin((socket) => {
      answerNow = () => socket.write(OK)
    })
    const [busy, idle] = [await harness.connect(), await harness.connect()]
    busy.send(get())
    idle.send('GET http://a.example/ HTTP/1.1\r\nHost: a\r\n\r\n')
    await idle.answer()
    await seen.until(() => (seen.got[0] ?? '') !== '')
    harness.forwarder.drain()
    expect(await idle.rest()).toBe('')
    answerNow()
    const answer = await busy.answer()
    expect(answer).toMatchObject({ status: '200' })
    expect(answer.all('connection')).toEqual(['close'])
    expect(await busy.rest()).toBe('')
  })

  test('is broken off when the forwarder closes', async () => {
    const seen = await origin(() => undefined)
    const client = await harness.connect()
    client.send(get())
    await seen.until(() => (seen.got[0] ?? '') !== '')
    harness.forwarder.close()
    harness.forwarder.close()
    await client.rest()
    expect(harness.closes).toMatchObject([{ result: { closeReason: 'drain_deadline' } }])
  })
})
