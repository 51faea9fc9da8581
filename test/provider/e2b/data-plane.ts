/** What stands before the envd of each machine: knows who may speak to it, holds both sides to the contract, and passes everything on as it comes. */
import http from 'node:http'
import type { E2bContract } from './contract.ts'

/** Where the envd of a machine is. */
export interface EnvdPlace {
  readonly host: string
  readonly port: number
}

export interface DataPlaneOptions {
  readonly contract: E2bContract
  /** Undefined: nobody's. */
  readonly placeOf: (sandboxId: string, accessToken: string) => EnvdPlace | 'unauthorized' | undefined
  readonly fault: (fault: string) => void
  /** Takes the request over when it says true. */
  readonly misbehave: (request: http.IncomingMessage, response: http.ServerResponse) => boolean
}

const MAX_REQUEST_BYTES = 4 * 1024 * 1024

/** Passes one request on. */
export function passOn(
  { contract, placeOf, fault, misbehave }: DataPlaneOptions,
  request: http.IncomingMessage,
  response: http.ServerResponse,
): void {
  const url = new URL(request.url ?? '/', 'http://envd')
  const text = (name: string): string => String(request.headers[name] ?? '')
  const place = placeOf(text('e2b-sandbox-id'), text('x-access-token'))
  if (text('e2b-sandbox-port') !== '49983') fault(`${url.pathname}: the port is ${text('e2b-sandbox-port')}`)
  const refuse = (status: number, message: string): void => {
    request.resume()
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify({ code: status, message }))
  }
  if (place === undefined) {
    refuse(502, 'The sandbox was not found')
    return
  }
  if (place === 'unauthorized') {
    refuse(401, 'unauthorized access, please provide a valid access token')
    return
  }
  if (misbehave(request, response)) return
  const { method = 'GET' } = request
  const [, service = '', rpc = ''] = url.pathname.split('/')
  const described = contract.services[service]
  const isCall = service.includes('.')
  if (isCall && text('connect-protocol-version') !== '1') fault(`${url.pathname}: no version of the protocol`)
  const onward = http.request({ ...place, method, path: request.url, headers: { ...request.headers, connection: 'close' } }) // prettier-ignore
  onward.on('error', () => response.destroy())
  // An end there is an end here, and so is giving up.
  response.once('close', () => onward.destroy())
  if (isCall) {
    const pieces: Buffer[] = []
    let size = 0
    request.on('data', (piece: Buffer) => {
      size += piece.length
      if (size > MAX_REQUEST_BYTES) fault(`${url.pathname}: a request of more than ${MAX_REQUEST_BYTES} bytes`)
      pieces.push(piece)
    })
    request.once('end', () => {
      const body = Buffer.concat(pieces)
      const streams = text('content-type') === 'application/connect+json'
      if (described !== undefined && described.streams(rpc) !== streams)
        fault(`${url.pathname}: \`${text('content-type')}\` is not its type`)
      const message = JSON.parse(body.subarray(streams ? 5 : 0).toString()) as unknown
      for (const each of described?.request(rpc, message) ?? []) fault(`${url.pathname}: ${each}`)
      onward.end(body)
    })
  } else {
    request.pipe(onward)
  }
  onward.once('response', (reply) => {
    const { statusCode: status = 0 } = reply
    response.writeHead(status, reply.headers)
    reply.once('error', () => response.destroy())
    if (!isCall) {
      const isFile = method === 'GET' && url.pathname === '/files'
      const pieces: Buffer[] = []
      if (!isFile) reply.on('data', (piece: Buffer) => pieces.push(piece))
      reply.once('end', () => {
        const text = Buffer.concat(pieces).toString()
        for (const each of contract.envd({ method, path: url.pathname, query: url.searchParams, body: undefined, status, reply: text === '' ? undefined : JSON.parse(text) }).filter((each) => !each.endsWith('the body is missing'))) fault(each) // prettier-ignore
      })
      reply.pipe(response)
      return
    }
    const look = framesOf(status, reply.headers['content-type'] ?? '', (message) => {
      for (const each of described?.reply(rpc, message) ?? []) fault(`${url.pathname}: ${each}`)
    })
    reply.on('data', look.push)
    reply.once('end', look.end)
    reply.pipe(response)
  })
}

/** Each message of a reply, as its bytes come. */
function framesOf(status: number, type: string, each: (message: unknown) => void) {
  let rest = Buffer.alloc(0)
  return {
    push: (piece: Buffer): void => {
      rest = Buffer.concat([rest, piece])
      while (type === 'application/connect+json' && rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
        const end = 5 + rest.readUInt32BE(1)
        if (rest.readUInt8(0) === 0) each(JSON.parse(rest.subarray(5, end).toString()))
        rest = rest.subarray(end)
      }
    },
    end: (): void => {
      if (type === 'application/json' && status === 200) each(JSON.parse(rest.toString()))
    },
  }
}
