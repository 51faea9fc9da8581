/** Heads of CONNECT and of plain HTTP, and the credentials in them. */
import { parseAuthority } from '../../../policies/index.ts'
import { type ConnectHead, MAX_HEAD_BYTES, parseConnectHead } from '../../../proxy/dialects/connect-head.ts'
import { readHttpHead } from '../../../proxy/dialects/http-head.ts'
import { parseAbsoluteTarget } from '../../../proxy/dialects/http-target.ts'
import { readProxyAuthorization } from '../../../proxy/tokens/credentials.ts'
import { pieces } from '../random.ts'
import { hold, same, type Target } from '../target.ts'

const SEEDS = [
  'CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\nProxy-Authorization: Bearer a.b.c\r\n\r\n',
  'CONNECT [2001:db8::1]:443 HTTP/1.0\r\n\r\nearly data',
  'CONNECT a.example:80 HTTP/1.1\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n\r\n',
  'GET http://a.example/path?query HTTP/1.1\r\nHost: a.example\r\nProxy-Authorization: Basic dXNlcjphLmIuYw==\r\n\r\n',
  'POST http://user:password@a.example:8080/ HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n',
  'POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello',
  'OPTIONS * HTTP/1.1\r\nHost: a.example\r\nMax-Forwards: 0\r\n\r\n',
]
const WORDS = [
  ...[
    '\r\n',
    '\r\n\r\n',
    '\n',
    '\r',
    ' ',
    '\t',
    ':',
    '\0',
    '\x0b',
    '\x85',
    '\xa0',
    '\r\n ',
    ' HTTP/1.1',
    ' HTTP/1.0',
    'CONNECT ',
  ],
  ...['Host: ', 'Content-Length: 5', 'Content-Length: 0', 'Transfer-Encoding: chunked', 'Transfer-Encoding : chunked'],
  ...[
    'Proxy-Authorization: ',
    'Bearer ',
    'Basic ',
    'jwt_',
    '=',
    'Max-Forwards: 00',
    'http://',
    '://',
    '@',
    '#',
    '?',
    ']',
    '*',
  ],
]

/** Opens the target. */
export function httpHead(): Target {
  return {
    name: 'http-head',
    maxBytes: MAX_HEAD_BYTES + 4096,
    maxCpuMs: 200,
    seeds: SEEDS.map((text) => Buffer.from(text, 'latin1')),
    words: WORDS,
    run: (input) => {
      const whole = parseConnectHead(input)
      checkConnect(input, whole)
      const inPieces = readInPieces(input)
      hold(whole.state === inPieces.state, 'a head in pieces is read as another than the whole', () => [
        whole,
        inPieces,
      ])
      if (whole.state === 'done') same(inPieces, whole, 'a head in pieces says something else than the whole')
      checkPlain(input.toString('latin1'))
    },
  }
}

function readInPieces(input: Buffer): ConnectHead {
  let seen = 0
  let held = 0
  let result: ConnectHead = { state: 'more' }
  for (const piece of pieces(input)) {
    held += piece.length
    result = parseConnectHead(input.subarray(0, held), seen)
    if (result.state !== 'more') break
    seen = held
  }
  return result
}

function checkConnect(input: Buffer, head: ConnectHead): void {
  switch (head.state) {
    case 'more':
      hold(input.length < MAX_HEAD_BYTES, 'more than the largest head is waited for', () => input.length)
      return
    case 'refused':
      hold(
        !(head.target ?? '').slice(0, -1).includes('@') || head.target?.startsWith('***@') === true,
        'user information is shown',
        () => head,
      )
      return
    case 'done': {
      hold(head.length <= Math.min(input.length, MAX_HEAD_BYTES), 'a head is longer than what came')
      hold(
        input.toString('latin1', head.length - 4, head.length) === '\r\n\r\n',
        'a head does not end in an empty line',
      )
      same(parseConnectHead(input.subarray(0, head.length)), head, 'what follows a head changes it')
      parseAuthority(head.target)
      checkCredentials(head.proxyAuthorization)
    }
  }
}

function checkCredentials(value: string | undefined): void {
  const credentials = readProxyAuthorization(value)
  if (credentials.kind === 'token') {
    hold(
      value?.length === undefined || credentials.token.length <= value.length,
      'a token is longer than what holds it',
    )
    same(readProxyAuthorization(`Bearer ${credentials.token}`), credentials, 'a token reads as another')
    const basic = Buffer.from(`user:${credentials.token}`, 'latin1').toString('base64')
    if (!credentials.token.startsWith('jwt_'))
      same(readProxyAuthorization(`Basic ${basic}`), credentials, 'a token in Basic reads as another')
  }
  if (credentials.kind === 'malformed' && value !== undefined && value.length > 24)
    hold(!credentials.detail.includes(value), 'the fault repeats the credentials')
}

/** As Node's parser would hand it on: names and values by turns. */
function checkPlain(text: string): void {
  const [line = '', ...fields] = (text.split('\r\n\r\n')[0] ?? '').split('\r\n')
  const [method = '', target = '', version = ''] = line.split(' ')
  const rawHeaders = fields.flatMap((field) => {
    const colon = field.indexOf(':')
    return colon < 1 ? [] : [field.slice(0, colon), field.slice(colon + 1).trim()]
  })
  const head = readHttpHead({ method, httpVersion: version.replace('HTTP/', ''), rawHeaders })
  const named = (name: string) =>
    rawHeaders.filter((field, index) => index % 2 === 0 && field.toLowerCase() === name).length
  if (head.ok) {
    hold(named('content-length') + named('transfer-encoding') <= 1, 'a body is framed twice', () => rawHeaders)
    hold(
      named('host') <= 1 && named('proxy-authorization') <= 1,
      'a header that must be one is there twice',
      () => rawHeaders,
    )
    checkCredentials(head.proxyAuthorization)
  }
  const read = parseAbsoluteTarget(method, target)
  if (read.ok) {
    hold(
      /^(?:\*|[/][\x21-\x7e]*)$/.test(read.path) && !read.path.includes('#'),
      'a path can break a request line',
      () => read,
    )
    hold(
      !read.target.includes('@') && !/[/?#]/.test(read.target),
      'an authority holds more than host and port',
      () => read,
    )
    return
  }
  const secret = /^[a-z][a-z0-9+.-]*:\/\/([^/?#@]*:[^/?#@]{6,})@/i.exec(target)?.[1]
  hold(secret === undefined || !read.requested.includes(secret), 'user information is shown', () => read)
}
