/** Stands between the backend and the engine, and writes down what is asked. */
import http from 'node:http'

export interface RecordedRequest {
  readonly method: string
  /** Without the query. */
  readonly path: string
  readonly query: URLSearchParams
  /** JSON; undefined for none. */
  readonly body: unknown
  /** The engine's. */
  readonly status: number
}

export interface Recorder {
  readonly socketPath: string
  readonly requests: readonly RecordedRequest[]
  /** Resolves when this is asked for, before the engine is. */
  readonly asked: (path: string) => Promise<void>
  readonly close: () => Promise<void>
}

/** Listens on `socketPath` for the engine at `engineSocketPath`. `rewrite` may change a body on its way, as a faulty engine would ignore parts of it. */
export async function recordRequests(
  socketPath: string,
  engineSocketPath: string,
  rewrite: (path: string, body: unknown) => unknown = (_path, body) => body,
): Promise<Recorder> {
  const requests: RecordedRequest[] = []
  const waiting = new Map<string, () => void>()
  const server = http.createServer((incoming, reply) => {
    const pieces: Buffer[] = []
    incoming.on('data', (piece: Buffer) => pieces.push(piece))
    incoming.on('end', () => {
      const { method = '', url = '' } = incoming
      const { pathname } = new URL(url, 'http://engine')
      const given = Buffer.concat(pieces)
      const bytes =
        given.length === 0 ? given : Buffer.from(JSON.stringify(rewrite(pathname, JSON.parse(given.toString()))))
      const headers = { ...incoming.headers, ...(given.length > 0 && { 'content-length': String(bytes.length) }) }
      waiting.get(pathname)?.()
      const outgoing = http.request({ socketPath: engineSocketPath, method, path: url, headers }, (answer) => {
        const { searchParams } = new URL(url, 'http://engine')
        requests.push({
          method,
          path: pathname,
          query: searchParams,
          body: bytes.length === 0 ? undefined : JSON.parse(bytes.toString()),
          status: answer.statusCode ?? 0,
        })
        reply.writeHead(answer.statusCode ?? 502, answer.headers)
        reply.flushHeaders()
        answer.pipe(reply)
        answer.on('error', () => reply.destroy())
      })
      outgoing.on('error', () => reply.destroy())
      reply.on('close', () => outgoing.destroy())
      outgoing.end(bytes)
    })
  })
  await new Promise<void>((resolve) => server.listen(socketPath, resolve))
  return {
    socketPath,
    requests,
    asked: (path) => new Promise((resolve) => waiting.set(path, resolve)),
    close: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
