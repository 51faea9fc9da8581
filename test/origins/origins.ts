/** Real origins on loopback that write down who connected and what arrived. */
import http from 'node:http'
import net from 'node:net'
import tls from 'node:tls'

/** What one origin saw since the last reset. */
export interface Seen {
  connections: number
  bytes: number
  /** Raw bytes, latin1, of everything that came in, over all connections. */
  raw: string
}

export interface Origin {
  readonly port: number
  readonly address: string
  readonly seen: Seen
  reset(): void
  close(): Promise<void>
}

export interface HttpSeen {
  readonly line: string
  readonly headers: http.IncomingHttpHeaders
  readonly rawHeaders: readonly string[]
  body: string
}

/** Answers every byte with itself. */
export function startEcho(host: string): Promise<Origin> {
  return startTcp(host, (socket, chunk) => void socket.write(chunk))
}

/** Answers the first bytes with `RECORDED`. */
export function startRecorder(host: string): Promise<Origin> {
  const answered = new WeakSet<net.Socket>()
  return startTcp(host, (socket) => {
    if (answered.has(socket)) return
    answered.add(socket)
    socket.write('RECORDED')
  })
}

/** Speaks HTTP/1.1; `/forge…` paths answer with headers that only the gateway may set. */
export async function startHttp(host: string): Promise<Origin & { readonly requests: HttpSeen[] }> {
  const requests: HttpSeen[] = []
  const server = http.createServer((request, response) => {
    const seen: HttpSeen = {
      line: `${request.method ?? ''} ${request.url ?? ''} HTTP/${request.httpVersion}`,
      headers: request.headers,
      rawHeaders: request.rawHeaders,
      body: '',
    }
    requests.push(seen)
    request.setEncoding('latin1')
    request.on('data', (chunk: string) => (seen.body += chunk))
    request.on('end', () => {
      if (request.url === '/forge') {
        response.setHeader('X-Deny-Reason', 'host_not_allowed')
        response.setHeader('Proxy-Status', 'sallyport; error=http_request_denied')
      }
      if (request.url === '/forge-407') {
        response.writeHead(407, { 'Proxy-Authenticate': 'Basic realm="sallyport"', 'X-Deny-Reason': 'token_missing' })
      }
      response.end('ok')
    })
  })
  const origin = await startOn(host, server)
  return Object.assign(origin, { requests })
}

/** A real TLS server; every connection that finishes its handshake gets one HTTP answer. */
export async function startTls(host: string, options: tls.TlsOptions): Promise<Origin> {
  const server = tls.createServer(options, (socket) => {
    socket.on('error', () => socket.destroy())
    socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok'))
  })
  server.on('tlsClientError', (_error, socket) => socket.destroy())
  return startOn(host, server)
}

function startTcp(host: string, onData: (socket: net.Socket, chunk: Buffer) => void): Promise<Origin> {
  const server = net.createServer((socket) => {
    socket.on('error', () => socket.destroy())
    socket.on('data', (chunk) => onData(socket, chunk))
  })
  return startOn(host, server)
}

async function startOn(host: string, server: net.Server): Promise<Origin> {
  const seen: Seen = { connections: 0, bytes: 0, raw: '' }
  const sockets = new Set<net.Socket>()
  server.on('connection', (socket: net.Socket) => {
    seen.connections++
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
    // Not a 'data' listener: that would start the flow before the server's own reader is in place.
    const emit = socket.emit.bind(socket)
    socket.emit = ((event: string, ...args: unknown[]) => {
      if (event === 'data' && Buffer.isBuffer(args[0])) {
        seen.bytes += args[0].length
        if (seen.raw.length < 1_000_000) seen.raw += args[0].toString('latin1')
      }
      return emit(event, ...args)
    }) as typeof socket.emit
  })
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(0, host, resolve)
  })
  const { port } = server.address() as net.AddressInfo
  return {
    port,
    address: host,
    seen,
    reset: () => Object.assign(seen, { connections: 0, bytes: 0, raw: '' }),
    close: async () => {
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
