/** A collector may be slow, down, rude or flooded: spans are lost then, counted, and nothing else happens. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { SpanExporter, type SpanExporterOptions } from '../../../proxy/tracing/span-exporter.ts'
import { recordingLogger, type Receiver, startReceiver } from '../audit/sinks/support.ts'
import { makeFolder, until } from '../audit/support.ts'

const SECRET = 'Bearer marker-collector-credential'

function exporter(url: string, options: Partial<SpanExporterOptions> = {}): SpanExporter {
  const made = new SpanExporter({
    url,
    timeoutMs: 2000,
    instance: 'gw',
    version: '1',
    gatherMs: 1,
    firstPauseMs: 1,
    ...options,
  })
  onTestFinished(() => made.close(0))
  return made
}

const spansIn = ({ requests }: Receiver) =>
  requests.map(
    ({ body }) =>
      (JSON.parse(body) as { resourceSpans: [{ scopeSpans: [{ spans: { n: number }[] }] }] }).resourceSpans[0]
        .scopeSpans[0].spans,
  )
const settled = ({ counts }: SpanExporter) => counts.sent + counts.rejected + counts.dropped

describe('spans', () => {
  test('go in order, in batches, with the credentials that the file holds at the time', async () => {
    const receiver = await startReceiver()
    const authorizationFile = join(makeFolder(), 'authorization')
    writeFileSync(authorizationFile, `${SECRET}\n`)
    const sending = exporter(receiver.url, { authorizationFile })
    for (let n = 0; n < 1200; n += 1) sending.add(JSON.stringify({ n }))
    await until(() => sending.counts.sent === 1200, 'all spans')
    const batches = spansIn(receiver)
    expect(batches.flat().map(({ n }) => n)).toEqual(Array.from({ length: 1200 }, (_, n) => n))
    expect(Math.max(...batches.map((batch) => batch.length))).toBe(512)
    writeFileSync(authorizationFile, 'Bearer another\n')
    sending.add('{"n":1}')
    await until(() => sending.counts.sent === 1201, 'one more')
    expect(receiver.requests[0]?.headers.authorization).toBe(SECRET)
    expect(receiver.requests.at(-1)?.headers.authorization).toBe('Bearer another')
    expect(receiver.requests[0]?.headers['content-type']).toBe('application/json')
  })

  test('that nobody takes for a moment are sent again, and that is said once', async () => {
    const receiver = await startReceiver(
      (response, _received, count) => void response.writeHead(count < 4 ? 503 : 200).end(),
    )
    const logger = recordingLogger()
    const sending = exporter(receiver.url, { logger })
    sending.add('{"n":1}')
    await until(() => settled(sending) === 1, 'the end of it')
    expect(sending.counts).toEqual({ sent: 1, rejected: 0, dropped: 0 })
    expect(logger.said).toHaveLength(2)
    expect(logger.said[0]).toContain('status 503')
    expect(logger.said[1]).toContain('takes spans again')
  })

  test('that the collector takes and does not keep are counted', async () => {
    const receiver = await startReceiver((response) =>
      response.end('{"partialSuccess":{"rejectedSpans":"2","errorMessage":"x"}}'),
    )
    const sending = exporter(receiver.url)
    for (let n = 0; n < 5; n += 1) sending.add(JSON.stringify({ n }))
    await until(() => settled(sending) === 5, 'the end of it')
    expect(sending.counts).toEqual({ sent: 3, rejected: 2, dropped: 0 })
  })

  test('leave at the end', async () => {
    const receiver = await startReceiver()
    const sending = exporter(receiver.url, { gatherMs: 60_000 })
    sending.add('{"n":1}')
    await sending.close(2000)
    expect(sending.counts).toEqual({ sent: 1, rejected: 0, dropped: 0 })
    sending.add('{"n":2}')
    expect(sending.counts.dropped).toBe(1)
  })
})

describe('a collector that', () => {
  test.each<[string, Receiver['answer'], 'rejected' | 'dropped']>([
    ['answers 500', (response) => void response.writeHead(500).end('<html>marker</html>'), 'dropped'],
    ['answers 401', (response) => void response.writeHead(401).end(), 'dropped'],
    [
      'redirects',
      (response) => void response.writeHead(307, { location: 'http://127.0.0.1:1/marker' }).end(),
      'dropped',
    ],
    ['hangs', () => undefined, 'dropped'],
    [
      'drips',
      (response) => {
        const timer = setInterval(() => response.write(' '), 10)
        response.on('close', () => clearInterval(timer))
      },
      'dropped',
    ],
    ['breaks off', (response) => void response.destroy(), 'dropped'],
    ['answers 400', (response) => void response.writeHead(400).end(), 'rejected'],
    ['answers 413', (response) => void response.writeHead(413).end(), 'rejected'],
  ])('%s costs the spans after five attempts at most, and a line in the log', async (_sentence, answer, result) => {
    const receiver = await startReceiver(answer)
    const logger = recordingLogger()
    const sending = exporter(receiver.url, { timeoutMs: 100, logger })
    for (let n = 0; n < 3; n += 1) sending.add(JSON.stringify({ n }))
    await until(() => settled(sending) === 3, 'the end of it')
    expect(sending.counts).toEqual({ sent: 0, rejected: 0, dropped: 0, [result]: 3 })
    expect(receiver.requests.length).toBe(result === 'rejected' ? 1 : 5)
    expect(logger.said).toHaveLength(1)
    expect(logger.said.join()).not.toMatch(/marker|127\.0\.0\.1/)
  })

  test('answers without end has taken what it said it took', async () => {
    const receiver = await startReceiver((response) => {
      response.writeHead(200)
      const timer = setInterval(() => response.write('x'.repeat(65_536)), 1)
      response.on('close', () => clearInterval(timer))
    })
    const sending = exporter(receiver.url)
    sending.add('{"n":1}')
    await until(() => settled(sending) === 1, 'the end of it')
    expect(sending.counts.sent).toBe(1)
  })

  test('hangs while spans come and come leaves 2,048 waiting, and the others are counted', async () => {
    const receiver = await startReceiver(() => undefined)
    const sending = exporter(receiver.url, { timeoutMs: 60_000 })
    for (let n = 0; n < 512; n += 1) sending.add(JSON.stringify({ n }))
    await until(() => receiver.requests.length === 1, 'the first batch to be on its way')
    for (let n = 0; n < 100_000; n += 1) sending.add(JSON.stringify({ n }))
    expect(sending.counts.dropped).toBe(100_000 - 2048)
    await sending.close(0)
    // What waited, and what was on its way.
    expect(sending.counts).toEqual({ sent: 0, rejected: 0, dropped: 100_512 })
  })

  test('hangs while large spans come leaves four megabytes waiting', async () => {
    const receiver = await startReceiver(() => undefined)
    const sending = exporter(receiver.url, { timeoutMs: 60_000, gatherMs: 60_000 })
    const large = JSON.stringify({ n: 1, text: 'x'.repeat(64 * 1024) })
    for (let n = 0; n < 1000; n += 1) sending.add(large)
    expect(1000 - sending.counts.dropped).toBe(Math.floor((4 * 1024 * 1024) / large.length))
  })
})
