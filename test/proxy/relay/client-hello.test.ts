/** The server name is read the way every server reads it, or not at all. */
import { once } from 'node:events'
import net from 'node:net'
import tls from 'node:tls'
import fc from 'fast-check'
import { afterEach, describe, expect, test } from 'vitest'
import {
  ClientHelloReader,
  type HelloResult,
  judgeServerName,
  MAX_HELD_BYTES,
  MAX_HELLO_BYTES,
} from '../../../proxy/relay/client-hello.ts'
import {
  handshake,
  hello,
  helloMessage,
  type HelloParts,
  records,
  serverNameExtension,
  u16,
  u8,
  vector16,
} from './hellos.ts'

const NAME = 'tls.example.test'
const refused = (reason: string): HelloResult => ({ state: 'refused', reason }) as HelloResult
const done = (serverName: string | undefined, ech = false): HelloResult => ({
  state: 'done',
  hello: { serverName, ech },
})
const MORE = { state: 'more' }

function read(bytes: Buffer): HelloResult {
  return new ClientHelloReader().push(bytes)
}
const readParts = (parts: HelloParts): HelloResult => read(records(helloMessage(parts)))

/** The greased hello of a browser: unknown suites, extensions and groups, empty and not. RFC 8701. */
const GREASED: HelloParts = {
  names: [NAME],
  suites: [0x0a0a, 0x1301, 0xcaca],
  extensions: [
    [0x2a2a, Buffer.alloc(0)],
    [10, vector16(Buffer.concat([u16(0xdada), u16(29)]))],
  ],
  later: [
    [0x8a8a, u8(0)],
    [21, Buffer.alloc(200)],
  ],
}

describe('a lawful hello', () => {
  const lawful: [string, Buffer, HelloResult][] = [
    ['with a name', hello(NAME), done(NAME)],
    ['whose name is in capitals', hello('TLS.Example.TEST'), done(NAME)],
    ['without a name', hello(), done(undefined)],
    ['without any extension', records(helloMessage({ bare: true })), done(undefined)],
    ['with an empty list of extensions', records(helloMessage({})), done(undefined)],
    ['with no session id', records(helloMessage({ names: [NAME], session: Buffer.alloc(0) })), done(NAME)],
    ['that is greased', records(helloMessage(GREASED)), done(NAME)],
    [
      'that is encrypted, by its outer name',
      records(helloMessage({ names: [NAME], later: [[0xfe0d, Buffer.alloc(180)]] })),
      done(NAME, true),
    ],
    [
      'that is encrypted and has no outer name',
      records(helloMessage({ extensions: [[0xfe0d, Buffer.alloc(180)]] })),
      done(undefined, true),
    ],
    ['over records of one byte', records(helloMessage({ names: [NAME] }), 1), done(NAME)],
    ['over records of 16 bytes', records(helloMessage({ names: [NAME] }), 16), done(NAME)],
    ['of a record version of SSL 3', Buffer.concat([Buffer.from([22, 3, 0]), hello(NAME).subarray(3)]), done(NAME)],
    [
      'as large as post-quantum keys and tickets make it',
      records(helloMessage({ names: [NAME], later: [[51, Buffer.alloc(9000)]] })),
      done(NAME),
    ],
  ]

  test.each(lawful)('%s', (_what, bytes, expected) => {
    expect(read(bytes)).toEqual(expected)
  })

  test.each(lawful)('%s: the same at every split point, and every byte of it is released', (_what, bytes, expected) => {
    const step = bytes.length > 2000 ? 97 : 1
    for (let split = 0; split <= bytes.length; split += step) {
      const reader = new ClientHelloReader()
      const first = reader.push(Buffer.from(bytes.subarray(0, split)))
      expect(first).toEqual(split < bytes.length ? MORE : expected)
      if (split < bytes.length) expect(reader.push(Buffer.from(bytes.subarray(split)))).toEqual(expected)
      expect(reader.release().equals(bytes)).toBe(true)
    }
  })

  test.each(lawful)(
    '%s: the same byte by byte, from a buffer that is overwritten after each',
    (_what, bytes, expected) => {
      const reader = new ClientHelloReader()
      const shared = Buffer.alloc(1)
      let result: HelloResult = { state: 'more' }
      for (const byte of bytes) {
        expect(result).toEqual(MORE)
        shared[0] = byte
        result = reader.push(shared)
        shared[0] = 0xee
      }
      expect(result).toEqual(expected)
      expect(reader.release().equals(bytes)).toBe(true)
    },
  )

  test('with early data right behind it, all of which is released', () => {
    const reader = new ClientHelloReader()
    const early = records(Buffer.alloc(5000, 7), 16_384, 23)
    const bytes = Buffer.concat([hello(NAME), early])
    expect(reader.push(bytes)).toEqual(done(NAME))
    expect(reader.push(Buffer.from('later'))).toEqual(done(NAME))
    expect(reader.release().equals(Buffer.concat([bytes, Buffer.from('later')]))).toBe(true)
    expect(reader.release()).toHaveLength(0)
  })
})

describe('refused as not TLS', () => {
  const message = helloMessage({ names: [NAME] })
  const cases: Record<string, Buffer> = {
    'a greeting of SSH': Buffer.from('SSH-2.0-OpenSSH_9.6\r\n'),
    'its first byte alone': Buffer.from('S'),
    'plain HTTP': Buffer.from('GET / HTTP/1.1\r\n\r\n'),
    'an SSLv2 hello': Buffer.from([0x80, 0x2e, 1, 3, 1, 0, 0x15, 0, 0, 0, 0x10]),
    'a TLS alert': Buffer.from([21, 3, 3, 0, 2, 2, 40]),
    'application data': records(Buffer.from('x'), 100, 23),
    'a record version that is none': Buffer.from([22, 2]),
    'an empty record': Buffer.from([22, 3, 1, 0, 0]),
    'an empty record in the middle': Buffer.concat([records(message.subarray(0, 10)), Buffer.from([22, 3, 1, 0, 0])]),
    'a record that is too long': Buffer.from([22, 3, 1, 0x40, 1]),
    'another handshake message': records(handshake(2, Buffer.alloc(40))),
    'another handshake message, from its first byte': Buffer.from([22, 3, 1, 0, 40, 2]),
    'a change-cipher-spec between two fragments': Buffer.concat([
      records(message.subarray(0, 10)),
      Buffer.from([20, 3, 3, 0, 1, 1]),
      records(message.subarray(10)),
    ]),
    'an alert between two fragments': Buffer.concat([
      records(message.subarray(0, 10)),
      Buffer.from([21, 3, 3, 0, 2, 1, 0]),
    ]),
    'a second message in the same record': records(Buffer.concat([message, message])),
    'the beginning of a second message': records(Buffer.concat([message, u8(1)])),
    'a hello that says it is huge': records(handshake(1, Buffer.alloc(MAX_HELLO_BYTES)).subarray(0, 100)),
    'a body that is cut short': records(handshake(1, message.subarray(4, 60))),
    'a body of nothing': records(handshake(1, Buffer.alloc(0))),
    'bytes behind the extensions': records(handshake(1, Buffer.concat([message.subarray(4), u8(0)]))),
    'a session id that is too long': records(helloMessage({ names: [NAME], session: Buffer.alloc(33) })),
    'no cipher suites': records(helloMessage({ names: [NAME], suites: [] })),
    'extensions that end inside one': records(
      handshake(1, Buffer.concat([helloMessage({ bare: true }).subarray(4), vector16(Buffer.from([0, 0, 0]))])),
    ),
    'an extension that is longer than the rest': records(
      handshake(1, Buffer.concat([helloMessage({ bare: true }).subarray(4), vector16(Buffer.from([0, 5, 0, 9, 1]))])),
    ),
  }
  test.each(Object.entries(cases))('%s', (_what, bytes) => {
    expect(read(bytes)).toEqual(refused('not_tls'))
  })

  test('more than is ever held, in whatever pieces', () => {
    const reader = new ClientHelloReader()
    // A hello of the greatest length over records of one byte: lawful, and no client does it.
    const bytes = records(helloMessage({ names: [NAME], later: [[51, Buffer.alloc(15_000)]] }), 1)
    let pushed = 0
    let result: HelloResult = { state: 'more' }
    for (; result.state === 'more' && pushed < bytes.length; pushed += 1000)
      result = reader.push(bytes.subarray(pushed, pushed + 1000))
    expect(result).toEqual(refused('not_tls'))
    expect(pushed).toBeLessThanOrEqual(MAX_HELD_BYTES + 1000)
    const held = reader.release().length
    reader.push(bytes)
    expect(reader.release()).toHaveLength(0)
    expect(held).toBeLessThanOrEqual(MAX_HELD_BYTES + 1000)
  })
})

describe('refused for a name that could be read in two ways', () => {
  const cases: Record<string, HelloParts> = {
    'two names in the list': { names: [NAME, 'evil.example.test'] },
    'the same name twice in the list': { names: [NAME, NAME] },
    'a name of another type first': { names: ['evil.example.test', NAME], nameTypes: [1, 0] },
    'only a name of another type': { names: [NAME], nameTypes: [7] },
    'two server_name extensions': { names: [NAME], later: [[0, serverNameExtension(['evil.example.test'])]] },
    'two server_name extensions that agree': { names: [NAME], later: [[0, serverNameExtension([NAME])]] },
    'an empty list': { names: [] },
    'an empty extension': { extensions: [[0, Buffer.alloc(0)]] },
    'an empty name': { names: [''] },
    'a name with a NUL': { names: [`${NAME}\0.evil.test`] },
    'a name with a space': { names: ['tls.example.test '] },
    'a name with a newline': { names: ['tls.example.test\n'] },
    'a name in Latin-1': { names: ['t\u00e9ls.example.test'] },
    'a name of 256 bytes': { names: ['a'.repeat(256)] },
    'bytes behind the list': { extensions: [[0, Buffer.concat([serverNameExtension([NAME]), u8(0)])]] },
    'a list that is longer than the extension': {
      extensions: [[0, Buffer.concat([u16(99), serverNameExtension([NAME]).subarray(2)])]],
    },
    'a name that is longer than the list': { extensions: [[0, vector16(Buffer.from([0, 0, 9, 65]))]] },
  }
  test.each(Object.entries(cases))('%s', (_what, parts) => {
    expect(readParts(parts)).toEqual(refused('sni_mismatch'))
  })
})

describe('compared with the host of the request', () => {
  const rows: [string, string | undefined, string, boolean, string | undefined][] = [
    ['the same name', NAME, NAME, true, undefined],
    ['another name', 'evil.example.test', NAME, true, 'sni_mismatch'],
    ['a name below it', `x.${NAME}`, NAME, true, 'sni_mismatch'],
    ['the same name with a dot at the end', `${NAME}.`, NAME, true, 'sni_mismatch'],
    ['no name', undefined, NAME, true, 'sni_missing'],
    ['no name at an address', undefined, '203.0.113.7', false, undefined],
    ['the address as the name', '203.0.113.7', '203.0.113.7', false, undefined],
    ['a name at an address', NAME, '203.0.113.7', false, 'sni_mismatch'],
  ]
  test.each(rows)('%s', (_what, serverName, host, isName, expected) => {
    expect(judgeServerName({ serverName, ech: false }, host, isName)).toBe(expected)
  })
})

describe('real clients', () => {
  const closers: (() => void)[] = []
  afterEach(() => {
    for (const close of closers.splice(0)) close()
  })

  test.each([
    ['TLS 1.3', { minVersion: 'TLSv1.3' }],
    ['TLS 1.2', { maxVersion: 'TLSv1.2' }],
    ['with protocols', { ALPNProtocols: ['h2', 'http/1.1'] }],
  ] as const)('OpenSSL, %s', async (_what, options) => {
    const server = net.createServer()
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    closers.push(() => server.close())
    const client = tls.connect({
      port: (server.address() as net.AddressInfo).port,
      host: '127.0.0.1',
      servername: 'Real.Example.test',
      ...options,
      ...('ALPNProtocols' in options && { ALPNProtocols: [...options.ALPNProtocols] }),
    })
    client.on('error', () => undefined)
    closers.push(() => client.destroy())
    const [socket] = (await once(server, 'connection')) as [net.Socket]
    closers.push(() => socket.destroy())
    const reader = new ClientHelloReader()
    let result: HelloResult = { state: 'more' }
    while (result.state === 'more') result = reader.push(((await once(socket, 'data')) as [Buffer])[0])
    expect(result).toEqual(done('real.example.test'))
  })
})

describe('whatever comes', () => {
  const pieces = fc.array(fc.integer({ min: 1, max: 700 }), { minLength: 1, maxLength: 30 })

  /** Pushes in pieces of the given sizes, over and over; the last result. */
  function inPieces(bytes: Buffer, sizes: readonly number[]): HelloResult {
    const reader = new ClientHelloReader()
    let result: HelloResult = { state: 'more' }
    for (let at = 0, index = 0; at < bytes.length; index++) {
      const size = sizes[index % sizes.length]!
      result = reader.push(bytes.subarray(at, at + size))
      at += size
      if (result.state !== 'more') return result
    }
    return result
  }

  test('random bytes never throw, and mean the same in any pieces', () => {
    const bytes = fc.uint8Array({ maxLength: 3000 }).map((array) => Buffer.from(array))
    fc.assert(
      fc.property(bytes, pieces, (random, sizes) => {
        expect(inPieces(random, sizes)).toEqual(read(random))
      }),
    )
  })

  test('mutated hellos never throw, mean the same in any pieces, and only ever yield names of lawful bytes', () => {
    const base = fc.constantFrom(
      hello(NAME),
      records(helloMessage(GREASED)),
      records(helloMessage({ names: [NAME] }), 16),
    )
    const edits = fc.array(fc.record({ at: fc.nat(600), with: fc.uint8Array({ maxLength: 4 }), remove: fc.nat(3) }), {
      minLength: 1,
      maxLength: 4,
    })
    fc.assert(
      fc.property(base, edits, pieces, (lawful, changes, sizes) => {
        let bytes = lawful
        for (const { at, with: inserted, remove } of changes) {
          const place = at % bytes.length
          bytes = Buffer.concat([bytes.subarray(0, place), inserted, bytes.subarray(place + remove)])
        }
        const result = read(bytes)
        // Bytes behind a whole hello are not looked at in one piece, nor in many.
        expect(inPieces(bytes, sizes)).toEqual(result)
        if (result.state === 'done') expect(result.hello.serverName ?? 'none').toMatch(/^[0-9a-z._-]{1,255}$/)
      }),
      { numRuns: 2000 },
    )
  })
})
