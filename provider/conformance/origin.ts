/** A server on loopback that stands for the world outside: it answers, and sees when a connection is cut. */
import http from 'node:http'
import type net from 'node:net'

/** It runs. */
export interface Origin {
  /** Of loopback. */
  readonly host: string
  readonly port: number
  /** Connections that are open now. */
  readonly open: () => number
  readonly close: () => Promise<void>
}

/** `GET` gives a word, `POST` the body back; a connection stays open as long as the client likes. On a free port, unless one is named. */
export async function startOrigin(host = '127.0.0.1', port = 0): Promise<Origin> {
  const sockets = new Set<net.Socket>()
  const server = http.createServer({ keepAliveTimeout: 0, requestTimeout: 0 }, (request, response) => {
    if (request.method === 'POST') request.pipe(response.writeHead(200))
    else response.end('origin')
  })
  server.on('connection', (socket) => {
    sockets.add(socket)
    socket.on('error', () => undefined)
    socket.on('close', () => sockets.delete(socket))
  })
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, host, resolve)
  })
  const address = server.address()
  return {
    host,
    port: typeof address === 'object' && address !== null ? address.port : 0,
    open: () => sockets.size,
    close: async () => {
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
