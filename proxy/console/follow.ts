/** Follows the audit log: server-sent events read from a `fetch`, since an `EventSource` can't bring a token. Comes back by itself when the connection breaks. */
import type { AuditLine } from '../audit/schema.ts'
import { ApiFault, open } from './api.ts'

/** How it goes. */
export type FollowState = 'connecting' | 'open' | 'broken'

/** What {@link follow} needs. */
export interface FollowOptions {
  /** As the API takes them. */
  readonly filters: Readonly<Record<string, string | undefined>>
  /** So many of the last lines come first. */
  readonly lines: number
  readonly onLine: (line: AuditLine) => void
  readonly onState: (state: FollowState, why?: string) => void
  readonly signal: AbortSignal
}

const FIRST_PAUSE_MS = 500
const LONGEST_PAUSE_MS = 10_000
/** A line has a few kilobytes at most; whatever is longer is no line. */
const MAX_EVENT_CHARACTERS = 256 * 1024

/** Ends with `signal`, or when the API says no. */
export async function follow({ filters, lines, onLine, onState, signal }: FollowOptions): Promise<void> {
  const isOver = (): boolean => signal.aborted
  let pauseMs = FIRST_PAUSE_MS
  let wanted = lines
  while (!isOver()) {
    onState('connecting')
    try {
      const response = await open('GET', '/v1/audit/stream', { query: { ...filters, lines: wanted }, signal })
      onState('open')
      pauseMs = FIRST_PAUSE_MS
      // After a break only what is new: what was missed is in the log.
      wanted = 0
      for await (const data of events(response.body)) onLine(JSON.parse(data) as AuditLine)
      onState('broken', 'the gateway ended the stream')
    } catch (error) {
      if (isOver()) return
      const isFinal = error instanceof ApiFault && [400, 401, 403, 404].includes(error.status)
      onState('broken', error instanceof Error ? error.message : undefined)
      if (isFinal) return
    }
    await new Promise((resolve) => setTimeout(resolve, pauseMs))
    pauseMs = Math.min(LONGEST_PAUSE_MS, pauseMs * 2)
  }
}

/** The `data` of each event. @see https://html.spec.whatwg.org/multipage/server-sent-events.html */
async function* events(body: ReadableStream<Uint8Array<ArrayBuffer>> | null): AsyncGenerator<string, void, undefined> {
  if (body === null) return
  const reader = body.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ''
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    rest += value
    const whole = rest.split('\n\n')
    rest = whole.pop() ?? ''
    if (rest.length > MAX_EVENT_CHARACTERS) throw new Error('an event without an end')
    for (const event of whole) {
      const data = event.split('\n').flatMap((line) => (line.startsWith('data: ') ? [line.slice(6)] : []))
      if (data.length > 0) yield data.join('\n')
    }
  }
}
