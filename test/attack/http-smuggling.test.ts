/**
 * Requests that two readers could read differently: the forwarder refuses them or passes on exactly what it decided on.
 * Every case hides a request for `/smuggled`; no origin may ever see it as one.
 */
import http from 'node:http'
import net from 'node:net'
import { once } from 'node:events'
import fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { GOOD, Harness } from '../proxy/dialects/forward-harness.ts'

let harness: Harness
let origin: http.Server
/** What a second, independent reader makes of the bytes that reached the origin. */
let seen: string[] = []
let raw = ''
let malformedAtOrigin = 0

beforeEach(async () => {
  seen = []
  raw = ''
  malformedAtOrigin = 0
  origin = http.createServer({ maxHeaderSize: 64 * 1024 }, (req, res) => {
    let body = ''
    req.on('data', (chunk: Buffer) => (body += chunk.toString('latin1')))
    req.on('end', () => {
      seen.push(`${req.method ?? ''} ${req.url ?? ''} host=${req.headers.host ?? ''} body=${body}`)
      res.end('ok')
    })
  })
  origin.maxHeadersCount = 0
  origin.on('clientError', (_error, socket) => {
    malformedAtOrigin++
    socket.destroy()
  })
  origin.on('connection', (socket) => socket.on('data', (chunk: Buffer) => (raw += chunk.toString('latin1'))))
  origin.listen(0, '127.0.0.1')
  await once(origin, 'listening')
  // Bytes that are no whole request would wait for the rest; here there is none.
  harness = new Harness({ headTimeoutMs: 200, idleTimeoutMs: 200, keepAliveTimeoutMs: 100 })
  harness.ports.set('a.example', (origin.address() as net.AddressInfo).port)
  await harness.start()
})
afterEach(async () => {
  await harness.stop()
  origin.close()
  origin.closeAllConnections()
  await once(origin, 'close')
  expect(harness.faults).toEqual([])
})

const SMUGGLED = `GET http://a.example/smuggled HTTP/1.1\r\nHost: a\r\n${GOOD}\r\n`
const ORIGIN_FORM = 'GET /smuggled HTTP/1.1\r\nHost: a.example\r\n\r\n'
const LAST = `GET http://a.example/last HTTP/1.1\r\nHost: a\r\n${GOOD}Connection: close\r\n\r\n`
const post = (fields: string, body: string): string =>
  `POST http://a.example/ HTTP/1.1\r\nHost: a\r\n${GOOD}${fields}\r\n${body}`

/** Sends the bytes; resolves with everything that came back once the gateway has closed the connection and is done with it. */
async function send(bytes: string): Promise<string> {
  const client = await harness.connect()
  client.send(bytes)
  const received = await client.rest()
  client.destroy()
  await harness.until(() => harness.connections === 0 && harness.upstreams.size === 0)
  return received
}

describe('a request hidden in', () => {
  test.each([
    [
      'the body behind a length and chunks',
      post('Content-Length: 4\r\nTransfer-Encoding: chunked\r\n', `0\r\n\r\n${SMUGGLED}`),
    ],
    [
      'the body behind chunks and a length',
      post('Transfer-Encoding: chunked\r\nContent-Length: 4\r\n', `0\r\n\r\n${SMUGGLED}`),
    ],
    [
      'the body behind two lengths',
      post(`Content-Length: 0\r\nContent-Length: ${String(ORIGIN_FORM.length)}\r\n`, ORIGIN_FORM),
    ],
    ['the body behind a list of lengths', post('Content-Length: 0, 44\r\n', ORIGIN_FORM)],
    ['the body behind a length with a plus', post('Content-Length: +0\r\n', ORIGIN_FORM)],
    ['the body behind a length with a blank inside', post('Content-Length: 0 44\r\n', ORIGIN_FORM)],
    ['the body behind a length past 2^64', post('Content-Length: 18446744073709551616\r\n', ORIGIN_FORM)],
    ['the body behind an unknown encoding', post('Transfer-Encoding: xchunked\r\n', `0\r\n\r\n${ORIGIN_FORM}`)],
    ['the body behind an encoding in quotes', post('Transfer-Encoding: "chunked"\r\n', `0\r\n\r\n${ORIGIN_FORM}`)],
    [
      'the body behind chunked and identity',
      post('Transfer-Encoding: chunked, identity\r\n', `0\r\n\r\n${ORIGIN_FORM}`),
    ],
    [
      'the body behind two encodings',
      post('Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n', `0\r\n\r\n${ORIGIN_FORM}`),
    ],
    ['the body behind a folded encoding', post('Transfer-Encoding:\r\n chunked\r\n', `0\r\n\r\n${ORIGIN_FORM}`)],
    [
      'the body behind an encoding with a vertical tab',
      post('Transfer-Encoding: \x0bchunked\r\n', `0\r\n\r\n${ORIGIN_FORM}`),
    ],
    [
      'the body behind an encoding with a blank before its colon',
      post('Transfer-Encoding : chunked\r\n', `0\r\n\r\n${ORIGIN_FORM}`),
    ],
    ['a chunk whose size is no number', post('Transfer-Encoding: chunked\r\n', `zz\r\nhello\r\n0\r\n\r\n${SMUGGLED}`)],
    ['a chunk whose size has a sign', post('Transfer-Encoding: chunked\r\n', `-1\r\n\r\n0\r\n\r\n${SMUGGLED}`)],
    ['a chunk whose size overflows', post('Transfer-Encoding: chunked\r\n', `10000000000000000\r\n${ORIGIN_FORM}`)],
    ['a chunk whose size has 0x', post('Transfer-Encoding: chunked\r\n', `0x0\r\n\r\n${SMUGGLED}`)],
    ['a chunk that ends in a bare line feed', post('Transfer-Encoding: chunked\r\n', `0\n\n${SMUGGLED}`)],
    ['a chunk extension with a line feed', post('Transfer-Encoding: chunked\r\n', `2;a\nxx\r\n0\r\n\r\n${SMUGGLED}`)],
    ['a chunk without its end of line', post('Transfer-Encoding: chunked\r\n', `2\r\nok0\r\n\r\n${SMUGGLED}`)],
    [
      'a header by a bare line feed',
      `GET http://a.example/ HTTP/1.1\r\nHost: a\r\n${GOOD}X: 1\n\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n`,
    ],
    [
      'a header by a bare carriage return',
      `GET http://a.example/ HTTP/1.1\r\nHost: a\r\n${GOOD}X: 1\r\rGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n`,
    ],
    ['the target by a line feed', `GET http://a.example/\n/smuggled HTTP/1.1\r\nHost: a\r\n${GOOD}\r\n`],
    ['the target by a space', `GET http://a.example/ /smuggled HTTP/1.1\r\nHost: a\r\n${GOOD}\r\n`],
    ['an old-style request', 'GET http://a.example/smuggled\r\n\r\n'],
    [
      'chunks of HTTP/1.0',
      `POST http://a.example/ HTTP/1.0\r\n${GOOD}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n${ORIGIN_FORM}`,
    ],
    ['what follows a refusal', `GET http://denied.example/ HTTP/1.1\r\nHost: a\r\n${GOOD}\r\n${SMUGGLED}`],
    [
      'the body of a refused request',
      `POST http://denied.example/ HTTP/1.1\r\nHost: a\r\n${GOOD}Content-Length: 5\r\n\r\nhello${SMUGGLED}`,
    ],
    ['what follows a challenge', `GET http://a.example/ HTTP/1.1\r\nHost: a\r\n\r\n${SMUGGLED}`],
    [
      'what follows `Connection: close`',
      `GET http://a.example/ HTTP/1.1\r\nHost: a\r\n${GOOD}Connection: close\r\n\r\n${SMUGGLED}`,
    ],
    [
      'what follows a request to switch protocols',
      `GET http://a.example/ HTTP/1.1\r\nHost: a\r\n${GOOD}Connection: upgrade, close\r\nUpgrade: h2c\r\n\r\n${SMUGGLED}`,
    ],
    [
      'a CONNECT over a connection in use',
      `GET http://a.example/ HTTP/1.1\r\nHost: a\r\n${GOOD}\r\nCONNECT a.example:80 HTTP/1.1\r\nHost: a\r\n${GOOD}\r\n${ORIGIN_FORM}`,
    ],
  ])('%s reaches no origin', async (_name, bytes) => {
    await send(bytes)
    expect(seen.join('\n')).not.toMatch(/^[A-Z]+ \/smuggled/m)
    expect(malformedAtOrigin).toBe(0)
  })

  test('a header list so long that a length at its end could be overlooked is forwarded with that length', async () => {
    const many = 'a:\r\n'.repeat(5_000)
    const received = await send(
      post(`${many}Content-Length: ${String(ORIGIN_FORM.length)}\r\nConnection: close\r\n`, ORIGIN_FORM),
    )
    expect(received).toContain(' 200 ')
    expect(seen).toEqual([`POST / host=a.example body=${ORIGIN_FORM}`])
  })

  test.each(['content-length', 'transfer-encoding', 'host', 'content-length, transfer-encoding, host, connection'])(
    'a body stays a body when Connection names %s',
    async (named) => {
      await send(post(`Connection: close, ${named}\r\nContent-Length: ${String(ORIGIN_FORM.length)}\r\n`, ORIGIN_FORM))
      const chunked = `${ORIGIN_FORM.length.toString(16)}\r\n${ORIGIN_FORM}\r\n0\r\n\r\n`
      await send(post(`Connection: close, ${named}\r\nTransfer-Encoding: chunked\r\n`, chunked))
      expect(seen).toEqual(Array(2).fill(`POST / host=a.example body=${ORIGIN_FORM}`))
    },
  )

  test('a body of GET, HEAD, DELETE and OPTIONS stays a body', async () => {
    for (const method of ['GET', 'HEAD', 'DELETE', 'OPTIONS']) {
      const fields = `Content-Length: ${String(ORIGIN_FORM.length)}\r\nConnection: close\r\n`
      await send(post(fields, ORIGIN_FORM).replace('POST', method))
    }
    expect(seen.map((line) => line.split(' ')[1])).toEqual(['/', '/', '/', '/'])
  })

  test('the trailers of a body never become a header or a request', async () => {
    const trailers = 'Content-Length: 99\r\nHost: b\r\nTransfer-Encoding: chunked\r\nX: 1\r\n\r\n'
    await send(post('Connection: close\r\nTransfer-Encoding: chunked\r\n', `2\r\nok\r\n0\r\n${trailers}${SMUGGLED}`))
    await send(
      post('Connection: close\r\nTransfer-Encoding: chunked\r\n', `2\r\nok\r\n0\r\nHost: b\r\nX: 1\r\n\r\n${SMUGGLED}`),
    )
    expect(seen.join()).not.toContain('/smuggled')
    expect(raw).not.toMatch(/content-length: 99|host: b\r/i)
  })
})

test('credentials for the gateway reach no origin, in whatever case or place', async () => {
  const secrets = [
    'Proxy-Authorization: Bearer good',
    'PROXY-AUTHENTICATE: s3cr3t',
    'proxy-connection: s3cr3t',
    'Proxy-X: s3cr3t',
  ]
  await send(
    `POST http://a.example/ HTTP/1.1\r\nHost: a\r\n${secrets.join('\r\n')}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nProxy-Authorization: Bearer good\r\n\r\n`,
  )
  expect(seen).toHaveLength(1)
  expect(raw).not.toMatch(/Bearer good|s3cr3t/)
})

test('whatever bytes come, the origin reads only requests that were decided on', async () => {
  const pieces = [
    'GET ',
    'POST ',
    'http://a.example',
    '/smuggled',
    ' HTTP/1.1',
    '\r\n',
    '\n',
    '\r',
    'Content-Length: 5\r\n',
    'Content-Length: 0\r\n',
    'Transfer-Encoding: chunked\r\n',
    '0\r\n\r\n',
    '5\r\n',
    ' ',
    '\t',
    ':',
    ',',
    '\0',
    '\xff',
    GOOD,
    'Connection: close\r\n',
    'Connection: content-length\r\n',
    'Host: b\r\n',
    'hello',
  ]
  const base =
    post('Content-Length: 5\r\n', 'hello') + post('Transfer-Encoding: chunked\r\n', '5\r\nhello\r\n0\r\n\r\n')
  const edit = fc.record({ at: fc.nat(base.length), remove: fc.nat(4), insert: fc.constantFrom(...pieces) })
  await fc.assert(
    fc.asyncProperty(fc.array(edit, { minLength: 1, maxLength: 4 }), async (edits) => {
      seen = []
      malformedAtOrigin = 0
      harness.decisions.length = 0
      const bytes = edits.reduce(
        (text, { at, remove, insert }) => text.slice(0, at) + insert + text.slice(at + remove),
        base,
      )
      await send(bytes + LAST)
      const allowed = harness.decisions.filter(({ outcome }) => outcome.ok).length
      expect(seen.length).toBeLessThanOrEqual(allowed)
      expect(malformedAtOrigin).toBe(0)
      for (const line of seen) expect(line).toContain('host=a.example ')
    }),
    { numRuns: 150 },
  )
}, 60_000)
