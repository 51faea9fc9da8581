/** Every case of `test/cases/requests.json` against a running gateway and real origins. How the steps are written stands in that file. */
import fs from 'node:fs'
import tls from 'node:tls'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { createAuthority } from '../origins/certificates.ts'
import { type HttpSeen, type Origin, startEcho, startHttp, startRecorder, startTls } from '../origins/origins.ts'
import { clientHello } from './client-hello.ts'
import { startTestGateway, type TestGateway } from './test-gateway.ts'
import { type Answer, WireClient } from './wire.ts'

interface Step {
  readonly send?: string
  readonly drip?: string
  readonly wait?: number
  readonly end?: true
  readonly status?: number | number[]
  readonly reason?: string | string[]
  readonly absent?: string[]
  readonly challenge?: string[]
  readonly phrase?: string
  readonly proxyStatus?: string
  readonly body?: string[]
  readonly bodyHas?: string
  readonly bodyNever?: string
  readonly neverEchoes?: string
  readonly noAddress?: boolean
  readonly orClosed?: boolean
  readonly bytes?: string
  readonly hex?: string
  readonly hexPrefix?: string
  readonly notHex?: string
  readonly socks?: number[]
  readonly closed?: true
  readonly open?: true
  readonly until?: 'closed'
  readonly noSuccess?: true
  readonly tls?: string
}

interface Case {
  readonly name: string
  readonly steps: Step[]
  readonly origin: 'none' | 'nobytes' | 'may' | 'must'
  readonly saw?: { line?: string; host?: string; body?: string; absent?: string[]; present?: string[] }
  readonly neverSaw?: string
  readonly closeReason?: string
}

/** DESIGN names these faults more finely than the cases do; DESIGN is right. */
const FINER_CLOSE_REASONS: Readonly<Record<string, string>> = {
  'a ClientHello without a server name is cut': 'sni_missing',
  'plain text on 443 is cut': 'not_tls',
  'a TLS alert instead of a ClientHello is cut': 'not_tls',
}

const { cases } = JSON.parse(fs.readFileSync(new URL('../cases/requests.json', import.meta.url), 'utf8')) as {
  cases: Case[]
}

const HOST = '127.66.0.1'
let gateway: TestGateway
let http: Origin & { readonly requests: HttpSeen[] }
let other: Origin & { readonly requests: HttpSeen[] }
let echo: Origin
let recorder: Origin
let secure: Origin
let origins: Origin[]
let values: Record<string, string>
const authority = createAuthority()

beforeAll(async () => {
  http = await startHttp(HOST)
  other = await startHttp(HOST)
  echo = await startEcho(HOST)
  recorder = await startRecorder(HOST)
  secure = await startTls(HOST, authority.issue('tls2.example.test'))
  origins = [http, other, echo, recorder, secure]
  const names = ['origin', 'other', 'echo', 'tls', 'tls2', 'denied', 'refused', 'closed']
  gateway = await startTestGateway({
    policy: { ceiling: { kind: 'allow-all' }, deniedHosts: ['refused.example.test'] },
    network: {
      allowPrivate: ['127.66.0.0/24', '127.0.0.1/32'],
      hosts: Object.fromEntries(names.map((name) => [`${name}.example.test`, HOST])),
    },
    sni: { ports: [443, recorder.port, secure.port] },
    limits: { perSandbox: { newPerSecond: 100_000 } },
  })
  const allowedHosts = ['origin', 'other', 'echo', 'tls', 'tls2', 'closed'].map(
    (name) =>
      `${name}.example.test:${{ origin: http, other, echo, tls: recorder, tls2: secure, closed: { port: 9 } }[name]!.port}`,
  )
  const token = await gateway.token({ egress: { kind: 'static', allowedHosts } })
  const bad = token.slice(0, -20) + (token.at(-20) === 'A' ? 'B' : 'A') + token.slice(-19)
  const hs = await gateway.shortToken({ egress: { kind: 'allow-all' } })
  const port = (value: number) => String.fromCharCode(value >> 8, value & 255)
  values = {
    TOKEN: token,
    TOKENALL: await gateway.token({ egress: { kind: 'allow-all' } }),
    BAD: bad,
    BASIC: Buffer.from(`sbx:${token}`).toString('base64'),
    BADBASIC: Buffer.from(`sbx:${bad}`).toString('base64'),
    ORIGIN: `origin.example.test:${http.port}`,
    OTHER: `other.example.test:${other.port}`,
    ECHO: `echo.example.test:${echo.port}`,
    TLS: `tls.example.test:${recorder.port}`,
    DENIED: `denied.example.test:${http.port}`,
    PROXYPORT: String(gateway.port),
    ADMIN: `127.0.0.1:${gateway.adminPort}`,
    SOCKSAUTH: `\x01\x01u${String.fromCharCode(hs.length)}${hs}`,
    'PORT:ECHO': port(echo.port),
    'PORT:DENIED': port(http.port),
    'PORTOF:ECHO': String(echo.port),
  }
})

afterAll(async () => {
  await gateway.close()
  await Promise.all(origins.map((origin) => origin.close()))
})

beforeEach(() => {
  for (const origin of origins) origin.reset()
  http.requests.length = 0
  other.requests.length = 0
})

describe('requests', () => {
  test.each(cases.map((one) => [one.name, one] as const))('%s', async (_name, one) => {
    const linesBefore = gateway.audit().length
    const client = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
    try {
      for (const step of one.steps) await run(client, step)
      await checkOrigins(one)
      client.destroy()
      await checkAudit(one, linesBefore)
    } finally {
      client.destroy()
    }
  })
})

async function run(client: WireClient, step: Step): Promise<void> {
  if (step.send !== undefined) client.send(fill(step.send))
  if (step.drip !== undefined)
    for (const byte of Buffer.from(fill(step.drip), 'latin1')) client.send(Buffer.from([byte]))
  if (step.wait !== undefined) await new Promise((resolve) => setTimeout(resolve, step.wait))
  if (step.end) client.end()
  if (step.status !== undefined) checkAnswer(step, await client.answer())
  if (step.bytes !== undefined) expect((await client.take(step.bytes.length)).toString('latin1')).toBe(step.bytes)
  if (step.hex !== undefined) expect((await client.take(step.hex.length / 2)).toString('hex')).toBe(step.hex)
  if (step.hexPrefix !== undefined) await checkPrefix(client, step)
  if (step.socks !== undefined) await checkSocks(client, step)
  if (step.closed) expect((await client.over()).toString('latin1')).toBe('')
  if (step.until === 'closed') {
    const rest = (await client.over()).toString('latin1')
    if (step.noSuccess) expect(rest.startsWith('\x00\x5a')).toBe(false)
  }
  if (step.open) expect(await client.staysOpen(300)).toBe(true)
  if (step.tls !== undefined) await handshake(step.tls)
}

function checkAnswer(step: Step, answer: Answer | undefined): void {
  if (!answer) {
    expect(step.orClosed, 'the connection ended without an answer').toBe(true)
    return
  }
  expect([step.status].flat(), answer.raw).toContain(answer.status)
  if (step.reason !== undefined) expect([step.reason].flat()).toContain(answer.headers['x-deny-reason']?.join())
  for (const name of step.absent ?? []) expect(answer.headers[name]).toBeUndefined()
  for (const one of step.challenge ?? [])
    expect(answer.headers['proxy-authenticate']?.some((value) => value.startsWith(one))).toBe(true)
  if (step.phrase !== undefined) expect(answer.phrase).toBe(step.phrase)
  if (step.proxyStatus !== undefined)
    expect(answer.headers['proxy-status']?.join()).toContain(`error=${step.proxyStatus}`)
  if (step.body) {
    expect(answer.body.trimEnd()).not.toContain('\n')
    expect(Object.keys(JSON.parse(answer.body) as object)).toEqual(expect.arrayContaining(step.body))
  }
  if (step.bodyHas !== undefined) expect(answer.body).toContain(fill(step.bodyHas))
  if (step.bodyNever !== undefined) expect(answer.raw).not.toContain(fill(step.bodyNever))
  if (step.neverEchoes !== undefined) expect(answer.raw).not.toContain(fill(step.neverEchoes))
  if (step.noAddress) expect(answer.raw).not.toMatch(/\d+\.\d+\.\d+\.\d+/)
  for (const secret of [values['TOKEN']!, values['BAD']!, values['TOKENALL']!]) expect(answer.raw).not.toContain(secret)
}

async function checkPrefix(client: WireClient, step: Step): Promise<void> {
  const prefix = step.hexPrefix!
  const got = (await client.take((step.notHex ?? prefix).length / 2)).toString('hex')
  expect(got.startsWith(prefix)).toBe(true)
  if (step.notHex !== undefined) expect(got).not.toBe(step.notHex)
}

async function checkSocks(client: WireClient, step: Step): Promise<void> {
  const head = await client.take(4)
  if (head.length < 4) {
    expect(step.orClosed, 'the connection ended without a reply').toBe(true)
    return
  }
  expect(head[0]).toBe(5)
  expect(step.socks).toContain(head[1])
  await client.take((head[3] === 4 ? 16 : 4) + 2)
}

async function handshake(name: string): Promise<void> {
  const client = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
  client.send(
    `CONNECT ${name}:${secure.port} HTTP/1.1\r\nHost: ${name}:${secure.port}\r\nProxy-Authorization: Bearer ${values['TOKEN']!}\r\n\r\n`,
  )
  expect((await client.answer())?.status).toBe(200)
  client.socket.removeAllListeners('data')
  const socket = tls.connect({ socket: client.socket, servername: name, ca: authority.cert })
  const body = await new Promise<string>((resolve, reject) => {
    let text = ''
    socket.on('error', reject)
    socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')))
    socket.on('end', () => resolve(text))
    socket.write(`GET / HTTP/1.1\r\nHost: ${name}\r\n\r\n`)
  })
  expect(body).toContain('200 OK')
  client.destroy()
}

async function checkOrigins(one: Case): Promise<void> {
  const connections = () => origins.reduce((sum, origin) => sum + origin.seen.connections, 0)
  if (one.origin === 'must') await waitFor(() => connections() > 0)
  if (one.origin === 'none') expect(connections()).toBe(0)
  if (one.origin === 'nobytes') expect(origins.reduce((sum, origin) => sum + origin.seen.bytes, 0)).toBe(0)
  const requests = [...http.requests, ...other.requests]
  if (one.neverSaw !== undefined) {
    expect(requests.map((request) => request.line).join('\n')).not.toContain(one.neverSaw)
    expect(origins.map((origin) => origin.seen.raw).join('\n')).not.toContain(one.neverSaw)
  }
  if (!one.saw) return
  await waitFor(() => requests.length > 0)
  const [seen] = requests
  if (one.saw.line !== undefined) expect(seen!.line).toBe(one.saw.line)
  if (one.saw.host !== undefined) expect(seen!.headers.host).toBe(fill(one.saw.host))
  if (one.saw.body !== undefined) expect(seen!.body).toBe(one.saw.body)
  for (const name of one.saw.absent ?? []) expect(seen!.headers[name]).toBeUndefined()
  for (const name of one.saw.present ?? []) expect(seen!.headers[name]).toBeDefined()
}

/** Every case that sent something leaves a line; where the case names a close reason, it is there; no line holds a token. */
async function checkAudit(one: Case, linesBefore: number): Promise<void> {
  await waitFor(() => gateway.audit().length > linesBefore)
  const fresh = () => gateway.audit().slice(linesBefore)
  if (one.closeReason !== undefined) {
    // A tunnel of the case before may end only now: what counts is the end of what this case opened.
    const close = () => {
      const opened = new Set(
        fresh()
          .filter((line) => line['kind'] === 'decision')
          .map((line) => line['request_id']),
      )
      return fresh().find((line) => line['kind'] === 'close' && opened.has(line['request_id']))
    }
    await waitFor(() => close() !== undefined)
    expect(close()?.['close_reason']).toBe(FINER_CLOSE_REASONS[one.name] ?? one.closeReason)
  }
  const text = JSON.stringify(fresh())
  for (const name of ['TOKEN', 'TOKENALL', 'BAD', 'BASIC', 'SOCKSAUTH'])
    expect(text).not.toContain(values[name]!.slice(3))
}

/** Waits for what another process of the kernel finishes by itself (an accept, a close); bounded. */
async function waitFor(condition: () => boolean): Promise<void> {
  for (let tries = 0; tries < 500 && !condition(); tries++) await new Promise((resolve) => setTimeout(resolve, 10))
  expect(condition()).toBe(true)
}

/** Puts values in place of `{…}`; the result is latin1, one character a byte. */
function fill(text: string): string {
  const unescaped = text.replace(/\\x([0-9a-fA-F]{2})/g, (_match, hex: string) =>
    String.fromCharCode(parseInt(hex, 16)),
  )
  return unescaped.replace(/\{([A-Z][A-Z0-9-]*)(?::([^{}]*))?\}/g, (match, word: string, rest: string | undefined) => {
    const [a = '', b = ''] = rest?.split(':') ?? []
    const known = values[rest === undefined ? word : `${word}:${rest}`]
    if (known !== undefined) return known
    if (word === 'LEN') return String.fromCharCode(rest!.length)
    if (word === 'PAD') return 'p'.repeat(Number(a))
    if (word === 'HEADERS')
      return Array.from(
        { length: Number(a) },
        (_none, i) => `x-${String(i).padStart(5, '0')}: ${'v'.repeat(19)}\r\n`,
      ).join('')
    const hello = helloFor(word, a, b)
    if (hello) return hello.toString('latin1')
    throw new Error(`a placeholder that this test does not know: ${match}`)
  })
}

function helloFor(word: string, a: string, b: string): Buffer | undefined {
  const names = a === '-' ? [] : [a]
  switch (word) {
    case 'HELLO':
      return clientHello({ names })
    case 'HELLO-A':
      return clientHello({ names }).subarray(0, Number(b))
    case 'HELLO-B':
      return clientHello({ names }).subarray(Number(b))
    case 'HELLO-REC':
      return clientHello({ names, recordBytes: Number(b) })
    case 'HELLO-BIG':
      return clientHello({ names, padding: Number(b === '' ? 4000 : b) })
    case 'HELLO-TWO':
      return clientHello({ names: [a, b] })
    case 'HELLO-ECH':
      return clientHello({ names, ech: true })
    default:
      return undefined
  }
}
