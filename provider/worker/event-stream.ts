/** A reply of one JSON object a line: with signs of life, with backpressure, and with an end that tells a broken one from a whole one. */
import type http from 'node:http'
import { PING_MS } from './wire.ts'

/** An open reply. */
export interface EventStream {
  /** One or more whole lines. False: write no more until `onDrain`. */
  write(lines: string): boolean
  /** The last line; nothing can follow. The connection stays open until `after`. */
  end(event: object, after?: Promise<void>): void
  readonly closed: boolean
  /** Resolves when there is room again, or the reader is gone. */
  drained(): Promise<void>
  onDrain(listener: () => void): void
  /** The reader went before the end. */
  onAbandoned(listener: () => void): void
}

/** Sends the head at once, so that the reader knows that its request has arrived. */
export function openEventStream(response: http.ServerResponse): EventStream {
  let ended = false
  response.writeHead(200, { 'content-type': 'application/x-ndjson', 'cache-control': 'no-store' })
  response.flushHeaders()
  const ping = setInterval(() => {
    if (!response.writableNeedDrain) response.write('{"type":"ping"}\n')
  }, PING_MS)
  response.on('close', () => clearInterval(ping))

  return {
    write: (lines) => lines === '' || response.closed || response.write(lines),
    end(event, after = Promise.resolve()) {
      ended = true
      clearInterval(ping)
      response.write(`${JSON.stringify(event)}\n`)
      void after.then(() => response.end())
    },
    get closed() {
      return response.closed || response.destroyed
    },
    drained() {
      if (response.closed || !response.writableNeedDrain) return Promise.resolve()
      return new Promise((resolve) => {
        const done = (): void => {
          response.off('drain', done).off('close', done)
          resolve()
        }
        response.on('drain', done).on('close', done)
      })
    },
    onDrain(listener) {
      response.on('drain', listener)
    },
    onAbandoned(listener) {
      response.on('close', () => {
        if (!ended || !response.writableFinished) listener()
      })
    },
  }
}
