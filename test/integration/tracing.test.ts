/** One trace for each connection, as a collector gets it; and what of a hostile client gets into it, which is nothing but identifiers. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import net from 'node:net'
import path from 'node:path'
import { type HttpSeen, type Origin, startEcho, startHttp } from '../origins/origins.ts'
import { attribute, type Collector, type OtlpSpan, startCollector } from './otlp-traces.ts'
import { scrape } from './scrape.ts'
import { startTestGateway, type TestGateway } from './test-gateway.ts'
import { WireClient } from './wire.ts'

const HOST = '127.66.0.10'
const TRACE = '0af7651916cd43dd8448eb211c80319c'
const PARENT = 'b7ad6b7169203331'
const TRACEPARENT = `00-${TRACE}-${PARENT}-01`
const EGRESS = { egress: { kind: 'allow-all' } }

let echo: Origin
let http: Origin & { readonly requests: HttpSeen[] }
let collector: Collector
let gateway: TestGateway
let token: string
const clients: WireClient[] = []

beforeAll(async () => {
  ;[echo, http, collector] = await Promise.all([startEcho(HOST), startHttp(HOST), startCollector()])
  gateway = await startTestGateway({
    policy: { ceiling: { kind: 'allow-all' } },
    network: {
      allowPrivate: ['127.66.0.0/24'],
      hosts: { 'echo.example.test': HOST, 'dead.example.test': '127.66.0.250' },
    },
    admin: { open: ['jwks', 'metrics'] },
    tracing: { otlp: { url: collector.url }, maxPerSecond: 100_000 },
  })
  token = await gateway.token({ ...EGRESS, sub: 'sbx_traced' })
})
afterEach(() => {
  for (const client of clients.splice(0)) client.destroy()
})
afterAll(async () => {
  await gateway.close()
  await Promise.all([echo.close(), http.close(), collector.close()])
  expect(collector.faults).toEqual([])
})

async function send(head: string): Promise<WireClient> {
  const client = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
  clients.push(client)
  client.send(head)
  return client
}

const connectHead = (target: string, fields = '', credentials = token) =>
  `CONNECT ${target} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${credentials}\r\n${fields}\r\n`

/** The spans of one trace, once its `connection` is there. */
async function traceOf(find: (root: OtlpSpan) => boolean): Promise<Readonly<Record<string, OtlpSpan | undefined>>> {
  for (let tries = 0; tries < 800; tries += 1) {
    const root = collector.spans.findLast((span) => span.name === 'connection' && find(span))
    if (root !== undefined) {
      const parts = collector.spans.filter(({ parentSpanId }) => parentSpanId === root.spanId)
      return Object.fromEntries([root, ...parts].map((span) => [span.name, span]))
    }
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  throw new Error(`no such trace; there are\n${JSON.stringify(collector.spans.map(({ name }) => name))}`)
}
const inTrace = (traceId: string) => (root: OtlpSpan) => root.traceId === traceId

describe('a trace', () => {
  test('of a tunnel has every step, hangs where its client says, and shows what the audit log shows', async () => {
    const client = await send(connectHead(`echo.example.test:${echo.port}`, `traceparent: ${TRACEPARENT}\r\n`))
    expect((await client.answer())?.status).toBe(200)
    client.send('hello')
    await client.take(5)
    client.destroy()
    const trace = await traceOf(inTrace(TRACE))
    expect(Object.keys(trace).sort()).toEqual(['connect', 'connection', 'dns', 'identity', 'policy', 'relay'])
    const { connection, relay, connect } = trace
    expect(connection).toMatchObject({ parentSpanId: PARENT, kind: 2, flags: 0x301, status: {} })
    for (const span of Object.values(trace)) expect(span?.traceId).toBe(TRACE)
    const line = await gateway.auditLine(
      (one) => one['kind'] === 'decision' && one['request_id'] === attribute(connection!, 'sallyport.request_id'),
    )
    expect(attribute(connection!, 'server.address')).toBe('echo.example.test')
    expect(attribute(connection!, 'sallyport.sandbox')).toBe('sbx_traced')
    expect(attribute(connection!, 'sallyport.token_id')).toBe(line['token_id'])
    expect(attribute(connect!, 'sallyport.dialled')).toBe(line['dialled'])
    expect(attribute(relay!, 'sallyport.bytes_in')).toBe('5')
    expect(attribute(connection!, 'sallyport.close_reason')).toBe('client_closed')
    // One after the other, inside the whole.
    const order = [trace['identity'], trace['policy'], trace['dns'], connect, relay]
    const starts = order.map((span) => BigInt(span?.startTimeUnixNano ?? -1))
    expect(starts).toEqual([...starts].sort((a, b) => Number(a - b)))
    for (const span of order)
      expect(BigInt(span!.endTimeUnixNano)).toBeLessThanOrEqual(BigInt(connection!.endTimeUnixNano))
  })

  test('of plain HTTP, and the header goes on to the origin as it came', async () => {
    const traceparent = `00-${'1'.repeat(32)}-${PARENT}-00`
    const client = await send(
      `GET http://${HOST}:${http.port}/x HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\nTraceparent: ${traceparent}\r\nTracestate: vendor=marker\r\n\r\n`,
    )
    expect((await client.answer())?.status).toBe(200)
    const trace = await traceOf(inTrace('1'.repeat(32)))
    expect(trace['connection']?.parentSpanId).toBe(PARENT)
    expect(attribute(trace['connection']!, 'sallyport.dialect')).toBe('http')
    expect(Object.keys(trace)).toContain('relay')
    const seen = http.requests.at(-1)
    expect(seen?.headers['traceparent']).toBe(traceparent)
    expect(seen?.headers['tracestate']).toBe('vendor=marker')
  })

  test('of a refusal is no failure, and one of its own when the client names none', async () => {
    await (
      await send(connectHead('refused.example.test:443', '', await gateway.token({ sub: 'sbx_refused' })))
    ).answer()
    const { connection, ...parts } = await traceOf((root) => attribute(root, 'sallyport.sandbox') === 'sbx_refused')
    expect(Object.keys(parts).sort()).toEqual(['identity', 'policy'])
    expect(attribute(connection!, 'sallyport.reason')).toBe('host_not_allowed')
    expect(connection).toMatchObject({ flags: 0x101, status: {} })
    expect(connection?.parentSpanId).toBeUndefined()
  })

  test('of a destination that is not there says which step failed', async () => {
    const traceId = '2'.repeat(32)
    const client = await send(connectHead('dead.example.test:1', `traceparent: 00-${traceId}-${PARENT}-01\r\n`))
    expect((await client.answer())?.status).toBe(502)
    const { connection, connect, dns } = await traceOf(inTrace(traceId))
    expect(connect?.status).toEqual({ code: 2, message: 'connect_refused' })
    expect(connection?.status).toEqual({ code: 2, message: 'connect_refused' })
    expect(dns?.status).toEqual({})
  })

  test('of bad credentials has one step, and nothing of them', async () => {
    const traceId = '3'.repeat(32)
    const fields = `traceparent: 00-${traceId}-${PARENT}-01\r\n`
    await (await send(connectHead('x.example.test:443', fields, 'marker.bad.credential'))).answer()
    const trace = await traceOf(inTrace(traceId))
    expect(Object.keys(trace).sort()).toEqual(['connection', 'identity'])
    expect(attribute(trace['connection']!, 'sallyport.reason')).toBe('token_malformed')
  })
})

describe('a hostile client', () => {
  test.each([
    ['no identifiers', 'traceparent: hello'],
    ['a trace of zeros', `traceparent: 00-${'0'.repeat(32)}-${PARENT}-01`],
    ['two that differ', `traceparent: ${TRACEPARENT}\r\nTraceParent: 00-${'4'.repeat(32)}-${PARENT}-01`],
    ['the same one twice', `traceparent: ${TRACEPARENT}\r\ntraceparent: ${TRACEPARENT}`],
    ['a list', `traceparent: ${TRACEPARENT}, ${TRACEPARENT}`],
    ['a line end in other words', `traceparent: ${TRACEPARENT}%0d%0aX-Marker: 1`],
    ['obs-text', `traceparent: 00-\xe2\x80\xa8${TRACE}-${PARENT}-01`],
    ['30 KB', `traceparent: 01-${TRACE}-${PARENT}-01-${'m'.repeat(28_000)}`],
    ['a huge tracestate', `tracestate: ${'marker=1,'.repeat(3000)}`],
    ['a token', `traceparent: eyJhbGciOiJub25lIn0.marker.x`],
  ])('that sends %s is served, under a trace of its own', async (sentence, fields) => {
    const sandbox = `sbx_${sentence.replaceAll(/\W/g, '-')}`
    const own = await gateway.token({ ...EGRESS, sub: sandbox })
    const client = await send(connectHead(`echo.example.test:${echo.port}`, `${fields}\r\n`, own))
    expect((await client.answer())?.status).toBe(200)
    client.destroy()
    const { connection } = await traceOf((root) => attribute(root, 'sallyport.sandbox') === sandbox)
    expect(connection?.parentSpanId).toBeUndefined()
    expect(['0'.repeat(32), TRACE, '4'.repeat(32)]).not.toContain(connection?.traceId)
  })

  test('with a line end in its traceparent is refused as any head with one is', async () => {
    const client = await send(connectHead('x.example.test:443', `traceparent: ${TRACEPARENT}\nX-Marker: 1\r\n`))
    expect((await client.answer())?.status).toBe(400)
  })

  test('can not choose what its origin gets: duplicates and nonsense pass on in plain HTTP as they came', async () => {
    const before = http.requests.length
    const client = await send(
      `GET http://${HOST}:${http.port}/y HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\ntraceparent: nonsense\r\ntraceparent: ${TRACEPARENT}\r\n\r\n`,
    )
    expect((await client.answer())?.status).toBe(200)
    expect(http.requests.length).toBe(before + 1)
    const { rawHeaders = [] } = http.requests.at(-1) ?? {}
    const values = rawHeaders.filter((_value, index) => rawHeaders[index - 1]?.toLowerCase() === 'traceparent')
    expect(values).toEqual(['nonsense', TRACEPARENT])
  })

  test('gets nothing of what it sends to the collector but names, ports and identifiers', () => {
    const everything = collector.requests.map(({ body }) => body).join()
    expect(everything).not.toMatch(/marker|eyJ|vendor|nonsense/i)
    expect(everything).not.toContain(token)
  })

  test('is counted: what became of spans is in the metrics', async () => {
    const series = await scrape(gateway.adminPort)
    const spans = series.filter(({ name }) => name === 'sallyport_trace_spans_total')
    expect(spans.map(({ labels }) => labels['result']).sort()).toEqual(['dropped', 'rejected', 'sent'])
    expect(spans.find(({ labels }) => labels['result'] === 'sent')?.value).toBeGreaterThan(20)
  })
})

test('the credentials of the collector come from their file, and are in no log and no metric', async () => {
  const taking = await startCollector()
  const said: string[] = []
  const say = (fields: object, message: string) => void said.push(message + JSON.stringify(fields))
  const probe = await startTestGateway({ policy: { ceiling: { kind: 'allow-all' } } })
  const file = path.join(probe.folder, 'collector')
  writeFileSync(file, 'Bearer marker-collector\n')
  const second = await startTestGateway(
    {
      admin: { open: ['jwks', 'metrics'] },
      tracing: { otlp: { url: taking.url, authorizationFile: file } },
    },
    { logger: { info: say, warn: say, error: say } },
  )
  const client = await WireClient.connect({ port: second.port, host: '127.0.0.1' })
  client.send('CONNECT x.example.test:443 HTTP/1.1\r\nHost: x\r\n\r\n')
  expect((await client.answer())?.status).toBe(407)
  client.destroy()
  const metrics = await (await fetch(`http://127.0.0.1:${second.adminPort}/metrics`)).text()
  const lines = JSON.stringify(second.audit())
  // What waits leaves at the end.
  await second.close()
  await probe.close()
  await taking.close()
  expect(taking.requests.map(({ headers }) => headers.authorization)).toEqual(['Bearer marker-collector'])
  expect(taking.spans.map(({ name }) => name).sort()).toEqual(['connection', 'identity'])
  expect(said.join() + metrics + lines).not.toContain('marker-collector')
})

test('a collector that hangs holds up no connection and no stop', async () => {
  const held: net.Socket[] = []
  const hanging = net.createServer((socket) => held.push(socket.on('error', () => socket.destroy()).resume()))
  await new Promise<void>((resolve) => hanging.listen(0, '127.0.0.1', resolve))
  const { port } = hanging.address() as net.AddressInfo
  const third = await startTestGateway({
    admin: { open: ['jwks', 'metrics'] },
    tracing: { otlp: { url: `http://127.0.0.1:${port}/v1/traces`, timeoutSeconds: 300 } },
  })
  for (let index = 0; index < 60; index += 1) {
    const client = await WireClient.connect({ port: third.port, host: '127.0.0.1' })
    client.send(connectHead('x.example.test:443', '', await third.token()))
    expect((await client.answer())?.status).toBe(403)
    client.destroy()
  }
  const series = await scrape(third.adminPort)
  expect(series.find(({ labels }) => labels['result'] === 'sent')?.value).toBe(0)
  // Far below the patience for the collector.
  await third.close()
  expect(held.length).toBeGreaterThan(0)
  for (const socket of held) socket.destroy()
  await new Promise((resolve) => hanging.close(resolve))
})

test('without a collector nothing of it is loaded', () => {
  const program = `
    const { createGateway, parseConfig } = await import('./proxy/index.ts')
    const { registerHooks } = await import('node:module')
    registerHooks({ load: (url, context, next) => { if (url.includes('/tracing/')) console.log('LOADED', url); return next(url, context) } })
    const fs = await import('node:fs'), os = await import('node:os')
    const folder = fs.mkdtempSync(os.tmpdir() + '/sallyport-tracing-')
    const start = async (more) => {
      const parsed = parseConfig({ state: folder + '/state', listen: { proxy: '127.0.0.1:0', admin: 'off' }, log: { level: 'silent' }, ...more })
      const gateway = await createGateway({ config: parsed.config })
      await gateway.listen()
      await gateway.close()
    }
    await start({})
    console.log('NONE')
    await start({ tracing: { otlp: { url: 'https://collector.example.test/v1/traces' } } })
    fs.rmSync(folder, { recursive: true })
  `
  const output = execFileSync(process.execPath, ['--input-type=module', '-e', program], {
    cwd: path.resolve(import.meta.dirname, '../..'),
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [before = '', after = ''] = output.split('NONE')
  expect(before).not.toContain('LOADED')
  expect(after).toContain('/tracing/tracer.ts')
})
