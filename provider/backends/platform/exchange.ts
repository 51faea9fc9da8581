/** One request to a platform and its whole reply, over pooled connections of a bounded number. Judges nothing but whether there is a reply. */
import type http from 'node:http'
import https from 'node:https'
import nodeHttp from '../../node-http.ts'

/** What is sent. */
export interface OutgoingRequest {
  readonly url: URL
  readonly method: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: Buffer | undefined
  readonly timeoutMs: number
  readonly signal: AbortSignal | undefined
  /** Whether a connection that was used before will do: one that its server has just closed loses the request, and it is then not known what became of it. */
  readonly pooled: boolean
}

/** What came back, whatever it says. */
export interface IncomingReply {
  readonly status: number
  readonly headers: http.IncomingHttpHeaders
  readonly text: string
}

/** There was no whole reply. */
export class LostExchange extends Error {
  /** Whether the request, or a part of it, may have arrived. */
  readonly wasSent: boolean

  constructor(message: string, wasSent: boolean) {
    super(message)
    this.wasSent = wasSent
  }
}

/** The reply is longer than any that is looked at, or can't be one. */
export class UnreadableExchange extends Error {}

/** Connections to one platform. */
export interface Exchanger {
  /** @throws LostExchange, UnreadableExchange, or the reason of the signal */
  readonly exchange: (request: OutgoingRequest) => Promise<IncomingReply>
  readonly close: () => void
}

const MAX_CONNECTIONS = 32
const MAX_IDLE_CONNECTIONS = 4
const MAX_REPLY_BYTES = 1024 * 1024
const MAX_HEAD_BYTES = 32 * 1024

/** Connects to nothing yet. `ca`: PEM of authorities instead of the system's own. */
export function createExchanger(isTls: boolean, ca?: string): Exchanger {
  const make = (keepAlive: boolean): http.Agent =>
    isTls
      ? new https.Agent({
          keepAlive,
          maxSockets: MAX_CONNECTIONS,
          maxFreeSockets: MAX_IDLE_CONNECTIONS,
          minVersion: 'TLSv1.2',
          ...(ca !== undefined && { ca }),
        })
      : new nodeHttp.Agent({ keepAlive, maxSockets: MAX_CONNECTIONS, maxFreeSockets: MAX_IDLE_CONNECTIONS })
  const agents = { pooled: make(true), fresh: make(false) }
  return {
    exchange: (request) => exchange(request, request.pooled ? agents.pooled : agents.fresh, isTls ? https : nodeHttp),
    close: () => {
      agents.pooled.destroy()
      agents.fresh.destroy()
    },
  }
}

function exchange(
  { url, method, headers, body, timeoutMs, signal }: OutgoingRequest,
  agent: http.Agent,
  { request: open }: typeof http | typeof https,
): Promise<IncomingReply> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) {
      reject(signal.reason as Error)
      return
    }
    const outgoing = open(url, {
      agent,
      method,
      maxHeaderSize: MAX_HEAD_BYTES,
      headers: { ...headers, ...(body !== undefined && { 'content-length': body.length }) },
    })
    let wasSent = false
    const settle = (): void => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', onAbort)
    }
    const end = (fault: unknown): void => {
      settle()
      // What the system or TLS says names addresses and certificates, never what was sent.
      reject(isOwn(fault) ? fault : new LostExchange(describe(fault), wasSent))
      outgoing.destroy()
    }
    const onAbort = (): void => {
      settle()
      reject(signal?.reason as Error)
      outgoing.destroy()
    }
    const timer = setTimeout(() => end(new LostExchange(`no reply within ${timeoutMs} ms`, wasSent)), timeoutMs)
    signal?.addEventListener('abort', onAbort, { once: true })
    outgoing.on('socket', (socket) => {
      // Before that nothing has left this machine.
      const sent = (): boolean => (wasSent = true)
      if (socket.connecting) socket.once(agent instanceof https.Agent ? 'secureConnect' : 'connect', sent)
      else sent()
    })
    outgoing.on('error', end)
    outgoing.once('close', () => end(new LostExchange('the connection closed', wasSent)))
    outgoing.once('response', (response) => {
      const pieces: Buffer[] = []
      let bytes = 0
      const encoding = response.headers['content-encoding'] ?? 'identity'
      if (encoding !== 'identity')
        end(new UnreadableExchange(`the reply is encoded as ${encoding}, which was not asked for`))
      response.on('data', (chunk: Buffer) => {
        bytes += chunk.length
        if (bytes > MAX_REPLY_BYTES) end(new UnreadableExchange('the reply is longer than 1 MiB'))
        else pieces.push(chunk)
      })
      response.on('error', end)
      response.once('aborted', () => end(new LostExchange('the connection closed before the reply was whole', true)))
      response.once('end', () => {
        if (!response.complete) return
        settle()
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          text: Buffer.concat(pieces).toString('utf8'),
        })
      })
    })
    outgoing.end(body)
  })
}

function isOwn(fault: unknown): fault is LostExchange | UnreadableExchange {
  return fault instanceof LostExchange || fault instanceof UnreadableExchange
}

/** A host with several addresses has a fault for each. */
function describe(fault: unknown): string {
  if (fault instanceof AggregateError && fault.message === '') return describe(fault.errors[0])
  return fault instanceof Error ? fault.message : 'unknown fault'
}
