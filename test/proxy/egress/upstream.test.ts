import { spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { inspect } from 'node:util'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { freePort } from '../../origins/free-port.ts'
import type { Permit } from '../../../policies/index.ts'
import type { Resolver } from '../../../proxy/egress/resolver.ts'
import { createUpstream, type SideMaker, type Upstream, type UpstreamOptions } from '../../../proxy/egress/upstream.ts'
import { Side } from '../../../proxy/relay/side.ts'
import { SocketWire } from '../../../proxy/relay/socket-wire.ts'
import { createAuthority } from '../../origins/certificates.ts'
import { startEcho, startHttp, type Origin } from '../../origins/origins.ts'
import { deferred } from './deferred.ts'
import { address, permit, unresolvedPermit } from './permits.ts'
import { startRawProxy, startSmallProxy, type SmallProxyOptions } from './small-proxy.ts'

const SECRET = 'operator:pass-MARKER-word'
const authority = createAuthority()
const leaf = authority.issue('proxy.example.test', { names: ['proxy.example.test'], addresses: ['127.0.0.1'] })

let echo: Origin
let web: Awaited<ReturnType<typeof startHttp>>
beforeAll(async () => {
  echo = await startEcho('127.0.0.1')
  web = await startHttp('127.0.0.1')
})
afterAll(() => Promise.all([echo.close(), web.close()]))

const closing: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

describe('a tunnel by CONNECT', () => {
  test('the upstream is asked for the address that was judged', async () => {
    const { upstream, proxy } = await through({})
    const tunnel = await connect(upstream, permit(echo.port, '127.0.0.1'))
    expect(proxy.asked).toEqual([
      { method: 'CONNECT', target: `127.0.0.1:${echo.port}`, host: `127.0.0.1:${echo.port}`, authorization: undefined },
    ])
    expect(tunnel.address?.text).toBe('127.0.0.1')
    expect(await say(tunnel.side, 'ping')).toBe('ping')
  })

  test('an IPv6 address is asked for in brackets', async () => {
    const six = await startEcho('::1')
    closing.push(() => six.close())
    const { upstream, proxy } = await through({})
    await connect(upstream, permit(six.port, '::1'))
    expect(proxy.asked[0]?.target).toBe(`[::1]:${six.port}`)
  })

  test('where the upstream resolves, it is asked for the name', async () => {
    const { upstream, proxy } = await through(
      { resolve: 'upstream' },
      { route: () => ({ host: '127.0.0.1', port: echo.port }) },
    )
    const tunnel = await connect(upstream, unresolvedPermit('origin.example.test:443'))
    expect(proxy.asked[0]?.target).toBe('origin.example.test:443')
    expect(tunnel.address).toBeUndefined()
    expect(await say(tunnel.side, 'ping')).toBe('ping')
  })

  test('where the upstream resolves, a literal is asked for as it is', async () => {
    const { upstream, proxy } = await through({ resolve: 'upstream' })
    const tunnel = await connect(upstream, unresolvedPermit(`127.0.0.1:${echo.port}`))
    expect(proxy.asked[0]?.target).toBe(`127.0.0.1:${echo.port}`)
    expect(tunnel.address?.text).toBe('127.0.0.1')
  })

  test('bytes right behind the 200 are the first of the tunnel', async () => {
    const { upstream } = await through({}, { greeting: 'SSH-2.0-greeting\r\n' })
    const tunnel = await connect(upstream, permit(echo.port, '127.0.0.1'))
    expect((await tunnel.side.read())?.toString()).toBe('SSH-2.0-greeting\r\n')
    expect(await say(tunnel.side, 'ping')).toBe('ping')
  })

  test('the next address is asked for when the upstream says that it can not reach one', async () => {
    const { upstream, proxy } = await through({})
    const tunnel = await connect(upstream, permit(echo.port, '127.0.0.7', '::1', '127.0.0.1'))
    expect(proxy.asked.map((one) => one.target)).toEqual([`127.0.0.7:${echo.port}`, `127.0.0.1:${echo.port}`])
    expect(tunnel.address?.text).toBe('127.0.0.1')
  })

  test('at most three are asked for', async () => {
    const { upstream, proxy } = await through({})
    const result = await attempt(upstream, permit(echo.port, '127.0.0.7', '127.0.0.8', '127.0.0.9', '127.0.0.1'))
    expect(result).toMatchObject({ ok: false, reason: 'connect_unreachable' })
    expect(proxy.asked).toHaveLength(3)
  })

  test('the name of the upstream goes through the resolver, and is not judged', async () => {
    const names: string[] = []
    const resolver: Resolver = {
      resolve: (host) => {
        names.push(host)
        return { ok: true, addresses: [address('127.0.0.1')], ms: 1 }
      },
      close: () => undefined,
    }
    const proxy = await startSmallProxy()
    closing.push(proxy.close)
    const upstream = createUpstream({ url: `http://corp-proxy:${proxy.port}`, resolver })
    await connect(upstream, permit(echo.port, '127.0.0.1'))
    expect(names).toEqual(['corp-proxy'])
  })
})

describe('credentials', () => {
  test.each<[string, Partial<UpstreamOptions>, string]>([
    ['from the options', { credentials: SECRET }, ''],
    ['from a file with a newline', { credentials: `${SECRET}\n` }, ''],
    ['from the URL', {}, `${SECRET}@`],
    ['the options win over the URL', { credentials: SECRET }, 'other:thing@'],
  ])('%s', async (_sentence, options, inUrl) => {
    const proxy = await startSmallProxy({ credentials: SECRET })
    closing.push(proxy.close)
    const upstream = make({ ...options, url: `http://${inUrl}127.0.0.1:${proxy.port}` })
    expect(await say((await connect(upstream, permit(echo.port, '127.0.0.1'))).side, 'ping')).toBe('ping')
  })

  test('percent-encoded characters in the URL are decoded', async () => {
    const proxy = await startSmallProxy({ credentials: 'us er:p@ss:ü' })
    closing.push(proxy.close)
    const upstream = make({ url: `http://us%20er:p%40ss%3A%C3%BC@127.0.0.1:${proxy.port}` })
    await connect(upstream, permit(echo.port, '127.0.0.1'))
  })

  test('refused ones are a refusal, and appear nowhere', async () => {
    const { upstream } = await through({ credentials: SECRET }, { credentials: 'another:one' })
    const result = await attempt(upstream, permit(echo.port, '127.0.0.1'))
    expect(result).toMatchObject({ ok: false, reason: 'connect_refused', upstream: `${upstream.text} answered 407` })
    expectNoSecret(result)
  })

  test('the upstream itself prints without them', () => {
    const upstream = make({ url: `http://${SECRET}@127.0.0.1:8080` })
    expect(upstream.text).toBe('127.0.0.1:8080')
    expectNoSecret(upstream)
  })

  test.each([
    ['another scheme', `socks5://${SECRET}@127.0.0.1:1080`],
    ['a path', `http://${SECRET}@127.0.0.1:8080/path`],
    ['a query', `http://${SECRET}@127.0.0.1:8080/?${SECRET}`],
    ['a bad percent encoding', `http://operator:%zz-MARKER-word@127.0.0.1:8080`],
    ['a host that is none', `http://${SECRET}@a..b:8080`],
    ['no URL', `${SECRET}@127.0.0.1`],
  ])('%s is refused without repeating them', (_sentence, url) => {
    const thrown = thrownBy(() => make({ url }))
    expect(thrown).toBeInstanceOf(TypeError)
    expectNoSecret(thrown)
  })

  test.each(['no-colon-MARKER-word', 'user:two\nlines-MARKER-word', ''])(
    'credentials `%j` are refused without repeating them',
    (credentials) => {
      const thrown = thrownBy(() => make({ url: 'http://127.0.0.1:8080', credentials }))
      expect(thrown).toBeInstanceOf(TypeError)
      expectNoSecret(thrown)
    },
  )
})

describe('replies of the upstream', () => {
  const rows: readonly (readonly [string, string, string])[] = [
    ['403', 'HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n', 'connect_refused'],
    ['404', 'HTTP/1.1 404 Not Found\r\n\r\n', 'connect_refused'],
    ['407', 'HTTP/1.1 407 Proxy Authentication Required\r\n\r\n', 'connect_refused'],
    ['302', 'HTTP/1.1 302 Found\r\nLocation: http://elsewhere.example.test/\r\n\r\n', 'connect_refused'],
    ['500', 'HTTP/1.1 500 Oops\r\n\r\n', 'connect_unreachable'],
    ['502', 'HTTP/1.0 502 Bad Gateway\r\n\r\n', 'connect_unreachable'],
    ['503', 'HTTP/1.1 503 Service Unavailable\r\n\r\n', 'connect_unreachable'],
    ['504', 'HTTP/1.1 504 Gateway Timeout\r\n\r\n', 'connect_timeout'],
    ['101', 'HTTP/1.1 101 Switching Protocols\r\n\r\n', 'connect_unreachable'],
    ['too many interim ones', 'HTTP/1.1 100 Continue\r\n\r\n'.repeat(5), 'connect_unreachable'],
    ['rubbish', '\x00\x01\x02', 'connect_unreachable'],
    ['another protocol', 'SSH-2.0-OpenSSH_9.6\r\n', 'connect_unreachable'],
    ['HTTP/2', 'HTTP/2 200\r\n\r\n', 'connect_unreachable'],
    ['no status', 'HTTP/1.1 OK\r\n\r\n', 'connect_unreachable'],
    ['bare line feeds', 'HTTP/1.1 200 OK\n\n', 'connect_timeout'],
    ['a bare line feed in a header', 'HTTP/1.1 200 OK\r\nA: b\nC: d\r\n\r\n', 'connect_unreachable'],
    ['a header without a colon', 'HTTP/1.1 200 OK\r\nnonsense\r\n\r\n', 'connect_unreachable'],
    ['a folded header', 'HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n', 'connect_unreachable'],
    ['a NUL in the reason', 'HTTP/1.1 200 O\0K\r\n\r\n', 'connect_unreachable'],
    ['a head of 17 KiB', `HTTP/1.1 200 OK\r\nA: ${'b'.repeat(17_000)}\r\n\r\n`, 'connect_unreachable'],
    ['a head without an end', `HTTP/1.1 200 OK\r\n${'A: b\r\n'.repeat(20_000)}`, 'connect_unreachable'],
    ['silence', '', 'connect_timeout'],
    ['half a head', 'HTTP/1.1 200 OK\r\nA:', 'connect_timeout'],
  ]
  test.each(rows)('%s', async (_sentence, reply, reason) => {
    const proxy = await startRawProxy((socket) => void socket.write(Buffer.from(reply, 'latin1')))
    closing.push(proxy.close)
    const upstream = make({ url: `http://127.0.0.1:${proxy.port}`, credentials: SECRET })
    const startedMs = performance.now()
    const result = await attempt(upstream, permit(echo.port, '127.0.0.1'), 400)
    expect(result).toMatchObject({ ok: false, reason })
    expect(performance.now() - startedMs).toBeLessThan(1_500)
    expectNoSecret(result)
  })

  test('a connection that closes without a reply', async () => {
    const proxy = await startRawProxy((socket) => socket.destroy())
    closing.push(proxy.close)
    const result = await attempt(make({ url: `http://127.0.0.1:${proxy.port}` }), permit(echo.port, '127.0.0.1'))
    expect(result).toMatchObject({
      ok: false,
      reason: 'connect_unreachable',
      upstream: expect.stringContaining('closed without a reply') as string,
    })
  })

  test.each([
    'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n',
    'HTTP/1.0 200\r\n\r\n',
    'HTTP/1.1 204 \r\n\r\n',
    'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n',
  ])('%j is a tunnel, byte by byte', async (reply) => {
    const proxy = await startRawProxy((socket) => {
      socket.setNoDelay(true)
      void (async () => {
        for (const byte of Buffer.from(`${reply}hello`, 'latin1')) {
          await new Promise((resolve) => socket.write(Buffer.of(byte), resolve))
          await new Promise((resolve) => setImmediate(resolve))
        }
      })()
    })
    closing.push(proxy.close)
    const tunnel = await connect(make({ url: `http://127.0.0.1:${proxy.port}` }), permit(echo.port, '127.0.0.1'))
    let got = ''
    while (got.length < 5) got += ((await tunnel.side.read()) ?? Buffer.from('!!!!!')).toString()
    expect(got).toBe('hello')
  })

  test('nobody listens where the upstream should be', async () => {
    const proxy = await startSmallProxy()
    await proxy.close()
    const result = await attempt(make({ url: `http://127.0.0.1:${proxy.port}` }), permit(echo.port, '127.0.0.1'))
    expect(result).toMatchObject({ ok: false, reason: 'connect_refused' })
  })

  test('its name does not resolve', async () => {
    const resolver: Resolver = { resolve: () => ({ ok: false, reason: 'dns_failed', ms: 1 }), close: () => undefined }
    const result = await attempt(
      createUpstream({ url: 'http://corp-proxy:8080', resolver }),
      permit(echo.port, '127.0.0.1'),
    )
    expect(result).toMatchObject({
      ok: false,
      reason: 'connect_unreachable',
      upstream: 'corp-proxy:8080 does not resolve',
    })
  })

  test('its name resolves never', async () => {
    const resolver: Resolver = { resolve: () => new Promise(() => undefined), close: () => undefined }
    const result = await attempt(
      createUpstream({ url: 'http://corp-proxy:8080', resolver }),
      permit(echo.port, '127.0.0.1'),
      200,
    )
    expect(result).toMatchObject({ ok: false, reason: 'connect_timeout' })
  })

  test('an abort rejects with its reason and closes the connection', async () => {
    const gone = deferred()
    const asked = deferred()
    const proxy = await startRawProxy((socket) => {
      socket.once('close', () => gone.resolve())
      asked.resolve()
    })
    closing.push(proxy.close)
    const abort = new AbortController()
    const pending = make({ url: `http://127.0.0.1:${proxy.port}` }).connect(permit(echo.port, '127.0.0.1'), SIDES, {
      timeoutMs: 5_000,
      signal: abort.signal,
    })
    await asked.promise
    abort.abort(new Error('the client is gone'))
    await expect(pending).rejects.toThrow('the client is gone')
    await gone.promise
  })
})

describe('an upstream over TLS', () => {
  test('with a certificate for its address', async () => {
    const { upstream } = await through(
      { ca: authority.cert, credentials: SECRET },
      { tls: leaf, credentials: SECRET, greeting: 'hi' },
    )
    const tunnel = await connect(upstream, permit(echo.port, '127.0.0.1'))
    expect((await tunnel.side.read())?.toString()).toBe('hi')
    expect(await say(tunnel.side, 'ping')).toBe('ping')
  })

  test('with a certificate for its name', async () => {
    const proxy = await startSmallProxy({ tls: leaf })
    closing.push(proxy.close)
    const upstream = make({ url: `https://proxy.example.test:${proxy.port}`, ca: authority.cert })
    expect(await say((await connect(upstream, permit(echo.port, '127.0.0.1'))).side, 'ping')).toBe('ping')
  })

  test('a certificate for another name is not accepted, and credentials are not sent', async () => {
    const proxy = await startSmallProxy({ tls: leaf })
    closing.push(proxy.close)
    const upstream = make({ url: `https://other.example.test:${proxy.port}`, ca: authority.cert, credentials: SECRET })
    expect(await attempt(upstream, permit(echo.port, '127.0.0.1'))).toMatchObject({
      ok: false,
      reason: 'connect_refused',
    })
    expect(proxy.asked).toEqual([])
  })

  test('nor is one of an authority that nobody named', async () => {
    const { upstream, proxy } = await through({}, { tls: leaf })
    expect(await attempt(upstream, permit(echo.port, '127.0.0.1'))).toMatchObject({
      ok: false,
      reason: 'connect_refused',
    })
    expect(proxy.asked).toEqual([])
  })

  test('an upstream that never finishes the handshake is a time-out', async () => {
    const silent = net.createServer()
    silent.listen(0, '127.0.0.1')
    await once(silent, 'listening')
    const socket = once(silent, 'connection') as Promise<[net.Socket]>
    closing.push(async () => {
      ;(await socket)[0].destroy()
      silent.close()
    })
    const upstream = make({
      url: `https://127.0.0.1:${(silent.address() as net.AddressInfo).port}`,
      ca: authority.cert,
    })
    expect(await attempt(upstream, permit(echo.port, '127.0.0.1'), 300)).toMatchObject({
      ok: false,
      reason: 'connect_timeout',
    })
  })
})

describe('plain HTTP', () => {
  test('where the upstream resolves, requests go in absolute form with its credentials', async () => {
    const { upstream, proxy } = await through(
      { resolve: 'upstream', credentials: SECRET },
      { credentials: SECRET, route: () => ({ host: '127.0.0.1', port: web.port }) },
    )
    const opened = await upstream.forward(unresolvedPermit('web.example.test:80'), { timeoutMs: 5_000 })
    if (!opened.ok) throw new Error(opened.upstream)
    const authorization = opened.form.kind === 'absolute' ? opened.form.proxyAuthorization : undefined
    const answer = await request(opened.connection, 'http://web.example.test/page', {
      host: 'web.example.test',
      'proxy-authorization': authorization,
    })
    expect(answer).toBe('ok')
    expect(proxy.asked).toMatchObject([{ method: 'GET', target: 'http://web.example.test/page' }])
  })

  test('where names are resolved here, requests go in origin form through a tunnel to the judged address, and the Host stays', async () => {
    web.requests.length = 0
    const { upstream, proxy } = await through({ credentials: SECRET }, { credentials: SECRET })
    const opened = await upstream.forward(permit(web.port, '127.0.0.1'), { timeoutMs: 5_000 })
    if (!opened.ok) throw new Error(opened.upstream)
    expect(opened.form).toEqual({ kind: 'origin' })
    expect(await request(opened.connection, '/page', { host: 'web.example.test' })).toBe('ok')
    expect(web.requests.at(-1)?.headers.host).toBe('web.example.test')
    expect(proxy.asked.map((one) => `${one.method} ${one.target}`)).toEqual([`CONNECT 127.0.0.1:${web.port}`])
  })

  test('over TLS to the upstream too', async () => {
    const { upstream } = await through({ ca: authority.cert }, { tls: leaf })
    const opened = await upstream.forward(permit(web.port, '127.0.0.1'), { timeoutMs: 5_000 })
    if (!opened.ok) throw new Error(opened.upstream)
    expect(await request(opened.connection, '/page', { host: 'web.example.test' })).toBe('ok')
  })

  test('a refused tunnel is a refusal', async () => {
    const { upstream } = await through({}, { credentials: 'another:one' })
    expect(await upstream.forward(permit(web.port, '127.0.0.1'), { timeoutMs: 5_000 })).toMatchObject({
      ok: false,
      reason: 'connect_refused',
    })
  })
})

const squid = ['/usr/sbin/squid', '/usr/bin/squid'].find((file) => fs.existsSync(file))
if (squid === undefined && process.env['CI'] === undefined)
  console.log('skipped: squid is not installed (apt-get install squid)')
describe.skipIf(squid === undefined && process.env['CI'] === undefined)('squid as the upstream', () => {
  let port: number
  beforeAll(async () => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-squid-'))
    fs.chmodSync(folder, 0o777)
    const helper = path.join(folder, 'helper.sh')
    fs.writeFileSync(
      helper,
      `#!/bin/sh\nwhile read -r user pass; do [ "$user $pass" = "operator pass-MARKER-word" ] && echo OK || echo ERR; done\n`,
      { mode: 0o755 },
    )
    port = await freePort()
    const file = path.join(folder, 'squid.conf')
    fs.writeFileSync(
      file,
      [
        `http_port 127.0.0.1:${port}`,
        `auth_param basic program ${helper}`,
        'auth_param basic realm upstream',
        'acl known proxy_auth REQUIRED',
        'http_access allow known',
        'http_access deny all',
        'cache deny all',
        'access_log none',
        `cache_log ${folder}/cache.log`,
        `pid_filename ${folder}/squid.pid`,
        `coredump_dir ${folder}`,
        'shutdown_lifetime 0 seconds',
        `hosts_file ${folder}/hosts`,
      ].join('\n'),
    )
    fs.writeFileSync(path.join(folder, 'hosts'), '127.0.0.1 web.example.test\n')
    const child = spawn(squid ?? 'squid', ['-N', '-f', file], { stdio: 'ignore' })
    squidEnd = async () => {
      if (child.exitCode === null) {
        child.kill('SIGKILL')
        await once(child, 'exit')
      }
      fs.rmSync(folder, { recursive: true, force: true })
    }
    await answers(port)
  })
  let squidEnd: () => Promise<void> = () => Promise.resolve()
  afterAll(() => squidEnd())

  test('a tunnel to the judged address', async () => {
    const upstream = make({ url: `http://127.0.0.1:${port}`, credentials: SECRET })
    expect(await say((await connect(upstream, permit(echo.port, '127.0.0.1'))).side, 'ping')).toBe('ping')
  })

  test('plain HTTP by a name that only squid knows', async () => {
    const upstream = make({ url: `http://127.0.0.1:${port}`, credentials: SECRET, resolve: 'upstream' })
    const opened = await upstream.forward(unresolvedPermit(`web.example.test:${web.port}`), { timeoutMs: 5_000 })
    if (!opened.ok || opened.form.kind !== 'absolute') throw new Error('not in absolute form')
    const target = `http://web.example.test:${web.port}/page`
    expect(
      await request(opened.connection, target, {
        host: `web.example.test:${web.port}`,
        'proxy-authorization': opened.form.proxyAuthorization,
      }),
    ).toBe('ok')
  })

  test('wrong credentials', async () => {
    const upstream = make({ url: `http://127.0.0.1:${port}`, credentials: 'operator:wrong' })
    expect(await attempt(upstream, permit(echo.port, '127.0.0.1'))).toMatchObject({
      ok: false,
      reason: 'connect_refused',
      upstream: `127.0.0.1:${port} answered 407`,
    })
  })

  test('a port where nobody listens', async () => {
    const upstream = make({ url: `http://127.0.0.1:${port}`, credentials: SECRET })
    expect(await attempt(upstream, permit(await freePort(), '127.0.0.1'))).toMatchObject({
      ok: false,
      reason: 'connect_unreachable',
    })
  })
})

async function through(options: Partial<UpstreamOptions>, proxyOptions: SmallProxyOptions = {}) {
  const proxy = await startSmallProxy(proxyOptions)
  closing.push(proxy.close)
  const scheme = proxyOptions.tls === undefined ? 'http' : 'https'
  return { proxy, upstream: make({ ...options, url: `${scheme}://127.0.0.1:${proxy.port}` }) }
}

const SIDES: SideMaker<Side> = {
  ofWire: (wire) => new Side(wire),
  ofSocket: (socket) => new Side(new SocketWire(socket)),
}

function make(options: Omit<UpstreamOptions, 'resolver'>): Upstream {
  return createUpstream({
    ...options,
    resolver: { resolve: () => ({ ok: true, addresses: [address('127.0.0.1')], ms: 0 }), close: () => undefined },
  })
}

function attempt(upstream: Upstream, one: Permit, timeoutMs = 5_000) {
  return upstream.connect(one, SIDES, { timeoutMs })
}

async function connect(upstream: Upstream, one: Permit) {
  const tunnel = await attempt(upstream, one)
  if (!tunnel.ok) throw new Error(`${tunnel.reason}: ${tunnel.upstream}`)
  closing.push(() => tunnel.connection.destroy())
  return { ...tunnel, side: tunnel.connection }
}

async function say(side: Side, words: string): Promise<string> {
  side.write(Buffer.from(words))
  let heard = ''
  while (heard.length < words.length) {
    const chunk = await side.read()
    if (chunk === null) throw new Error(`closed after \`${heard}\``)
    heard += chunk.toString()
  }
  return heard
}

async function request(
  socket: net.Socket,
  target: string,
  headers: Record<string, string | undefined>,
): Promise<string> {
  const given = Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== undefined)) as Record<
    string,
    string
  >
  const sent = http
    .request({ createConnection: () => socket, path: target, headers: { ...given, connection: 'close' } })
    .end()
  const [response] = (await once(sent, 'response')) as [http.IncomingMessage]
  let body = ''
  for await (const chunk of response) body += String(chunk)
  return body
}

function expectNoSecret(value: unknown): void {
  const shown = [
    inspect(value, { depth: 9, showHidden: true }),
    JSON.stringify(value),
    value instanceof Error ? `${value.stack}` : '',
  ]
  const encoded = Buffer.from(SECRET).toString('base64')
  for (const text of shown) {
    expect(text).not.toContain('MARKER')
    expect(text).not.toContain(encoded)
  }
}

function thrownBy(call: () => unknown): unknown {
  try {
    call()
  } catch (error) {
    return error
  }
  return undefined
}

async function answers(port: number): Promise<void> {
  for (let left = 200; left > 0; left--) {
    const socket = net.connect(port, '127.0.0.1')
    const isOpen = await new Promise<boolean>((resolve) => {
      socket.once('connect', () => resolve(true))
      socket.once('error', () => resolve(false))
    })
    socket.destroy()
    if (isOpen) return
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  throw new Error('squid does not answer')
}
