import net from 'node:net'
import { PassThrough } from 'node:stream'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import tls from 'node:tls'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createStdoutSink } from '../../../../proxy/audit/sinks/stdout.ts'
import { createSyslogSink, type SyslogSettings } from '../../../../proxy/audit/sinks/syslog.ts'
import { createAuthority } from '../../../origins/certificates.ts'
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
import { recordingLogger, startShipper } from './support.ts'

const allLines = (folder: string) => logFiles(folder).flatMap((file) => rawLines(file).map((line) => line.trimEnd()))

interface Receiver {
  readonly port: number
  readonly bytes: () => string
  readonly sockets: net.Socket[]
}

async function startSyslog(
  listen?: (onSocket: (socket: net.Socket) => void) => net.Server,
  reads = true,
): Promise<Receiver> {
  let bytes = ''
  const sockets: net.Socket[] = []
  const onSocket = (socket: net.Socket): void => {
    sockets.push(socket)
    socket.on('error', () => undefined)
    if (reads) socket.on('data', (chunk: Buffer) => (bytes += chunk.toString('latin1')))
  }
  const server = listen?.(onSocket) ?? net.createServer(onSocket)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return { port: (server.address() as net.AddressInfo).port, bytes: () => bytes, sockets }
}

function syslog(port: number, settings: Partial<SyslogSettings> = {}) {
  return createSyslogSink({
    host: '127.0.0.1',
    port,
    tls: undefined,
    timeoutMs: 5000,
    format: 'native',
    instance: 'gw',
    settleMs: 20,
    ...settings,
  })
}

/** Reads frames by octet counting; what is left over is half a frame. */
function frames(bytes: string): readonly string[] {
  const found: string[] = []
  for (let at = 0; at < bytes.length;) {
    const space = bytes.indexOf(' ', at)
    const length = Number(bytes.slice(at, space))
    if (space === -1 || !Number.isInteger(length) || space + 1 + length > bytes.length) break
    found.push(bytes.slice(space + 1, space + 1 + length))
    at = space + 1 + length
  }
  return found
}

describe('syslog', () => {
  it('frames each line as RFC 5424 and RFC 6587 say', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    await log.write(decision({ effective: 'deny', reason: 'host_not_allowed', requested: 'a]\\"b\n12 <13>1 x' }))
    const receiver = await startSyslog()
    const shipper = startShipper(folder, syslog(receiver.port))
    await until(() => shipper.segment === 1, 'the lines to settle')
    const messages = frames(receiver.bytes())
    const shape =
      /^<(\d+)>1 (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) gw sallyport - (\w+) \[meta sequenceId="(\d+)"\] (\{[ -~]*\})$/
    const read = messages.map((message) => shape.exec(message))
    expect(read.map((match) => match?.[5])).toEqual(allLines(folder))
    expect(read.map((match) => match?.[4])).toEqual(readAll(folder).map(({ seq }) => String(seq)))
    expect(read.find((match) => match?.[3] === 'decision')?.[1]).toBe(String(13 * 8 + 4))
    expect(read.find((match) => match?.[3] === 'admin')?.[1]).toBe(String(13 * 8 + 5))
  })

  it('speaks TLS, and sends nothing to a receiver whose certificate is of another name or authority', async () => {
    const folder = makeFolder()
    await openTestLog(folder)
    const authority = createAuthority()
    const wrongName = await startSyslog((onSocket) => tls.createServer(authority.issue('other.example'), onSocket))
    const caFile = join(folder, 'ca.pem')
    writeFileSync(caFile, authority.cert)
    const receiver = await startSyslog((onSocket) => tls.createServer(authority.issue('localhost'), onSocket))
    for (const [to, secure] of [
      [receiver, {}],
      [wrongName, { caFile }],
    ] as const) {
      const logger = recordingLogger()
      const stranger = startShipper(folder, syslog(to.port, { host: 'localhost', tls: secure }), {
        logger,
        positionPath: join(folder, 'stranger.json'),
      })
      await until(() => logger.said.length > 0, 'the refusal')
      await stranger.close(0)
      expect(to.bytes()).toBe('')
    }
    const shipper = startShipper(folder, syslog(receiver.port, { host: 'localhost', tls: { caFile } }))
    await until(() => shipper.segment === 1, 'the lines to settle')
    expect(frames(receiver.bytes())).toHaveLength(readAll(folder).length)
  })

  it('sends again what a broken connection may have swallowed', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    const receiver = await startSyslog()
    const shipper = startShipper(folder, syslog(receiver.port, { settleMs: 600_000 }))
    await until(() => frames(receiver.bytes()).length === readAll(folder).length, 'the first lines')
    expect(shipper.segment).toBe(0)
    receiver.sockets[0]?.resetAndDestroy()
    await writeAll(log, decisions(3))
    await until(() => receiver.sockets.length > 1, 'another connection')
    await until(() => frames(receiver.bytes()).length >= 2 * readAll(folder).length - 3, 'the lines again')
    const seqs = frames(receiver.bytes()).map((message) => Number(/sequenceId="(\d+)"/.exec(message)?.[1]))
    expect(new Set(seqs)).toEqual(new Set(readAll(folder).map(({ seq }) => seq)))
    expect(seqs.filter((seq) => seq === 1).length).toBeGreaterThan(1)
  })

  it('a receiver that takes no bytes makes it late, and half a frame never stays in a connection', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    const deaf = await startSyslog(undefined, false)
    const logger = recordingLogger()
    const shipper = startShipper(folder, syslog(deaf.port, { timeoutMs: 150, settleMs: 600_000 }), { logger })
    const text = 'x'.repeat(500)
    for (let round = 0; round < 40 && logger.said.length === 0; round += 1)
      await writeAll(
        log,
        Array.from({ length: 500 }, () => decision({ requested: text, rule: text })),
      )
    await until(() => logger.said.some((line) => line.includes('took nothing within')), 'the time-out')
    expect(await shipper.status()).toMatchObject({ segment: 0 })
    await until(() => deaf.sockets.length > 1, 'a fresh connection')
  })
})

describe('standard output', () => {
  it('gets one JSON object a line', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    await writeAll(log, decisions(4))
    const output = new PassThrough()
    let text = ''
    output.on('data', (chunk: Buffer) => (text += chunk.toString()))
    startShipper(folder, createStdoutSink({ format: 'native', output }))
    await until(() => text.split('\n').length > readAll(folder).length, 'all lines')
    expect(text.trimEnd().split('\n')).toEqual(allLines(folder))
  })

  it('that nobody reads makes it late, and closing does not hang', async () => {
    const folder = makeFolder()
    const log = await openTestLog(folder)
    await writeAll(log, decisions(400))
    const output = new PassThrough({ highWaterMark: 10 })
    const shipper = startShipper(folder, createStdoutSink({ format: 'native', output }), { batchRecords: 10 })
    await until(() => output.writableLength > 0, 'a full pipe')
    await shipper.close(50)
    expect((await shipper.status()).lagRecords).toBeGreaterThan(300)
  })

  it('that was closed ends nothing', async () => {
    const folder = makeFolder()
    await openTestLog(folder)
    const output = new PassThrough()
    const logger = recordingLogger()
    startShipper(folder, createStdoutSink({ format: 'native', output }), { logger })
    output.destroy(Object.assign(new Error('gone'), { code: 'EPIPE' }))
    const log = await openTestLog(folder, { instance: 'other' })
    await log.write(decision())
    await until(() => logger.said.length > 0, 'the fault')
    expect(logger.said[0]).toContain('standard output can not be written')
  })
})
