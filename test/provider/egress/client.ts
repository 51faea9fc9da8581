/** A client of the socket in a sandbox's egress folder, as the worker's forwarder would be; and an origin that it asks for. */
import http from 'node:http'
import net from 'node:net'
import type { AddressInfo } from 'node:net'

/** An origin on loopback that says who asked it for what; `headers` are those of the last request. */
export async function startOrigin(): Promise<{
  readonly port: number
  readonly headers: () => http.IncomingHttpHeaders
  readonly close: () => Promise<void>
}> {
  let last: http.IncomingHttpHeaders = {}
  const server = http.createServer((request, response) => {
    last = request.headers
    request.pipe(response.writeHead(200, { 'x-origin': 'yes' }))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    port: (server.address() as AddressInfo).port,
    headers: () => last,
    close: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

/** A connection to the socket, with all that comes. */
export class Client {
  readonly socket: net.Socket
  text = ''
  #closed = false

  constructor(path: string) {
    this.socket = net.connect(path)
    this.socket.on('data', (chunk: Buffer) => (this.text += chunk.toString('latin1')))
    this.socket.on('error', () => undefined)
    this.socket.on('close', () => (this.#closed = true))
  }

  get closed(): boolean {
    return this.#closed
  }

  send(text: string): this {
    this.socket.write(text, 'latin1')
    return this
  }

  /** Until the text so far fits, or the connection ends without it. */
  async until(pattern: RegExp): Promise<string> {
    while (!pattern.test(this.text)) {
      if (this.#closed) throw new Error(`closed after ${JSON.stringify(this.text)}`)
      await new Promise((resolve) => this.socket.once('data', resolve).once('close', resolve))
    }
    return this.text
  }

  async untilClosed(): Promise<void> {
    if (!this.#closed) await new Promise((resolve) => this.socket.once('close', resolve))
  }
}

/** The head of the answer to a CONNECT. */
export async function connectAnswer(path: string, target: string): Promise<string> {
  const client = new Client(path).send(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`)
  const answer = await client.until(/\r\n\r\n/)
  client.socket.destroy()
  return answer
}
