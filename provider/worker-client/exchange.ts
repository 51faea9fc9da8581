/** One request to a worker and its reply, over a byte stream of its own. A reply that breaks off is a lost connection, never a short one. */
import type http from 'node:http'
import type net from 'node:net'
import { SandboxError } from '../sandbox-error.ts'
import nodeHttp from '../node-http.ts'

/** What every request needs. */
export interface Link {
  readonly connect: () => Promise<net.Socket>
  readonly token: string
  readonly silenceMs: number
}

/** One request. */
export interface ExchangeRequest {
  readonly method: string
  readonly path: string
  readonly headers?: Readonly<Record<string, string>>
  /** Sent piece by piece, as fast as the worker takes it. */
  readonly body?: Iterable<Uint8Array> | AsyncIterable<Uint8Array>
  /** When the worker says something: once it has the body, at once (while the body still goes), or when a process has read the body. */
  readonly answers?: 'after-body' | 'at-once' | 'when-read'
  readonly signal?: AbortSignal | undefined
}

/** A reply whose body has not been read. */
export interface Reply {
  readonly status: number
  readonly headers: http.IncomingHttpHeaders
  /** Up to the reply's proper end. @throws SandboxError `SALLYPORT_SANDBOX_CONNECTION_LOST` when it ends otherwise */
  chunks(): AsyncGenerator<Buffer>
  /** Leaves the rest. */
  destroy(): void
}

/**
 * Sends a request and waits for the head of the reply.
 *
 * @throws SandboxError `SALLYPORT_SANDBOX_CONNECTION_LOST`, the signal's reason, or what the body's source threw
 */
export async function exchange(link: Link, request: ExchangeRequest): Promise<Reply> {
  request.signal?.throwIfAborted()
  const socket = await connect(link)
  if (request.signal?.aborted === true) {
    socket.destroy()
    throw request.signal.reason
  }
  const outgoing = nodeHttp.request({
    createConnection: () => socket,
    method: request.method,
    path: request.path,
    headers: { host: 'worker', connection: 'close', authorization: `Bearer ${link.token}`, ...request.headers },
  })
  const abort = (): void => void outgoing.destroy()
  request.signal?.addEventListener('abort', abort, { once: true })
  const stop = (): void => request.signal?.removeEventListener('abort', abort)
  outgoing.once('close', stop)

  const { answers = 'after-body' } = request
  let refused = false
  let failure: unknown
  const head = new Promise<http.IncomingMessage>((resolve, reject) => {
    outgoing.on('response', (response) => {
      // A refusal says that nobody wants the rest of the body.
      refused = response.statusCode !== 200
      resolve(response)
    })
    outgoing.on('error', reject)
    outgoing.on('close', () => reject(new Error('closed')))
  })
  // It may fail while the body is still being sent.
  head.catch(() => undefined)
  try {
    const sent = send(outgoing, request, answers === 'after-body' ? link.silenceMs : undefined, () => refused)
    sent.catch((error: unknown) => {
      failure = error
      outgoing.destroy()
    })
    // A refusal may come before the body is through; a streamed reply, while it still goes.
    const due = answers === 'at-once' ? Promise.resolve() : sent
    const inDue = due.then(() => (answers === 'when-read' ? head : inTime(head, outgoing, link.silenceMs)))
    const response = await Promise.race([head, inDue])
    return replyOf(response, outgoing, link.silenceMs, (error) => reasonOf(failure ?? error, request.signal))
  } catch (error) {
    outgoing.destroy()
    throw reasonOf(failure ?? error, request.signal)
  }
}

/** The one error for a connection that ended too soon. */
export function lost(cause: unknown, outcome: 'known' | 'unknown' = 'unknown'): SandboxError {
  const message =
    outcome === 'known'
      ? "cannot reach the sandbox's worker"
      : "the connection to the sandbox's worker was lost: what was asked may or may not have been done"
  return new SandboxError('SALLYPORT_SANDBOX_CONNECTION_LOST', message, { cause, outcome })
}

class BodyError extends Error {}

/** Whose fault it was: the caller's wish, the body's source, or else the connection. */
function reasonOf(error: unknown, signal: AbortSignal | undefined): unknown {
  if (signal?.aborted === true) return signal.reason
  if (error instanceof BodyError) return error.cause
  return error instanceof SandboxError ? error : lost(error)
}

async function connect(link: Link): Promise<net.Socket> {
  let timer: NodeJS.Timeout | undefined
  const connecting = link.connect()
  try {
    return await Promise.race([
      connecting,
      new Promise<never>((_resolve, reject) => {
        timer = setTimeout(() => {
          connecting.then(
            (socket) => socket.destroy(),
            () => undefined,
          )
          reject(new Error('no connection in time'))
        }, link.silenceMs)
      }),
    ])
  } catch (error) {
    throw error instanceof SandboxError ? error : lost(error, 'known')
  } finally {
    clearTimeout(timer)
  }
}

async function send(
  outgoing: http.ClientRequest,
  { body }: ExchangeRequest,
  limitMs: number | undefined,
  isRefused: () => boolean,
): Promise<void> {
  if (body === undefined) return void outgoing.end()
  const pieces = sourceOf(body)
  for await (const piece of pieces) {
    if (outgoing.destroyed || isRefused()) return
    if (!outgoing.write(piece)) await drained(outgoing, limitMs)
  }
  outgoing.end()
}

async function* sourceOf(body: Iterable<Uint8Array> | AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  try {
    yield* body
  } catch (error) {
    throw new BodyError('the source failed', { cause: error })
  }
}

function drained(outgoing: http.ClientRequest, limitMs: number | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer =
      limitMs === undefined
        ? undefined
        : setTimeout(() => settle(() => reject(new Error('the worker takes no more'))), limitMs)
    const settle = (how: () => void): void => {
      clearTimeout(timer)
      outgoing.off('drain', go).off('close', go)
      how()
    }
    const go = (): void => settle(resolve)
    outgoing.on('drain', go).on('close', go)
  })
}

async function inTime<T>(promise: Promise<T>, outgoing: http.ClientRequest, limitMs: number): Promise<T> {
  const timer = setTimeout(() => outgoing.destroy(new Error('no reply in time')), limitMs)
  try {
    return await promise
  } finally {
    clearTimeout(timer)
  }
}

function replyOf(
  response: http.IncomingMessage,
  outgoing: http.ClientRequest,
  silenceMs: number,
  reason: (error: unknown) => unknown,
): Reply {
  // Whoever never reads the body must not be hit by its failure.
  response.on('error', () => undefined)
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    async *chunks() {
      const silent = (): void => void response.destroy(new Error('no sign of life'))
      let timer = setTimeout(silent, silenceMs)
      try {
        for await (const chunk of response as AsyncIterable<Buffer>) {
          // The reader may take its time.
          clearTimeout(timer)
          yield chunk
          timer = setTimeout(silent, silenceMs)
        }
        if (!response.complete) throw new Error('the reply broke off')
      } catch (error) {
        throw reason(error)
      } finally {
        clearTimeout(timer)
        outgoing.destroy()
      }
    },
    destroy: () => void outgoing.destroy(),
  }
}
