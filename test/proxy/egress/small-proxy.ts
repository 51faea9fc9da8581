/** A small upstream proxy on loopback: CONNECT and absolute-form, optional credentials, over TCP or TLS; or one that answers as a test says. */
import http from 'node:http'
import https from 'node:https'
import net from 'node:net'
import type tls from 'node:tls'

export interface SmallProxy {
  readonly port: number
  /** Of every request, what it asked for. */
  readonly asked: {
    readonly method: string
    readonly target: string
    readonly authorization: string | undefined
    readonly host: string | undefined
  }[]
  readonly close: () => Promise<void>
}

export interface SmallProxyOptions {
  readonly credentials?: string
  readonly tls?: { readonly cert: string; readonly key: string }
  /** Where a target leads; itself by default. */
  readonly route?: (target: string) => { readonly host: string; readonly port: number }
  /** Sent behind the 200 in the same segment. */
  readonly greeting?: string
}

export async function startSmallProxy(options: SmallProxyOptions = {}): Promise<SmallProxy> {
  const asked: SmallProxy['asked'] = []
  const expected =
    options.credentials === undefined ? undefined : `Basic ${Buffer.from(options.credentials).toString('base64')}`
  const route = options.route ?? itself
  const server = options.tls === undefined ? http.createServer() : https.createServer(options.tls)
  server.on('connect', (request: http.IncomingMessage, socket: net.Socket, head: Buffer) => {
    socket.on('error', () => socket.destroy())
    if (!admit(request)) {
      socket.end(
        'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="up"\r\nContent-Length: 0\r\n\r\n',
      )
      return
    }
    const origin = net.connect({ ...route(request.url ?? ''), allowHalfOpen: true })
    origin.on('error', () => socket.end('HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n'))
    origin.on('connect', () => {
      socket.write(`HTTP/1.1 200 Connection established\r\n\r\n${options.greeting ?? ''}`)
      origin.write(head)
      socket.pipe(origin).pipe(socket)
    })
  })
  server.on('request', (request: http.IncomingMessage, response: http.ServerResponse) => {
    if (!admit(request)) {
      response.writeHead(407, { 'Proxy-Authenticate': 'Basic realm="up"' }).end()
      return
    }
    const url = new URL(request.url ?? '')
    const { host, port } = route(url.host.includes(':') ? url.host : `${url.host}:80`)
    // As RFC 9112 section 3.2.2 asks: the host of the target replaces the one that was sent.
    const onward = http.request({
      host,
      port,
      method: request.method,
      path: url.pathname + url.search,
      headers: { ...request.headers, host: url.host },
    })
    onward.on('error', () => response.writeHead(503).end())
    onward.on('response', (answer) => answer.pipe(response.writeHead(answer.statusCode ?? 502, answer.headers)))
    request.pipe(onward)
  })
  return { asked, ...(await listen(server)) }

  function admit(request: http.IncomingMessage): boolean {
    const authorization = request.headers['proxy-authorization']
    asked.push({ method: request.method ?? '', target: request.url ?? '', authorization, host: request.headers.host })
    return expected === undefined || authorization === expected
  }
}

function itself(target: string): { host: string; port: number } {
  const url = new URL(`http://${target}`)
  return { host: url.hostname.replace(/^\[|\]$/g, ''), port: Number(url.port === '' ? 80 : url.port) }
}

/** Calls `answer` with the raw connection once the head of a request is there. */
export async function startRawProxy(
  answer: (socket: net.Socket, head: string) => void,
): Promise<{ port: number; close: () => Promise<void> }> {
  const server = net.createServer((socket) => {
    let head = ''
    socket.on('error', () => socket.destroy())
    socket.on('data', function onData(chunk: Buffer) {
      head += chunk.toString('latin1')
      if (!head.includes('\r\n\r\n')) return
      socket.off('data', onData)
      socket.resume()
      answer(socket, head)
    })
  })
  return listen(server)
}

async function listen(
  server: net.Server | http.Server | tls.Server,
): Promise<{ port: number; close: () => Promise<void> }> {
  const sockets = new Set<net.Socket>()
  server.on('connection', (socket: net.Socket) => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    port: (server.address() as net.AddressInfo).port,
    close: async () => {
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
