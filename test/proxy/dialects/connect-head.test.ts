/** The CONNECT head: what is read, what is refused, and that the parser of Node reads the same in whatever is accepted. */
import http from 'node:http'
import net from 'node:net'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { MAX_HEAD_BYTES, parseConnectHead } from '../../../proxy/dialects/connect-head.ts'
import authority from '../../cases/authority.json' with { type: 'json' }

const latin1 = (text: string): Buffer => Buffer.from(text, 'latin1')
const parse = (text: string) => parseConnectHead(latin1(text))
const HOST = 'Host: api.example.com:443\r\n'
const PLAIN = `CONNECT api.example.com:443 HTTP/1.1\r\n${HOST}Proxy-Authorization: Bearer abc.def.ghi\r\n\r\n`

describe('a CONNECT head', () => {
  test('is read: target, version, credentials and where the early data begins', () => {
    expect(parse(`${PLAIN}early`)).toEqual({
      state: 'done',
      length: PLAIN.length,
      target: 'api.example.com:443',
      version: '1.1',
      proxyAuthorization: 'Bearer abc.def.ghi',
    })
  })

  test.each([
    [
      'HTTP/1.0 without any header',
      'CONNECT a.example:22 HTTP/1.0\r\n\r\n',
      { version: '1.0', proxyAuthorization: undefined },
    ],
    [
      'a header name in any case',
      `CONNECT a.example:22 HTTP/1.1\r\npROXY-aUTHORIZATION:x\r\n\r\n`,
      { proxyAuthorization: 'x' },
    ],
    [
      'blanks around a value',
      `CONNECT a.example:22 HTTP/1.1\r\nProxy-Authorization: \t x y \t\r\n\r\n`,
      { proxyAuthorization: 'x y' },
    ],
    ['an empty value', 'CONNECT a.example:22 HTTP/1.1\r\nProxy-Authorization:\r\n\r\n', { proxyAuthorization: '' }],
    [
      'a Host that differs, for it is not looked at',
      'CONNECT a.example:22 HTTP/1.1\r\nHost: b.example\r\n\r\n',
      { target: 'a.example:22' },
    ],
    ['an IPv6 literal', 'CONNECT [2001:db8::1]:443 HTTP/1.1\r\n\r\n', { target: '[2001:db8::1]:443' }],
    [
      'bytes above ASCII in a value',
      'CONNECT a.example:22 HTTP/1.1\r\nX-Name: \xe9\r\n\r\n',
      { target: 'a.example:22' },
    ],
    [
      'a no-break space at the end of a value, which is no blank',
      'CONNECT a.example:22 HTTP/1.1\r\nProxy-Authorization: x\xa0\r\n\r\n',
      { proxyAuthorization: 'x\xa0' },
    ],
  ])('may have %s', (_name, text, expected) => {
    expect(parse(text)).toMatchObject({ state: 'done', ...expected })
  })

  const head = (rest: string): string => `CONNECT a.example:443 HTTP/1.1\r\n${rest}\r\n\r\n`
  test.each([
    ['two Host headers', head('Host: a\r\nhost: a')],
    ['two equal Proxy-Authorization headers', head('Proxy-Authorization: x\r\nProxy-Authorization: x')],
    ['an empty and a full Proxy-Authorization header', head('Proxy-Authorization:\r\nProxy-Authorization: x')],
    ['a content length', head('Content-Length: 5')],
    ['a content length of 0', head('content-length: 0')],
    ['a transfer encoding', head('Transfer-Encoding: chunked')],
    ['a folded header', head('X-Long: one\r\n two')],
    ['a folded first header', head(' X-Long: one')],
    ['a header folded by a tab', head('X-Long: one\r\n\ttwo')],
    ['a space before the colon', head('X-Thing : 1')],
    ['a header without a name', head(': nothing')],
    ['a header without a colon', head('nothing')],
    ['a space in a header name', head('X Thing: 1')],
    ['a NUL in a value', head('X-Thing: a\0b')],
    ['an escape character in a value', head('X-Thing: \x1b[31m')],
    ['DEL in a value', head('X-Thing: \x7f')],
    ['a bare carriage return in a value', head('X-Thing: a\rb')],
    ['a bare line feed in a value', head('X-Thing: a\nProxy-Authorization: x')],
    ['a byte above ASCII in a name', head('X-Th\xefng: 1')],
    ['bare line feeds', 'CONNECT a.example:443 HTTP/1.1\nHost: a\n\n'],
    ['a bare line feed after good lines', 'CONNECT a.example:443 HTTP/1.1\r\nHost: a\r\nX: 1\n\r\n'],
    ['HTTP/1.2', 'CONNECT a.example:443 HTTP/1.2\r\n\r\n'],
    ['HTTP/2.0', 'CONNECT a.example:443 HTTP/2.0\r\n\r\n'],
    ['no version', 'CONNECT a.example:443\r\n\r\n'],
    ['two spaces before the target', 'CONNECT  a.example:443 HTTP/1.1\r\n\r\n'],
    ['two spaces after the target', 'CONNECT a.example:443  HTTP/1.1\r\n\r\n'],
    ['a space after the version', 'CONNECT a.example:443 HTTP/1.1 \r\n\r\n'],
    ['a tab after the method', 'CONNECT\ta.example:443 HTTP/1.1\r\n\r\n'],
    ['a lower-case version', 'CONNECT a.example:443 http/1.1\r\n\r\n'],
    ['an empty line before it', `\r\n${PLAIN}`],
  ])('with %s is malformed', (_name, text) => {
    expect(parse(text)).toMatchObject({ state: 'refused', reason: 'request_malformed' })
  })

  test('of more than 32 KiB is too large, whether or not it ends', () => {
    const padded = (size: number): string => {
      const start = 'CONNECT a.example:443 HTTP/1.1\r\nX-Pad: '
      return `${start}${'x'.repeat(size - start.length - 4)}\r\n\r\n`
    }
    expect(parse(padded(MAX_HEAD_BYTES))).toMatchObject({ state: 'done', length: MAX_HEAD_BYTES })
    expect(parse(padded(MAX_HEAD_BYTES + 1))).toMatchObject({ state: 'refused', reason: 'head_too_large' })
    expect(parse(padded(MAX_HEAD_BYTES * 2).slice(0, MAX_HEAD_BYTES - 1))).toEqual({ state: 'more' })
    expect(parse(padded(MAX_HEAD_BYTES * 2).slice(0, MAX_HEAD_BYTES))).toMatchObject({
      reason: 'head_too_large',
      target: 'a.example:443',
    })
  })

  test('that is refused tells its target for the audit, without the user in it', () => {
    expect(parse('CONNECT sbx:s3cr3t@a.example:443 HTTP/1.1\r\n\r\n')).toMatchObject({ target: '***@a.example:443' })
    expect(parse('CONNECT sbx:s3cr3t@a.example:443 HTTP/1.1\r\nbroken\r\n\r\n')).toMatchObject({
      target: '***@a.example:443',
    })
    expect(parse('CONNECT sbx:s3cr3t@a.example:443 HTTP/1.1\nHost: a\n\n')).toMatchObject({
      target: '***@a.example:443',
    })
  })
})

describe('the target', () => {
  for (const { name, reason, wireReasons, ...given } of authority.cases as {
    name: string
    target?: string
    targetBase64?: string
    reason?: string
    wireReasons?: string[]
  }[]) {
    const raw =
      given.targetBase64 === undefined
        ? Buffer.from(given.target ?? '', 'utf8')
        : Buffer.from(given.targetBase64, 'base64')
    test(`${name}: never read as another target`, () => {
      const head = parseConnectHead(Buffer.concat([latin1('CONNECT '), raw, latin1(' HTTP/1.1\r\n\r\n')]))
      if (head.state === 'done') expect(head.target).toBe(raw.toString('latin1'))
      else expect(wireReasons ?? [reason]).toContain(head.state === 'refused' ? head.reason : head.state)
    })
  }
})

describe('a head in pieces', () => {
  const samples = [
    `${PLAIN}early`,
    'CONNECT a.example:443 HTTP/1.0\r\n\r\n',
    'CONNECT a.example:443 HTTP/1.1\nHost: a\n\n',
    'CONNECT a.example:443 HTTP/1.1\r\nHost: a\r\nX: 1\n\r\n\r\n',
    'CONNECT a.example:443 HTTP/1.1\r\nX: a\rb\r\n\r\n',
    'CONNECT a@b:443 HTTP/1.1\r\nHost: a\r\n\r\n',
    'CONNECT a.example:443 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n',
  ]

  test.each(samples)('%j gives the same answer however it is split', (text) => {
    const bytes = latin1(text)
    const whole = parseConnectHead(bytes)
    for (let split = 0; split <= bytes.length; split++) {
      const first = parseConnectHead(bytes.subarray(0, split))
      if (first.state === 'more') expect(parseConnectHead(bytes, split)).toEqual(whole)
      else expect(first).toEqual(whole)
    }
  })

  test.each(samples)('%j gives the same answer byte by byte', (text) => {
    const bytes = latin1(text)
    let answer = parseConnectHead(bytes.subarray(0, 0))
    for (let size = 1; answer.state === 'more'; size++) answer = parseConnectHead(bytes.subarray(0, size), size - 1)
    expect(answer).toEqual(parseConnectHead(bytes))
  })

  test('costs no more than its length, byte by byte', () => {
    const bytes = latin1(`CONNECT a.example:443 HTTP/1.1\r\n${'a:b\r\n'.repeat(6_000)}`)
    let looked = 0
    const counting = new Proxy(bytes, {
      get: (target, key) => {
        if (key !== 'toString' && key !== 'indexOf') return Reflect.get(target, key, target) as unknown
        return (...args: [string, number, string?]) => {
          looked += target.length - args[1]
          return key === 'toString' ? target.toString('latin1', args[1]) : target.indexOf(args[0], args[1], 'latin1')
        }
      },
    })
    expect(parseConnectHead(counting, bytes.length - 1)).toEqual({ state: 'more' })
    expect(looked).toBeLessThan(20)
  })
})

describe('beside the parser of Node', () => {
  let server: http.Server
  let settle: (seen: Seen) => void = () => undefined
  type Seen =
    | {
        readonly url: string
        readonly version: string
        readonly authorization: string | undefined
        readonly early: string
      }
    | 'refused'

  beforeAll(async () => {
    server = http.createServer({ maxHeaderSize: 64 * 1024 }, (_req, res) => {
      res.end()
      settle('refused')
    })
    server.on('connect', (req: http.IncomingMessage, socket: net.Socket, early: Buffer) => {
      settle({
        url: req.url ?? '',
        version: req.httpVersion,
        authorization: req.headers['proxy-authorization'],
        early: early.toString('latin1'),
      })
      socket.destroy()
    })
    server.on('clientError', (_error, socket) => {
      socket.destroy()
      settle('refused')
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  })
  afterAll(() => new Promise<unknown>((resolve) => server.close(resolve)))

  function askNode(bytes: Buffer): Promise<Seen> {
    return new Promise((resolve) => {
      const socket = net.connect((server.address() as net.AddressInfo).port, '127.0.0.1')
      settle = (seen) => {
        socket.destroy()
        resolve(seen)
      }
      socket.on('error', () => undefined)
      socket.end(bytes)
    })
  }

  const agrees = async (bytes: Buffer): Promise<'accepted' | 'refused'> => {
    const ours = parseConnectHead(bytes)
    if (ours.state !== 'done') return 'refused'
    const nodes = await askNode(bytes)
    expect({ bytes: bytes.toString('latin1'), nodes }).toEqual({
      bytes: bytes.toString('latin1'),
      nodes: {
        url: ours.target,
        version: ours.version,
        authorization: ours.proxyAuthorization,
        early: bytes.toString('latin1', ours.length),
      },
    })
    return 'accepted'
  }

  const pieces = [
    'CONNECT ',
    'CONNECT',
    ' HTTP/1.1\r\n',
    ' HTTP/1.0\r\n',
    '\r\n',
    '\n',
    '\r',
    ' ',
    '\t',
    ':',
    '\0',
    '\x7f',
    '\x80',
    '\xff',
    '\x0b',
    '\x1b',
    'Host: a\r\n',
    'Proxy-Authorization: Basic eA==\r\n',
    'Content-Length: 0\r\n',
    'Transfer-Encoding: chunked\r\n',
    'Connection: close\r\n',
    'Connection: upgrade\r\nUpgrade: h2c\r\n',
    'Content_Length: 3\r\n',
    'Expect: 100-continue\r\n',
    'X-Empty:\r\n',
    'X: \x80\r\n',
    '\r\n folded\r\n',
    '[::1]:443',
    '*',
    '%',
    '@',
    '/',
    '?',
    '#',
    ',',
    ';',
    '=',
    '~',
    '!',
    '$',
    '&',
    "'",
    '(',
    '"',
    '\\',
    '<',
    '{',
    '|',
    '^',
    '`',
    'Kelvin\u212a'.slice(0, 6),
  ].map(latin1)
  const bases = [
    PLAIN,
    `${PLAIN}GET / HTTP/1.1\r\n\r\n`,
    'CONNECT a.example:22 HTTP/1.0\r\n\r\n',
    'CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\nUser-Agent: curl/8.0 \t(x)\r\nX-Empty:\r\n\r\n\x16\x03\x01',
  ].map(latin1)
  const mutation = fc.record({
    at: fc.double({ min: 0, max: 1, noNaN: true }),
    remove: fc.integer({ min: 0, max: 3 }),
    insert: fc.oneof(
      fc.constantFrom(...pieces),
      fc.uint8Array({ minLength: 0, maxLength: 2 }).map((bytes) => Buffer.from(bytes)),
    ),
  })
  const mutant = fc
    .tuple(fc.constantFrom(...bases), fc.array(mutation, { minLength: 0, maxLength: 4 }))
    .map(([base, mutations]) =>
      mutations.reduce((bytes, { at, remove, insert }) => {
        const index = Math.floor(at * (bytes.length + 1))
        return Buffer.concat([bytes.subarray(0, index), insert, bytes.subarray(index + remove)])
      }, base),
    )

  test('whatever is accepted here is accepted there and read the same', async () => {
    let accepted = 0
    await fc.assert(
      fc.asyncProperty(mutant, async (bytes) => {
        if ((await agrees(bytes)) === 'accepted') accepted++
      }),
      { numRuns: 8_000 },
    )
    // The test would say nothing if nearly all mutants were refused.
    expect(accepted).toBeGreaterThan(1_000)
  })

  test('each byte in each place of a small head', async () => {
    const base = latin1('CONNECT a.b:1 HTTP/1.1\r\nA: c\r\n\r\n')
    for (let index = 0; index < base.length; index++) {
      for (let byte = 0; byte < 256; byte++) {
        const replaced = Buffer.from(base)
        replaced[index] = byte
        await agrees(replaced)
      }
    }
  })

  test('the oracle is awake: what only it accepts is told apart', async () => {
    expect(await askNode(latin1('CONNECT a.example:443 HTTP/1.1\r\nContent-Length: 0\r\n\r\n'))).toMatchObject({
      url: 'a.example:443',
    })
    expect(await askNode(latin1('CONNECT a.example:443 HTTP/1.1\r\nbroken\r\n\r\n'))).toBe('refused')
  })
})
