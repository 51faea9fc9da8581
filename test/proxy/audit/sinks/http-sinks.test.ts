import { createHmac } from 'node:crypto'
import net from 'node:net'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createOtlpSink } from '../../../../proxy/audit/sinks/otlp.ts'
import type { Sink } from '../../../../proxy/audit/sinks/sink.ts'
import { createWebhookSink } from '../../../../proxy/audit/sinks/webhook.ts'
import {
  decision,
  decisions,
  logFiles,
  makeFolder,
  openTestLog,
  rawLines,
  readAll,
  until,
  writeAll,
} from '../support.ts'
import { type Receiver, recordingLogger, startReceiver, startShipper } from './support.ts'

const SECRET = 'a secret that is long enough to sign with'
const TOKEN = 'Bearer marker-token-7f3a'

interface OtlpBody {
  resourceLogs: [
    {
      resource: { attributes: { key: string; value: { stringValue: string } }[] }
      scopeLogs: [
        {
          logRecords: {
            timeUnixNano: string
            severityText: string
            eventName: string
            body: { stringValue: string }
            attributes: { key: string; value: { stringValue?: string; intValue?: string } }[]
          }[]
        },
      ]
    },
  ]
}

function otlp(folder: string, url: string, timeoutMs = 5000): Sink {
  const authorizationFile = join(folder, 'authorization')
  writeFileSync(authorizationFile, `${TOKEN}\n`)
  return createOtlpSink({
    url: `${url}v1/logs`,
    format: 'native',
    authorizationFile,
    timeoutMs,
    instance: 'gw',
    version: '1',
  })
}

function webhook(folder: string, url: string, secret = SECRET): Sink {
  const secretFile = join(folder, 'secret')
  writeFileSync(secretFile, `${secret}\n`)
  return createWebhookSink({ url, secretFile, timeoutMs: 5000, format: 'native', instance: 'gw' })
}

const otlpRecords = ({ requests }: Receiver) =>
  requests.flatMap(({ body }) => (JSON.parse(body) as OtlpBody).resourceLogs[0].scopeLogs[0].logRecords)
const allLines = (folder: string) => logFiles(folder).flatMap((file) => rawLines(file).map((line) => line.trimEnd()))

describe('OTLP', () => {
  it('sends log records with the line, its time and its fields, and the authorization of the file', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    await log.write(decision({ effective: 'deny', decision: 'deny', reason: 'host_not_allowed' }))
    const receiver = await startReceiver()
    startShipper(folder, otlp(folder, receiver.url))
    await until(
      () => receiver.requests.length > 0 && otlpRecords(receiver).length === readAll(folder).length,
      'all records',
    )
    const records = otlpRecords(receiver)
    expect(records.map(({ body }) => body.stringValue)).toEqual(allLines(folder))
    const refused = records.find(({ eventName }) => eventName === 'sallyport.decision')
    expect(refused).toMatchObject({ severityText: 'WARN' })
    expect(refused?.timeUnixNano).toMatch(/^\d{13}000000$/)
    expect(refused?.attributes).toContainEqual({ key: 'sallyport.tenant', value: { stringValue: 'acme' } })
    expect(refused?.attributes).toContainEqual({ key: 'server.port', value: { intValue: '443' } })
    expect(receiver.requests[0]?.headers).toMatchObject({ authorization: TOKEN, 'content-type': 'application/json' })
  })

  it('sends one by one what a collector rejected in part', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    await writeAll(log, decisions(6))
    const receiver = await startReceiver((response, { body }) => {
      const isPoisoned = body.includes('req_4')
      response.end(JSON.stringify({ partialSuccess: isPoisoned ? { rejectedLogRecords: '1' } : {} }))
    })
    const refused: (string | undefined)[] = []
    startShipper(folder, otlp(folder, receiver.url), { onRefused: ({ line }) => refused.push(line.request_id) })
    await until(() => refused.length > 0 && receiver.requests.at(-1)?.body.includes('req_6') === true, 'the last line')
    expect(refused).toEqual(['req_4'])
  })
})

describe('a webhook', () => {
  const verified = (secret: string | Buffer, { headers, body }: Receiver['requests'][number]) => {
    const expected = createHmac('sha256', secret)
      .update(`${String(headers['webhook-id'])}.${String(headers['webhook-timestamp'])}.${body}`)
      .digest('base64')
    return headers['webhook-signature'] === `v1,${expected}`
  }

  it('signs what it sends, and when', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    await writeAll(log, decisions(3))
    const receiver = await startReceiver()
    startShipper(folder, webhook(folder, receiver.url))
    await until(() => receiver.requests.length > 0, 'a request')
    const [request] = receiver.requests
    if (request === undefined) throw new Error('no request')
    expect(verified(SECRET, request)).toBe(true)
    expect(Math.abs(Number(request.headers['webhook-timestamp']) - Date.now() / 1000)).toBeLessThan(60)
    expect(JSON.parse(request.body)).toMatchObject({
      instance: 'gw',
      events: [{ seq: 1 }, { seq: 2 }, { seq: 3 }, {}, {}],
    })
    expect(request.headers['webhook-id']).toBe('gw:1-5')
  })

  it('takes a secret in the form of the standard', async () => {
    const folder = makeFolder()
    await openTestLog(folder)
    const receiver = await startReceiver()
    const key = Buffer.alloc(32, 7)
    startShipper(folder, webhook(folder, receiver.url, `whsec_${key.toString('base64')}`))
    await until(() => receiver.requests.length > 0, 'a request')
    const [request] = receiver.requests
    expect(request && verified(key, request)).toBe(true)
  })

  it.each([
    ['', 'one line'],
    ['short', 'too short'],
    ['two\nlines of a secret that is long enough', 'one line'],
    ['whsec_c2hvcnQ=', 'too short'],
  ])('sends nothing that it can not sign: %j', async (secret, why) => {
    const folder = makeFolder()
    await openTestLog(folder)
    const receiver = await startReceiver()
    const logger = recordingLogger()
    startShipper(folder, webhook(folder, receiver.url, secret), { logger })
    await until(() => logger.said.length > 0, 'the fault')
    expect(logger.said[0]).toContain(why)
    expect(receiver.requests).toEqual([])
  })

  it('gives the same lines the same id when it sends them again', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    await writeAll(log, decisions(2))
    const receiver = await startReceiver(
      (response, _received, count) => void response.writeHead(count < 4 ? 503 : 200).end(),
    )
    const shipper = startShipper(folder, webhook(folder, receiver.url))
    await until(() => receiver.requests.length >= 4, 'four requests')
    await shipper.close(1000)
    expect(new Set(receiver.requests.slice(0, 4).map(({ headers }) => headers['webhook-id'])).size).toBe(1)
  })
})

describe('an HTTP sink that', () => {
  const faults: readonly (readonly [string, Receiver['answer'], string])[] = [
    ['answers 500', (response) => void response.writeHead(500).end('<html>marker-answer</html>'), 'status 500'],
    ['answers 401', (response) => void response.writeHead(401).end(), 'status 401'],
    ['answers 404', (response) => void response.writeHead(404).end(), 'status 404'],
    ['answers 429', (response) => void response.writeHead(429, { 'retry-after': '0' }).end(), 'status 429'],
    ['asks for a year', (response) => void response.writeHead(503, { 'retry-after': '999999' }).end(), 'status 503'],
    [
      'redirects',
      (response) => void response.writeHead(307, { location: '/elsewhere' }).end(),
      'redirect is not followed',
    ],
    ['hangs', () => undefined, 'no whole answer within'],
    [
      'hangs in the middle of its answer',
      (response) => void response.writeHead(200, { 'content-length': '10' }).write('{'),
      'no whole answer',
    ],
    [
      'gives half an answer',
      (response) => {
        response.writeHead(200, { 'content-length': '10' }).write('{')
        setImmediate(() => response.destroy())
      },
      'the connection failed',
    ],
    ['breaks off', (response) => void response.destroy(), 'the connection failed'],
  ]

  it.each(faults)('%s is tried again, and gets everything', async (_sentence, answer, said) => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    await writeAll(log, decisions(5))
    const receiver = await startReceiver(answer)
    const logger = recordingLogger()
    const shipper = startShipper(folder, otlp(folder, receiver.url, 200), { logger })
    await until(() => logger.said.length > 0 && receiver.requests.length > 1, 'a second attempt')
    expect(await shipper.status()).toMatchObject({ delivered: 0, refused: 0, lagRecords: readAll(folder).length })
    const failed = receiver.requests.length
    receiver.answer = (response) => void response.end('{}')
    await until(() => logger.said.some((text) => text.includes('takes lines again')), 'the end of the fault')
    await shipper.close(1000)
    const records = otlpRecords({ ...receiver, requests: receiver.requests.slice(failed) })
    const bodies = new Set(records.map(({ body }) => body.stringValue))
    expect([...bodies]).toEqual(allLines(folder).slice(0, bodies.size))
    expect(bodies.size).toBe(readAll(folder).length)
    expect(logger.said[0]).toContain(said)
    // Neither what was sent with it nor what came back.
    expect(logger.said.join()).not.toMatch(/marker|127\.0\.0\.1/)
  })

  it('is not there is tried again', async () => {
    const folder = makeFolder()
    await openTestLog(folder)
    const server = net.createServer()
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const { port } = server.address() as net.AddressInfo
    await new Promise((resolve) => server.close(resolve))
    const logger = recordingLogger()
    const shipper = startShipper(folder, otlp(folder, `http://127.0.0.1:${port}/`), { logger })
    await until(() => logger.said.length > 0, 'the fault')
    expect(logger.said[0]).toContain('ECONNREFUSED')
    expect(await shipper.status()).toMatchObject({ delivered: 0 })
  })

  it('answers without end costs no memory, and has taken what it said it took', async () => {
    const folder = makeFolder()
    await openTestLog(folder)
    const receiver = await startReceiver((response) => {
      response.writeHead(200)
      const timer = setInterval(() => response.write('x'.repeat(65_536)), 1)
      response.on('close', () => clearInterval(timer))
      onTestFinished(() => clearInterval(timer))
    })
    const shipper = startShipper(folder, otlp(folder, receiver.url))
    await until(() => shipper.segment === 1, 'the lines to be taken')
    expect(await shipper.status()).toMatchObject({ lagRecords: 0, failures: 0 })
  })
})
