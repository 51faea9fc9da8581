/** A little origin on loopback for the development set-up, so that the first try of the gateway works on a machine without internet. */
import http from 'node:http'

/** A running demo origin. */
export interface DemoOrigin {
  readonly close: () => void
}

/** Starts it; `undefined` when the address is taken: then the demo does not work, and the gateway does. */
export async function startDemoOrigin(address: {
  readonly host: string
  readonly port: number
}): Promise<DemoOrigin | undefined> {
  const server = http.createServer(
    { maxHeaderSize: 16 * 1024, requestTimeout: 10_000, headersTimeout: 10_000 },
    (request, response) => {
      const name = (request.headers.host ?? '').replace(/[^\x21-\x7e]/g, '').slice(0, 100)
      request.resume()
      response.writeHead(200, { 'content-type': 'text/plain; charset=utf-8' })
      response.end(
        `This is ${name}, a demo origin inside the gateway. The gateway let you through and wrote it down.\n`,
      )
    },
  )
  server.maxConnections = 100
  return new Promise((resolve) => {
    server.once('error', () => resolve(undefined))
    server.listen(address, () => {
      resolve({
        close: () => {
          server.close()
          server.closeAllConnections()
        },
      })
    })
  })
}
