/** The client of a platform's API, against servers that answer well, badly, late and not at all. */
import { once } from 'node:events'
import http from 'node:http'
import net from 'node:net'
import { inspect } from 'node:util'
import { afterEach, describe, expect, test } from 'vitest'
import {
  createPlatformClient,
  type PlatformClient,
  type PlatformClientOptions,
  type PlatformRequest,
} from '../../../provider/backends/platform/platform-client.ts'
import { PlatformError } from '../../../provider/backends/platform/platform-error.ts'

const MARKER = 'marker-credential-5f0c2a9d71'
const SECRET = 'worker-bearer-77aa01f3c6e2'

type Answer = (request: http.IncomingMessage, response: http.ServerResponse) => void

interface Seen {
  readonly method: string
  readonly url: string
  readonly headers: http.IncomingHttpHeaders
  readonly body: string
  readonly socket: net.Socket
}

const closers: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

/** Gives the n-th request the n-th answer, and the last one to all that follow. */
async function platform(
  answers: readonly Answer[],
  options: Partial<PlatformClientOptions> = {},
): Promise<{ readonly client: PlatformClient; readonly seen: Seen[]; readonly origin: string }> {
  const seen: Seen[] = []
  const server = http.createServer((request, response) => {
    const pieces: Buffer[] = []
    request.on('data', (piece: Buffer) => pieces.push(piece))
    request.on('end', () => {
      const { method = '', url = '', headers, socket } = request
      seen.push({ method, url, headers, body: Buffer.concat(pieces).toString(), socket })
      answers[Math.min(seen.length, answers.length) - 1]?.(request, response)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const origin = `http://127.0.0.1:${(server.address() as net.AddressInfo).port}`
  const client = createPlatformClient({
    platform: 'Nimbus',
    baseUrl: origin,
    authorize: () => Promise.resolve({ authorization: `Bearer ${MARKER}` }),
    retry: { firstMs: 5, longestMs: 20 },
    ...options,
  })
  closers.push(async () => {
    client.close()
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  })
  return { client, seen, origin }
}

const json =
  (status: number, body: unknown, headers: http.OutgoingHttpHeaders = {}): Answer =>
  (_request, response) =>
    void response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
const text =
  (status: number, body: string, headers: http.OutgoingHttpHeaders = {}): Answer =>
  (_request, response) =>
    void response.writeHead(status, headers).end(body)
const cut: Answer = (request) => void request.socket.destroy()
const half: Answer = (_request, response) =>
  void response.writeHead(200, { 'content-length': 500 }).write('{"na', () => response.destroy())
const hang: Answer = () => undefined
const ok = json(200, { name: 'one' })

const read: PlatformRequest = { method: 'GET', path: '/things/one', expected: [200], retry: 'safe', deadlineMs: 20_000 }
const make: PlatformRequest = {
  method: 'POST',
  path: '/things',
  body: { name: 'one', bearer: SECRET },
  expected: [201],
  retry: 'never',
  secrets: [SECRET],
}

async function faultOf(promise: Promise<unknown>): Promise<PlatformError> {
  const error: unknown = await promise.then(
    () => undefined,
    (fault: unknown) => fault,
  )
  expect(error).toBeInstanceOf(PlatformError)
  // Whatever a person or a log does with it.
  const shown = `${inspect(error, { depth: 10, showHidden: true })} ${JSON.stringify(error)} ${(error as Error).stack ?? ''}`
  for (const secret of [MARKER, SECRET])
    for (const spelling of [secret, Buffer.from(secret).toString('base64').replace(/=+$/, '')])
      expect(shown).not.toContain(spelling)
  expect((error as Error).message).toMatch(/^[\x20-\x7e…]+$/)
  return error as PlatformError
}

describe('an answer', () => {
  test('is the status, the headers and the parsed body of what was asked', async () => {
    const { client, seen } = await platform([json(201, { id: 7 }, { 'x-request-id': 'r1' })], {})
    const reply = await client.request({ ...make, query: { force: true, left: undefined, name: 'a b&c' } })
    expect(reply).toMatchObject({ status: 201, body: { id: 7 }, headers: { 'x-request-id': 'r1' } })
    expect(seen[0]).toMatchObject({
      method: 'POST',
      url: '/things?force=true&name=a+b%26c',
      headers: { authorization: `Bearer ${MARKER}`, 'content-type': 'application/json' },
    })
    expect(JSON.parse(seen[0]?.body ?? '')).toEqual({ name: 'one', bearer: SECRET })
  })

  test('may be an error status that was expected, and one without a body', async () => {
    const { client } = await platform([json(404, { error: 'gone' }), text(204, '')])
    expect(await client.request({ ...read, expected: [200, 404] })).toMatchObject({
      status: 404,
      body: { error: 'gone' },
    })
    expect(await client.request({ ...read, expected: [204] })).toMatchObject({ status: 204, body: undefined })
  })

  test('reads that follow each other share a connection; what is asked once alone never takes one that may have just been closed', async () => {
    const { client, seen } = await platform([ok, ok, json(201, {}), json(201, {})])
    await client.request(read)
    await client.request(read)
    await client.request(make)
    await client.request(make)
    const [first, second, third, fourth] = seen.map(({ socket }) => socket)
    expect(second).toBe(first)
    expect(third).not.toBe(first)
    expect(fourth).not.toBe(third)
  })

  test('many at once share 32 connections', async () => {
    let open = 0
    let most = 0
    const { client } = await platform([
      (_request, response) => {
        most = Math.max(most, ++open)
        setTimeout(() => {
          open--
          response.end('{}')
        }, 20)
      },
    ])
    await Promise.all(Array.from({ length: 100 }, () => client.request(read)))
    expect(most).toBeGreaterThan(1)
    expect(most).toBeLessThanOrEqual(32)
  })

  test('credentials are asked for each try, so that a new one is used', async () => {
    let count = 0
    const { client, seen } = await platform([json(503, {}), ok], {
      authorize: () => Promise.resolve({ 'x-key': `key-number-${++count}` }),
    })
    await client.request(read)
    expect(seen.map(({ headers }) => headers['x-key'])).toEqual(['key-number-1', 'key-number-2'])
  })
})

describe('what is safe to ask twice is asked again', () => {
  test.each([
    ['429', json(429, { error: 'slow down' })],
    ['500', json(500, {})],
    ['502 that is not JSON', text(502, '<html>bad gateway</html>')],
    ['503', json(503, {})],
    ['504', json(504, {})],
    ['a connection that is cut', cut],
    ['half a reply', half],
  ])('after %s', async (_name, answer) => {
    const { client, seen } = await platform([answer, answer, ok])
    expect((await client.request(read)).body).toEqual({ name: 'one' })
    expect(seen).toHaveLength(3)
  })

  test('after a hang, once a try has taken its time', async () => {
    const { client, seen } = await platform([hang, ok])
    expect((await client.request({ ...read, tryMs: 300 })).status).toBe(200)
    expect(seen).toHaveLength(2)
  })

  test('not before `Retry-After`, in seconds or as a date', async () => {
    const at = (): number => performance.now()
    const { client } = await platform([
      json(429, {}, { 'retry-after': '1' }),
      ok,
      (request, response) =>
        json(429, {}, { 'retry-after': new Date(Date.now() + 2_500).toUTCString() })(request, response),
      ok,
    ])
    const first = at()
    await client.request(read)
    expect(at() - first).toBeGreaterThanOrEqual(995)
    const second = at()
    await client.request(read)
    expect(at() - second).toBeGreaterThanOrEqual(1_000)
  })

  test('only inside the deadline: a wait that would outlast it is an error at once, with what was asked for', async () => {
    const { client, seen } = await platform([json(429, { error: 'slow down' }, { 'retry-after': '3600' })])
    const error = await faultOf(client.request(read))
    expect(error).toMatchObject({
      fault: 'rate_limited',
      code: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
      status: 429,
      retryAfterMs: 3_600_000,
    })
    expect(error.message).toBe(
      'can not do `GET /things/one`: Nimbus refuses it (429): slow down; too many requests at a time; try later, or make fewer sandboxes at once',
    )
    expect(seen).toHaveLength(1)
  })

  test('and the last fault is thrown when the deadline is over', async () => {
    const { client, seen } = await platform([json(503, { message: 'under repair' })])
    const error = await faultOf(client.request({ ...read, deadlineMs: 1_000 }))
    expect(error).toMatchObject({ fault: 'operation_failed', status: 503, outcome: 'known' })
    expect(error.message).toContain('under repair')
    expect(seen.length).toBeGreaterThan(1)
  })

  test.each([400, 401, 403, 404, 409, 422])('but not after %i', async (status) => {
    const { client, seen } = await platform([json(status, {})])
    await faultOf(client.request(read))
    expect(seen).toHaveLength(1)
  })
})

describe('what is asked once alone', () => {
  test.each([
    ['a connection that is cut', cut, 'unreachable', 'unknown'],
    ['half a reply', half, 'unreachable', 'unknown'],
    ['a hang', hang, 'unreachable', 'unknown'],
    ['a reply that is not JSON', text(201, '<html>'), 'unreadable_reply', 'unknown'],
    ['a status that nobody expects', json(202, {}), 'unreadable_reply', 'unknown'],
    ['500', json(500, {}), 'operation_failed', 'unknown'],
    ['504', json(504, {}), 'operation_failed', 'unknown'],
    ['429', json(429, {}), 'rate_limited', 'known'],
    ['400', json(400, {}), 'request_refused', 'known'],
    ['409', json(409, {}), 'name_taken', 'known'],
  ] as const)(
    'is not asked again after %s, and the error says what is known',
    async (_name, answer, fault, outcome) => {
      const { client, seen } = await platform([answer])
      expect(await faultOf(client.request({ ...make, tryMs: 1_500 }))).toMatchObject({ fault, outcome })
      expect(seen).toHaveLength(1)
    },
  )

  test('and never arrived has a known outcome', async () => {
    const server = net.createServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as net.AddressInfo
    await new Promise((resolve) => server.close(resolve))
    const { client } = await platform([ok], { baseUrl: `http://127.0.0.1:${port}` })
    const error = await faultOf(client.request(make))
    expect(error).toMatchObject({ fault: 'unreachable', outcome: 'known' })
    expect(error.message).toContain('Nimbus at 127.0.0.1:')
  })
})

describe('a refusal', () => {
  test.each([
    [
      'as Azure says it',
      { error: { code: 'AuthorizationFailed', message: 'The client has no access.' } },
      'AuthorizationFailed',
      'The client has no access',
    ],
    [
      'as Fly says it',
      { error: 'Authenticate: token validation error', status: 'unknown' },
      'unknown',
      'Authenticate: token validation error',
    ],
    ['as many say it', { code: 'denied', message: 'no' }, 'denied', 'no'],
  ])('has the platform’s own words and our advice, %s', async (_name, body, code, words) => {
    const { client } = await platform([json(403, body)])
    const error = await faultOf(client.request(make))
    expect(error).toMatchObject({
      fault: 'credentials_refused',
      code: 'SALLYPORT_SANDBOX_BACKEND_MISSING',
      platformCode: code,
      status: 403,
    })
    expect(error.message).toBe(
      `can not do \`POST /things\`: Nimbus refuses it (403, ${code}): ${words}; check the credentials for Nimbus and what they may do`,
    )
  })

  test('can be explained by whoever knows the platform', async () => {
    const { client } = await platform([json(409, { error: { code: 'QuotaReached', message: 'too many' } })], {
      explain: ({ code }) =>
        code === 'QuotaReached' ? { fault: 'quota_exhausted', advice: 'ask Nimbus for more' } : undefined,
    })
    const error = await faultOf(client.request({ ...make, action: 'make the thing' }))
    expect(error.fault).toBe('quota_exhausted')
    expect(error.message).toBe(
      'can not make the thing: Nimbus refuses it (409, QuotaReached): too many; ask Nimbus for more',
    )
  })

  test.each([
    ['ahead of', 3_600],
    ['behind', -3_600],
  ])('of credentials says when this machine’s clock is %s theirs', async (word, seconds) => {
    const { client } = await platform([json(401, {}, { date: new Date(Date.now() - seconds * 1_000).toUTCString() })])
    expect((await faultOf(client.request(read))).message).toMatch(
      new RegExp(`this machine's clock is 3(599|600|601) s ${word} theirs`),
    )
  })

  test('of credentials says nothing of a clock that is right', async () => {
    const { client } = await platform([json(401, {})])
    expect((await faultOf(client.request(read))).message).not.toContain('clock')
  })

  test('that echoes what was sent in confidence shows none of it, in any spelling; nor line ends, nor more than a line', async () => {
    const echo: Answer = (request, response) =>
      json(400, {
        error: {
          code: `Bad\r\n${MARKER}`,
          message: `invalid token ${request.headers.authorization ?? ''} \u001b[31m${encodeURIComponent(SECRET)}\nbase64 ${Buffer.from(SECRET).toString('base64')} eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.c2ln ${'x'.repeat(5_000)}`,
        },
      })(request, response)
    const { client } = await platform([echo])
    const error = await faultOf(client.request(make))
    expect(error.message).toContain('invalid token […]')
    expect(error.message).not.toMatch(/eyJ|\n|\u001b/)
    expect(error.message.length).toBeLessThan(700)
    expect(error.platformCode).toBe('Bad […]')
  })

  test('that is not JSON, and one with a body of another shape, are refusals all the same', async () => {
    const { client } = await platform([
      text(400, 'nope'),
      json(400, [1, 2]),
      json(400, null),
      json(400, { error: { message: { a: 1 } } }),
    ])
    for (let count = 0; count < 4; count++) expect((await faultOf(client.request(make))).fault).toBe('request_refused')
  })
})

describe('a reply that can not be used', () => {
  test('longer than 1 MiB is given up, and not asked for again', async () => {
    const { client, seen } = await platform([text(200, `"${'x'.repeat(2 * 1024 * 1024)}"`)])
    expect((await faultOf(client.request(read))).fault).toBe('unreadable_reply')
    expect(seen).toHaveLength(1)
  })

  test('that goes on for ever, a byte at a time, is given up when the try has taken its time', async () => {
    const { client } = await platform([
      (_request, response) => {
        response.writeHead(200)
        const timer = setInterval(() => response.write(' '), 20)
        response.on('close', () => clearInterval(timer))
      },
    ])
    expect((await faultOf(client.request({ ...make, tryMs: 400 }))).fault).toBe('unreachable')
  })

  test('that is compressed, though nobody asked, is named', async () => {
    const { client } = await platform([text(200, 'xx', { 'content-encoding': 'gzip' })])
    expect((await faultOf(client.request(read))).message).toContain('encoded as gzip')
  })

  test('that is no HTTP is named', async () => {
    const { client } = await platform([(request) => void request.socket.end('SSH-2.0-nimbus\r\n')])
    expect((await faultOf(client.request({ ...make }))).fault).toBe('unreachable')
  })

  test('that leads elsewhere is not followed', async () => {
    const elsewhere = await platform([ok])
    const { client } = await platform([text(302, '', { location: elsewhere.origin })])
    expect((await faultOf(client.request(read))).fault).toBe('unreadable_reply')
    expect(
      (await faultOf(client.request({ ...read, path: new URL('/operations/1', elsewhere.origin) }))).message,
    ).toContain('nothing is sent there')
    expect(elsewhere.seen).toEqual([])
  })

  test('an address that the platform gave of itself is asked, under its own query', async () => {
    const { client, seen, origin } = await platform([ok])
    await client.request({ ...read, path: new URL('/operations/1?api-version=7', origin) })
    expect(seen[0]?.url).toBe('/operations/1?api-version=7')
  })
})

describe('credentials', () => {
  test('that can not be had are a fault of their own, with the words and without the error that holds them', async () => {
    const { client, seen } = await platform([ok], {
      authorize: () =>
        Promise.reject(
          Object.assign(new Error('no identity here\nsecond line'), {
            request: { headers: { authorization: MARKER } },
          }),
        ),
    })
    const error = await faultOf(client.request(read))
    expect(error).toMatchObject({
      fault: 'credentials_refused',
      message: 'no credentials for Nimbus are to be had: no identity here',
    })
    expect(seen).toEqual([])
  })

  test('that never come end with the deadline', async () => {
    const { client } = await platform([ok], { authorize: () => new Promise(() => undefined) })
    expect((await faultOf(client.request({ ...read, deadlineMs: 100 }))).fault).toBe('credentials_refused')
  })

  test('with a line end in them are not sent', async () => {
    const { client, seen } = await platform([ok], {
      authorize: () => Promise.resolve({ authorization: `Bearer ${MARKER}\r\nx-other: 1` }),
    })
    expect((await faultOf(client.request(read))).fault).toBe('credentials_refused')
    expect(seen).toEqual([])
  })

  test.each([
    'http://nimbus.example',
    'http://10.0.0.1',
    'ftp://127.0.0.1',
    'https://user:pass@nimbus.example',
    'https://nimbus.example/?x=1',
    'http://127.0.0.1.example',
  ])('do not go to %s', (baseUrl) => {
    expect(() => createPlatformClient({ platform: 'Nimbus', baseUrl, authorize: () => Promise.resolve({}) })).toThrow(
      TypeError,
    )
  })

  test.each(['http://_api.internal:4280', 'http://[::1]:80', 'https://nimbus.example/v1'])(
    'may go to %s',
    (baseUrl) => {
      createPlatformClient({ platform: 'Nimbus', baseUrl, authorize: () => Promise.resolve({}) }).close()
    },
  )
})

describe('a caller that gives up', () => {
  test('during a try, or between two, gets the reason of its signal', async () => {
    for (const answer of [hang, json(429, {}, { 'retry-after': '10' })]) {
      const { client, seen } = await platform([answer])
      const controller = new AbortController()
      const reason = new Error('enough')
      const asked = client.request({ ...read, signal: controller.signal })
      await expect.poll(() => seen.length).toBe(1)
      controller.abort(reason)
      await expect(asked).rejects.toBe(reason)
    }
  })

  test('before it began sends nothing', async () => {
    const { client, seen } = await platform([ok])
    await expect(client.request({ ...read, signal: AbortSignal.abort(new Error('no')) })).rejects.toThrow('no')
    expect(seen).toEqual([])
  })
})
