/** Sends a stream of server-sent events as fast as the caller takes them and no faster, for as long as the caller may have them. */
import type { ServerResponse } from 'node:http'
import { once } from 'node:events'
import type { EventStream } from './route.ts'

/** A comment keeps the connection from idling. */
const HEARTBEAT_MS = 10_000
/** How soon a caller whose credentials are not good any more is cut off. */
const LOOK_MS = 500
/** For a caller that reads nothing. */
const STALLED_MS = 30_000

/** Resolves when the stream or the connection has ended. */
export async function sendEvents(response: ServerResponse, events: EventStream, isGood: () => boolean): Promise<void> {
  response.writeHead(200, {
    'content-type': 'text/event-stream',
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
    'x-accel-buffering': 'no',
  })
  response.write(': connected\n\n')
  const gone = closed(response)
  const heartbeat = setInterval(() => {
    if (!response.writableNeedDrain) response.write(': \n\n')
  }, HEARTBEAT_MS)
  const look = setInterval(() => {
    if (!isGood()) response.destroy()
  }, LOOK_MS)
  try {
    for await (const event of events) {
      if (response.destroyed) return
      if (response.write(event)) continue
      await once(response, 'drain', { signal: AbortSignal.any([gone, AbortSignal.timeout(STALLED_MS)]) })
    }
  } catch {
    // The caller is gone or takes nothing.
  } finally {
    clearInterval(heartbeat)
    clearInterval(look)
    response.end()
    response.destroy()
  }
}

function closed(response: ServerResponse): AbortSignal {
  const controller = new AbortController()
  if (response.destroyed) controller.abort()
  else response.once('close', () => controller.abort())
  return controller.signal
}
