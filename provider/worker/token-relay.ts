/**
 * Carries a sandbox's requests to a gateway elsewhere and adds its token to each, so that no command has it: on the host of a sandbox that has no network, or
 * in the worker of one that is elsewhere. Decides nothing: whatever the gateway answers goes back as it is. HTTP alone; a client that speaks SOCKS5 is closed.
 */
import http from 'node:http'
import net from 'node:net'
import tls from 'node:tls'
import type { Duplex } from 'node:stream'

/** What is relayed where. */
export interface TokenRelayOptions {
  readonly gateway: URL
  /** PEM of authorities for an `https:` gateway; the system's by default. */
  readonly ca?: string | undefined
  /** Asked for each request; while there is none, requests are refused. */
  readonly token: () => Promise<string>
  readonly listen: { readonly path: string } | { readonly host: string; readonly port: number }
}

/** A relay that listens. */
export interface TokenRelay {
  /** Ends all that is open. */
  readonly cut: () => void
  readonly close: () => Promise<void>
}

const MAX_CONNECTIONS = 1_024
const MAX_HEAD_BYTES = 32 * 1024
const HEAD_TIMEOUT_MS = 10_000
const CONNECT_TIMEOUT_MS = 10_000
/** Of one connection, and what could name another identity. @see RFC 9110 section 7.6.1 */
const OWN_HEADERS = new Set([
  'connection',
  'keep-alive',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
])

/** Resolves when it listens. */
export async function startTokenRelay(options: TokenRelayOptions): Promise<TokenRelay> {
  const open = new Set<Duplex>()
  const track = <T extends Duplex>(stream: T): T => {
    open.add(stream)
    stream.on('error', () => stream.destroy())
    stream.once('close', () => open.delete(stream))
    return stream
  }
  const agent = new http.Agent({ keepAlive: true, maxSockets: MAX_CONNECTIONS })
  agent.createConnection = () => track(connectTo(options, () => undefined))
  const server = http.createServer({
    maxHeaderSize: MAX_HEAD_BYTES,
    headersTimeout: HEAD_TIMEOUT_MS,
    requestTimeout: 0,
    connectionsCheckingInterval: 5_000,
  })
  server.maxConnections = MAX_CONNECTIONS
  server.on('connection', track)
  server.on('connect', (request, client, head) => void tunnel(options, track, request, client, head))
  server.on('request', (request, response) => void forward(options, agent, request, response))
  server.on('clientError', (_error, client) => client.destroy())
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen({ ...options.listen }, resolve)
  })
  const cut = (): void => {
    for (const stream of open) stream.destroy()
  }
  return {
    cut,
    close: async () => {
      const closed = new Promise((resolve) => server.close(resolve))
      cut()
      agent.destroy()
      await closed
    },
  }
}

async function tunnel(
  options: TokenRelayOptions,
  track: <T extends Duplex>(stream: T) => T,
  request: http.IncomingMessage,
  client: Duplex,
  head: Buffer,
): Promise<void> {
  const token = await options.token().catch(() => undefined)
  if (token === undefined) return void client.end(refusal('policy_unavailable', 503))
  // Cut meanwhile: the token may be one of a policy that is no longer in force.
  if (client.destroyed) return
  // 1.0, so that a refusal ends the connection: whoever asks again on it would do so without a token.
  const upstream = track(
    connectTo(options, () =>
      upstream.write(`CONNECT ${request.url ?? ''} HTTP/1.0\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`, 'latin1'),
    ),
  )
  let isAnswered = false
  upstream.once('data', () => (isAnswered = true))
  upstream.on('error', () => {
    if (isAnswered) client.destroy()
    else client.end(refusal('connect_refused', 502))
  })
  // A side that is gone without an end takes the other with it.
  client.once('close', () => upstream.destroy())
  upstream.once('close', () => {
    if (isAnswered && !upstream.readableEnded) client.destroy()
  })
  const begin = (): void => {
    if (head.length > 0) upstream.write(head)
    client.pipe(upstream)
    upstream.pipe(client)
  }
  upstream.once(upstream instanceof tls.TLSSocket ? 'secureConnect' : 'connect', begin)
}

async function forward(
  options: TokenRelayOptions,
  agent: http.Agent,
  request: http.IncomingMessage,
  response: http.ServerResponse,
): Promise<void> {
  const token = await options.token().catch(() => undefined)
  if (token === undefined) {
    refuse(response, 'policy_unavailable', 503)
    return
  }
  // Cut meanwhile: the token may be one of a policy that is no longer in force.
  if (response.destroyed) return
  const { rawHeaders: raw } = request
  const headers: string[] = []
  for (let at = 0; at < raw.length; at += 2) {
    const name = raw[at] ?? ''
    if (!OWN_HEADERS.has(name.toLowerCase())) headers.push(name, raw[at + 1] ?? '')
  }
  headers.push('Proxy-Authorization', `Bearer ${token}`)
  if (request.headers['transfer-encoding'] !== undefined) headers.push('Transfer-Encoding', 'chunked')
  const outgoing = http.request({
    agent,
    method: request.method ?? 'GET',
    path: request.url ?? '/',
    headers,
    setHost: false,
  })
  outgoing.on('response', (answer) => {
    response.writeHead(
      answer.statusCode ?? 502,
      answer.statusMessage ?? '',
      answer.rawHeaders.filter((_text, at, all) => !OWN_HEADERS.has((all[at - (at % 2)] ?? '').toLowerCase())),
    )
    answer.on('error', () => response.destroy())
    answer.pipe(response)
  })
  outgoing.on('error', () => {
    if (response.headersSent) response.destroy()
    else refuse(response, 'connect_refused', 502)
  })
  response.on('close', () => outgoing.destroy())
  request.on('error', () => outgoing.destroy())
  request.pipe(outgoing)
}

/** The address is the operator's own; nothing that comes from a sandbox is in it. */
function connectTo({ gateway, ca }: TokenRelayOptions, onOpen: () => void): net.Socket {
  const host = gateway.hostname.replace(/^\[|\]$/g, '')
  const isTls = gateway.protocol === 'https:'
  const port = gateway.port === '' ? (isTls ? 443 : 80) : Number(gateway.port)
  const socket = isTls
    ? tls.connect(
        { host, port, ...(ca !== undefined && { ca }), ...(net.isIP(host) === 0 && { servername: host }) },
        onOpen,
      )
    : net.connect({ host, port, allowHalfOpen: true }, onOpen)
  const timer = setTimeout(() => socket.destroy(new Error('the gateway does not answer')), CONNECT_TIMEOUT_MS)
  socket.once(isTls ? 'secureConnect' : 'connect', () => clearTimeout(timer)).once('close', () => clearTimeout(timer))
  return socket
}

function refusal(reason: string, status: 502 | 503): string {
  const body = `${JSON.stringify({ reason })}\n`
  return `HTTP/1.1 ${status} ${http.STATUS_CODES[status] ?? ''}\r\nx-deny-reason: ${reason}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`
}

function refuse(response: http.ServerResponse, reason: string, status: 502 | 503): void {
  response.writeHead(status, { 'x-deny-reason': reason, 'content-type': 'application/json', connection: 'close' })
  response.end(`${JSON.stringify({ reason })}\n`)
}
