/** What the tests of sinks share: shippers with short pauses, and receivers that are real servers. */
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import type { AuditLogger } from '../../../../proxy/audit/log.ts'
import { Shipper, type ShipperOptions } from '../../../../proxy/audit/sinks/shipper.ts'
import type { Sink } from '../../../../proxy/audit/sinks/sink.ts'

/** A shipper that runs until the test ends. */
export function startShipper(folder: string, sink: Sink, options: Partial<ShipperOptions> = {}): Shipper {
  const shipper = new Shipper({
    name: 'test',
    sink,
    folder,
    instance: 'gw',
    positionPath: join(folder, 'position.json'),
    pollMs: 5,
    firstPauseMs: 5,
    maxPauseMs: 20,
    ...options,
  })
  shipper.start()
  onTestFinished(() => shipper.close(0))
  return shipper
}

/** One request as it came. */
export interface Received {
  readonly headers: http.IncomingHttpHeaders
  readonly body: string
}

/** How the receiver answers; it has read the whole request. */
export type Answer = (response: http.ServerResponse, received: Received, count: number) => void

export interface Receiver {
  readonly url: string
  readonly requests: Received[]
  /** From now on. */
  answer: Answer
}

/** An HTTP server on loopback that keeps what it gets. */
export async function startReceiver(answer: Answer = (response) => void response.end()): Promise<Receiver> {
  const requests: Received[] = []
  const server = http.createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const received = { headers: request.headers, body: Buffer.concat(chunks).toString() }
      requests.push(received)
      receiver.answer(response, received, requests.length)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(
    () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  )
  const receiver: Receiver = { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, requests, answer }
  return receiver
}

/** A logger that keeps what it was told. */
export function recordingLogger(): AuditLogger & { readonly said: string[] } {
  const said: string[] = []
  const say = (fields: object, message: string): void => void said.push(`${message} ${JSON.stringify(fields)}`)
  return { said, info: say, warn: say, error: say }
}
